// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <utility>

#include <fp8wire/io/mapped_file.hpp>

#include "support.hpp"

namespace {
using fp8wire::i64;
using fp8wire::mapped_file;
using fp8wire::mapped_output;

/// Pages of this process that lie in files.
i64 resident_file_pages() {
  std::ifstream statm("/proc/self/statm");
  i64 total = 0, resident = 0, shared = 0;
  statm >> total >> resident >> shared;
  return shared;
}
}  // namespace

TEST_CASE("a file's bytes are those of the file, also after moving") {
  const io_test::folder dir;
  io_test::write_file(dir / "a", "hello");
  auto opened = mapped_file::open((dir / "a").string());
  REQUIRE(opened.ok());
  mapped_file moved = std::move(opened).value();
  const auto bytes = moved.bytes();
  mapped_file again;
  again = std::move(moved);
  CHECK(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == "hello");
  CHECK(again.bytes().data() == bytes.data());
}

TEST_CASE("an empty file is no bytes and no error") {
  const io_test::folder dir;
  io_test::write_file(dir / "empty", "");
  const auto opened = mapped_file::open((dir / "empty").string());
  REQUIRE(opened.ok());
  CHECK(opened->bytes().empty());
  opened->drop(0, 10);
  const auto created = mapped_output::create((dir / "zero").string(), 0);
  REQUIRE(created.ok());
  CHECK(created->bytes().empty());
  CHECK(io_test::read_file(dir / "zero").empty());
}

TEST_CASE("what cannot be mapped is refused with its path and the reason") {
  const io_test::folder dir;
  const std::string missing = (dir / "missing").string();
  CHECK(mapped_file::open(missing).error().message() == missing + ": cannot open: No such file or directory");
  CHECK(mapped_file::open(dir.path().string()).error().what == "is not a regular file");
  const std::string fifo = (dir / "fifo").string();
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(mapped_file::open(fifo).error().what == "is not a regular file");
  CHECK(mapped_file::open("/dev/zero").error().what == "is not a regular file");
}

TEST_CASE("a new file is filled in any order, survives drop, and never replaces another") {
  const io_test::folder dir;
  const std::string path = (dir / "out").string();
  constexpr i64 size = 3 * 65536 + 5;
  std::string expected(size, '\0');
  {
    const auto created = mapped_output::create(path, size);
    REQUIRE(created.ok());
    REQUIRE(created->bytes().size() == static_cast<std::size_t>(size));
    for (const std::size_t at : {std::size_t{size - 1}, std::size_t{0}, std::size_t{65535}, std::size_t{100000}}) {
      created->bytes()[at] = std::byte{7};
      expected[at] = 7;
      created->drop(static_cast<i64>(at), 1);
    }
    created->bytes()[1] = std::byte{9};
    expected[1] = 9;
  }
  CHECK(io_test::read_file(path) == expected);
  CHECK(mapped_output::create(path, 1).error().what == "cannot create: File exists");
  CHECK(io_test::read_file(path) == expected);
  CHECK_FALSE(mapped_output::create((dir / "no" / "out").string(), 1).ok());
}

TEST_CASE("dropping gives memory back and leaves the bytes readable") {
  const io_test::folder dir;
  const std::string path = (dir / "big").string();
  constexpr i64 size = i64{64} << 20;
  const i64 page = sysconf(_SC_PAGESIZE);
  {
    const auto created = mapped_output::create(path, size);
    REQUIRE(created.ok());
    const i64 before = resident_file_pages();
    std::memset(created->bytes().data(), 0x5A, static_cast<std::size_t>(size));
    CHECK(resident_file_pages() - before > size / page / 2);
    created->drop(0, size);
    CHECK(resident_file_pages() - before < size / page / 8);
  }
  const auto opened = mapped_file::open(path);
  REQUIRE(opened.ok());
  const i64 before = resident_file_pages();
  const auto sum = [&] {
    std::uint64_t total = 0;
    for (const std::byte one : opened->bytes()) total += static_cast<unsigned>(one);
    return total;
  };
  CHECK(sum() == 0x5Au * static_cast<std::uint64_t>(size));
  CHECK(resident_file_pages() - before > size / page / 2);
  opened->drop(1, size - 1);
  CHECK(resident_file_pages() - before < size / page / 8);
  CHECK(sum() == 0x5Au * static_cast<std::uint64_t>(size));
}

TEST_CASE("a file that does not fit is refused when it is made and leaves nothing") {
  const io_test::folder dir;
  const std::string path = (dir / "out").string();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit few{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &few) != 0) _exit(2);
    const auto created = mapped_output::create(path, 1 << 20);
    const bool told = created.error().message().find("no room for 1048576 bytes: File too large") != std::string::npos;
    _exit(!created.ok() && told ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("offsets beyond 4 GiB reach the right bytes") {
  const io_test::folder dir;
  const std::string path = (dir / "sparse").string();
  constexpr i64 size = (i64{5} << 30) + 3;
  io_test::write_file(path, "");
  REQUIRE(truncate(path.c_str(), size) == 0);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size - 1);
    file.put('z');
  }
  const auto opened = mapped_file::open(path);
  REQUIRE(opened.ok());
  REQUIRE(opened->bytes().size() == static_cast<std::size_t>(size));
  CHECK(opened->bytes()[static_cast<std::size_t>(size - 1)] == std::byte{'z'});
  opened->drop(size - 1, 1);
  CHECK(opened->bytes()[static_cast<std::size_t>(size - 1)] == std::byte{'z'});
}
