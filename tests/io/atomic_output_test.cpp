// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/atomic_output.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <utime.h>

#include <csignal>
#include <cstring>
#include <random>
#include <set>

#include "support.hpp"

namespace {
using fp8wire::atomic_output;
using fp8wire::errc;
using fp8wire::existing;

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}
using names = std::set<std::string>;

/// A child that does nothing until it is killed.
class sleeper {
 public:
  sleeper() : process_(fork()) {
    if (process_ == 0)
      for (;;) pause();
  }
  ~sleeper() { end(); }
  pid_t process() const { return process_; }
  void kill_only() { kill(process_, SIGKILL); }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_;
};

/// What body() answers in a process of its own.
template <class Body> int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
}  // namespace

TEST_CASE("a file appears at commit, and only then") {
  const io_test::folder dir;
  const std::string target = (dir / "out").string();
  auto out = atomic_output::file(target, existing::refuse);
  REQUIRE(out.ok());
  CHECK(out->path() == (dir / (".out.tmp-" + std::to_string(getpid()))).string());
  io_test::write_file(out->path(), "new");
  CHECK_FALSE(std::filesystem::exists(target));
  CHECK_FALSE(out->commit());
  CHECK(io_test::read_file(target) == "new");
  CHECK(names_in(dir.path()) == names{"out"});
}

TEST_CASE("what is not committed leaves nothing, also after moving") {
  const io_test::folder dir;
  {
    auto made = atomic_output::folder((dir / "out/").string(), existing::refuse);
    REQUIRE(made.ok());
    atomic_output moved = std::move(made).value();
    std::filesystem::create_directory(moved.path() + "/sub");
    io_test::write_file(moved.path() + "/sub/a", "a");
    atomic_output again;
    again = std::move(moved);
    CHECK(names_in(dir.path()).size() == 1);
    auto file = atomic_output::file((dir / "file").string(), existing::refuse);
    io_test::write_file(file->path(), "x");
    again = std::move(file).value();
    CHECK(names_in(dir.path()) == names{".file.tmp-" + std::to_string(getpid())});
  }
  CHECK(names_in(dir.path()).empty());
}

TEST_CASE("a target that exists is refused without replace, before and at the commit") {
  const io_test::folder dir;
  io_test::write_file(dir / "file", "old");
  std::filesystem::create_directory(dir / "empty");
  CHECK(atomic_output::file((dir / "file").string(), existing::refuse).error().code == errc::unexpected);
  CHECK(atomic_output::folder((dir / "empty").string(), existing::refuse).error().what == "exists already");
  for (const bool folder : {false, true}) {
    const std::string target = (dir / (folder ? "later" : "soon")).string();
    auto out = folder ? atomic_output::folder(target, existing::refuse) : atomic_output::file(target, existing::refuse);
    REQUIRE(out.ok());
    if (folder) std::filesystem::create_directory(target);  // a plain rename would take an empty folder's place
    else io_test::write_file(target, "theirs");
    if (!folder) io_test::write_file(out->path(), "ours");
    CHECK(out->commit().message() == target + ": cannot be put in place: File exists");
    if (!folder) CHECK(io_test::read_file(target) == "theirs");
  }
  CHECK(names_in(dir.path()) == names{"file", "empty", "later", "soon"});
}

TEST_CASE("replace takes the place of a file, an empty folder and a full folder, and of their links' ends") {
  const io_test::folder dir;
  io_test::write_file(dir / "file", "old");
  std::filesystem::create_symlink("file", dir / "link");
  auto file = atomic_output::file((dir / "link").string(), existing::replace);
  REQUIRE(file.ok());
  CHECK(file->target() == (dir / "file").string());
  io_test::write_file(file->path(), "new");
  CHECK_FALSE(file->commit());
  CHECK(io_test::read_file(dir / "file") == "new");
  CHECK(std::filesystem::is_symlink(dir / "link"));

  std::filesystem::create_directory(dir / "folder");
  for (const char* content : {"1", "2", "3"}) {
    auto folder = atomic_output::folder((dir / "folder").string(), existing::replace);
    REQUIRE(folder.ok());
    CHECK(names_in(folder->path()).empty());
    io_test::write_file(folder->path() + "/" + content, content);
    CHECK_FALSE(folder->commit());
    CHECK(names_in(dir / "folder") == names{content});
  }
  CHECK(names_in(dir.path()) == names{"file", "link", "folder"});
}

