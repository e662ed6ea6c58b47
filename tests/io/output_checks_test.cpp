// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/output_checks.hpp>

#include "support.hpp"

using fp8wire::errc;
using fp8wire::i64;
using fp8wire::lies_within;

TEST_CASE("a path lies within itself and within what is above it, by names, dots and links") {
  const io_test::folder dir;
  std::filesystem::create_directories(dir / "in" / "sub");
  std::filesystem::create_directory_symlink("in", dir / "link");
  const auto at = [&](const char* name) { return (dir / name).string(); };
  CHECK(lies_within(at("in"), at("in")));
  CHECK(lies_within(at("in/"), at("in")));
  CHECK(lies_within(at("in"), at("in/")));
  CHECK(lies_within(at("in/sub"), at("in")));
  CHECK(lies_within(at("in/new/deeper"), at("in")));
  CHECK(lies_within(at("link/new"), at("in")));
  CHECK(lies_within(at("in/new"), at("link")));
  CHECK(lies_within(at("other/../in/new"), at("in")));
  CHECK(lies_within("anything", "."));
  CHECK_FALSE(lies_within(at("in"), at("in/sub")));
  CHECK_FALSE(lies_within(at("inner"), at("in")));
  CHECK_FALSE(lies_within(at("in/../out"), at("in")));
  CHECK_FALSE(lies_within("..", "."));
}

TEST_CASE("too little room is refused with both numbers") {
  const io_test::folder dir;
  CHECK_FALSE(fp8wire::check_free_space(dir.path().string(), 0));
  CHECK_FALSE(fp8wire::check_free_space(dir.path().string(), 1));
  const i64 much = i64{1} << 62;
  const fp8wire::error why = fp8wire::check_free_space(dir.path().string(), much);
  CHECK(why.code == errc::capacity);
  CHECK(why.expected == much);
  CHECK(why.got > 0);
  CHECK(why.has_numbers);
  CHECK(fp8wire::check_free_space((dir / "missing").string(), 1).code == errc::bad_file);
}
