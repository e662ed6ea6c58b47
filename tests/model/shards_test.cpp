// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/model/shards.hpp>

using namespace fp8wire;

TEST_CASE("shards that make up the tensor are taken, in any order and with empty ones among them") {
  const flat_range good[] = {{30, 70}, {5, 0}, {0, 10}, {100, 0}, {10, 20}};
  CHECK_FALSE(check_shards("w", 100, good));
  CHECK_FALSE(check_shards("w", 0, {}));
  CHECK_FALSE(
      check_shards("w", i64{1} << 40, std::vector<flat_range>{{i64{1} << 39, i64{1} << 39}, {0, i64{1} << 39}}));
}

TEST_CASE("shards that overlap, leave a gap or leave the tensor are refused with ranks and numbers") {
  struct row {
    std::vector<flat_range> ranges;
    errc code;
    const char* says;
  };
  for (const row& at :
       {row{{{0, 60}, {50, 50}}, errc::duplicate, "ranks 0 and 1 overlap"},
        row{{{50, 50}, {0, 10}, {10, 41}}, errc::duplicate, "ranks 0 and 2 overlap"},
        row{{{0, 100}, {0, 100}}, errc::duplicate, "ranks 0 and 1 overlap"},
        row{{{0, 40}, {50, 50}}, errc::missing, "got 50, expected 40"},
        row{{{1, 99}}, errc::missing, "got 1, expected 0"}, row{{{0, 99}}, errc::missing, "got 99, expected 100"},
        row{{}, errc::missing, "got 0, expected 100"},
        row{{{0, 100}, {100, 1}}, errc::wrong_offset, "rank 1 does not fit"},
        row{{{-1, 101}}, errc::wrong_offset, "rank 0 does not fit"},
        row{{{0, -1}}, errc::wrong_offset, "negative length"},
        row{{{i64{1} << 62, i64{1} << 62}}, errc::wrong_offset, "rank 0 does not fit"}}) {
    const error found = check_shards("layers.0.weight", 100, at.ranges);
    CAPTURE(found.message());
    CHECK(found.code == at.code);
    CHECK(found.broken == condition::c5_geometry);
    CHECK(found.message().find(at.says) != std::string::npos);
    CHECK(found.tensor == "layers.0.weight");
  }
}

TEST_CASE("rectangles are checked the same way") {
  constexpr matrix_extents of{2, 3, 10};
  const slice columns[] = {{0, 0, 6, 4}, {0, 4, 6, 6}}, rows[] = {{3, 0, 3, 10}, {0, 0, 3, 10}, {1, 0, 0, 10}};
  CHECK_FALSE(check_shards("w", of, columns));
  CHECK_FALSE(check_shards("w", of, rows));
  const slice overlap[] = {{0, 0, 6, 5}, {5, 4, 1, 6}}, gap[] = {{0, 0, 6, 4}, {0, 5, 6, 5}},
              outside[] = {{0, 0, 7, 10}}, beside[] = {{0, 1, 6, 10}};
  CHECK(check_shards("w", of, overlap).code == errc::duplicate);
  CHECK(check_shards("w", of, gap).code == errc::missing);
  CHECK(check_shards("w", of, outside).code == errc::wrong_offset);
  CHECK(check_shards("w", of, beside).code == errc::wrong_offset);
}