TEST_CASE("what cannot be a target is refused by name") {
  const io_test::folder dir;
  io_test::write_file(dir / "file", "old");
  std::filesystem::create_directory(dir / "folder");
  std::filesystem::create_symlink("nowhere", dir / "link");
  const auto code = [&](const std::string& name, bool folder) {
    return (folder ? atomic_output::folder(name, existing::replace) : atomic_output::file(name, existing::replace))
        .error()
        .code;
  };
  CHECK(code((dir / "file").string(), true) == errc::unexpected);
  CHECK(code((dir / "folder").string(), false) == errc::unexpected);
  CHECK(code((dir / "link").string(), false) == errc::bad_file);
  CHECK(code((dir / "no" / "out").string(), false) == errc::bad_file);
  CHECK(code((dir / "file" / "out").string(), false) == errc::bad_file);
  CHECK(code(dir.path().string() + "/..", true) == errc::bad_argument);
  CHECK(code(".", true) == errc::bad_argument);
  CHECK(code("/", true) == errc::bad_argument);
  CHECK(code("", false) == errc::bad_argument);
  CHECK(code((dir / std::string(250, 'n')).string(), true) == errc::bad_file);
  CHECK(io_test::read_file(dir / "file") == "old");
  CHECK(names_in(dir.path()) == names{"file", "folder", "link"});
}

TEST_CASE("left-overs of dead processes go, those of living ones and names that only look alike stay") {
  const io_test::folder dir;
  sleeper alive, dead, zombie;
  dead.end();
  const pid_t gone = [&] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    return child;
  }();
  zombie.kill_only();
  while (waitid(P_PID, static_cast<id_t>(zombie.process()), nullptr, WEXITED | WNOWAIT) != 0) {
  }
  const auto temporary = [](pid_t process) { return ".out.tmp-" + std::to_string(process); };
  std::filesystem::create_directories(dir / temporary(gone) / "sub");
  io_test::write_file(dir / temporary(gone) / "sub" / "a", "a");
  io_test::write_file(dir / temporary(alive.process()), "theirs");
  io_test::write_file(dir / temporary(zombie.process()), "z");
  const names kept = {".out.tmp-",
                      ".out.tmp-12x",
                      ".out.tmp-0",
                      ".out.tmp-00",
                      ".out.tmp-99999999999999",
                      ".out.tmp--1",
                      ".out2.tmp-" + std::to_string(gone),
                      "out.tmp-" + std::to_string(gone),
                      ".out.tmp-0" + std::to_string(gone)};
  for (const std::string& name : kept) io_test::write_file(dir / name, "");
  // Our own number on something older than this process: a process before us had it.
  std::filesystem::create_directory(dir / temporary(getpid()));
  const utimbuf long_ago{1000000000, 1000000000};
  REQUIRE(utime((dir / temporary(getpid())).c_str(), &long_ago) == 0);
  {
    const auto out = atomic_output::file((dir / "out").string(), existing::refuse);
    REQUIRE(out.ok());
    names expected = kept;
    expected.insert(temporary(alive.process()));
    CHECK(names_in(dir.path()) == expected);
  }
  alive.end();
  REQUIRE(atomic_output::folder((dir / "out").string(), existing::refuse).ok());
  CHECK(names_in(dir.path()) == kept);
}

TEST_CASE("a second output of the same process under the same name is refused, not deleted") {
  const io_test::folder dir;
  const auto first = atomic_output::folder((dir / "out").string(), existing::refuse);
  REQUIRE(first.ok());
  CHECK_FALSE(atomic_output::folder((dir / "out").string(), existing::refuse).ok());
  CHECK_FALSE(atomic_output::file((dir / "out").string(), existing::refuse).ok());
  CHECK(std::filesystem::is_directory(first->path()));
}

TEST_CASE("a forked child that goes does not take its parent's output along") {
  const io_test::folder dir;
  auto out = atomic_output::folder((dir / "out").string(), existing::refuse);
  REQUIRE(out.ok());
  CHECK(in_child([&] {
          {
            atomic_output copy = std::move(out).value();
          }
          return 0;
        }) == 0);
  CHECK_FALSE(out->commit());
  CHECK(std::filesystem::is_directory(dir / "out"));
}

TEST_CASE("killed at any moment, a target is whole, old or new, and the next run clears up") {
  const io_test::folder dir;
  const std::string folder_target = (dir / "folder").string(), file_target = (dir / "file").string();
  std::mt19937 random(7);
  long last = 0;
  int progress = 0;
  for (int round = 0; round < 60; ++round) {
    const bool folder = round % 2 == 0;
    const std::string& target = folder ? folder_target : file_target;
    const pid_t writer = fork();
    if (writer == 0) {
      for (long version = last + 1;; ++version) {
        auto out =
            folder ? atomic_output::folder(target, existing::replace) : atomic_output::file(target, existing::replace);
        if (!out.ok()) _exit(1);
        const std::string content = std::to_string(version) + std::string(40000, '.');
        const auto put = [&](const std::string& path) {
          std::ofstream file(path, std::ios::binary);
          file << content;
        };
        if (folder) {
          std::filesystem::create_directory(out->path() + "/sub");
          put(out->path() + "/a");
          put(out->path() + "/sub/b");
        } else {
          put(out->path());
        }
        if (out->commit()) _exit(2);
      }
    }
    // Every third kill waits for a commit first, so that kills fall around renames on slow disks too.
    const auto inode = [&] {
      struct stat status{};
      return lstat(target.c_str(), &status) == 0 ? status.st_ino : 0;
    };
    for (const auto before = inode(); round % 3 == 0 && inode() == before;) {
      if (waitpid(writer, nullptr, WNOHANG) != 0) FAIL("the writer stopped by itself");
    }
    usleep(static_cast<useconds_t>(random() % 12000));
    kill(writer, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(writer, &status, 0) == writer);
    REQUIRE(WIFSIGNALED(status));
    if (std::filesystem::exists(target)) {
      const std::string content = io_test::read_file(folder ? target + "/a" : target);
      CHECK(content.size() > 40000);
      if (folder) {
        CHECK(names_in(target) == names{"a", "sub"});
        CHECK(io_test::read_file(target + "/sub/b") == content);
      }
      const long version = std::stol(content);
      if (version > last) ++progress;
      last = (std::max)(last, version);
    }
    {
      REQUIRE(atomic_output::file(target + "-other", existing::refuse).ok());
    }  // another name: clears nothing here
    {
      const auto next =
          folder ? atomic_output::folder(target, existing::replace) : atomic_output::file(target, existing::replace);
      REQUIRE(next.ok());
      for (const std::string& name : names_in(dir.path()))
        CHECK((name == "folder" || name == "file" || name == std::filesystem::path(next->path()).filename()));
    }
  }
  CHECK(progress >= 20);
}

TEST_CASE("where folders cannot be exchanged it is said before any work, and the rest works on") {
  const io_test::folder dir;
  const std::string target = (dir / "out").string();
  std::filesystem::create_directory(target);
  io_test::write_file(target + "/old", "old");
  const int answer = in_child([&] {
    // Such a file system is hard to come by: let renameat2 answer EINVAL, as one does.
    sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
      return 77;
    const auto refused = atomic_output::folder(target, existing::replace);
    if (refused.ok() || refused.error().code != errc::unsupported) return 1;
    if (!refused.error().what.ends_with("remove OUTPUT first")) return 2;
    if (names_in(dir.path()) != names{"out"}) return 3;
    auto file = atomic_output::file((dir / "file").string(), existing::refuse);
    if (!file.ok()) return 4;
    std::ofstream(file->path()) << "new";
    if (file->commit()) return 5;
    auto folder = atomic_output::folder((dir / "fresh").string(), existing::refuse);
    if (!folder.ok() || folder->commit()) return 6;
    auto late = atomic_output::file((dir / "late").string(), existing::refuse);
    if (!late.ok()) return 7;
    std::ofstream(late->path()) << "ours";
    std::ofstream(late->target()) << "theirs";
    return late->commit() ? 0 : 8;
  });
  if (answer == 77) {
    MESSAGE("skipped: no seccomp filter can be set here");
    return;
  }
  CHECK(answer == 0);
  CHECK(io_test::read_file(target + "/old") == "old");
  CHECK(io_test::read_file(dir / "file") == "new");
  CHECK(io_test::read_file(dir / "late") == "theirs");
}
