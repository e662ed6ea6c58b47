// SPDX-License-Identifier: Apache-2.0
// Real processes: the peers are forked, killed and stopped. Where a wait must end because the peer ended, the timeout
// is a minute, so that the error's code tells an end that was noticed from one that was waited out.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <fp8wire/transport/shm.hpp>

namespace fw = fp8wire;
using namespace std::chrono_literals;
using fw::condition;
using fw::errc;
using fw::frame;
using fw::message;
using fw::message_kind;
using fw::shm_publisher;
using fw::shm_subscriber;
using fw::u32;
using fw::u64;

namespace {

constexpr auto minute = std::chrono::milliseconds(60000);
constexpr auto moment = std::chrono::milliseconds(250);

std::string fresh_name() {
  static int count = 0;
  return "@fp8wire-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

/// A forked process; killed at the end of its scope unless it was waited for.
class process {
 public:
  template <class Body> explicit process(const Body& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  process(process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~process() {
    if (pid_ > 0) kill(SIGKILL), wait();
  }
  pid_t pid() const { return pid_; }
  std::string text() const { return "(pid " + std::to_string(pid_) + ")"; }
  void kill(int signal) const { ::kill(pid_, signal); }
  void stop() const {
    kill(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  /// Until it has ended, which a signal's sender does not wait for. It stays to be waited for.
  void await_end() const {
    siginfo_t what;
    ::waitid(P_PID, static_cast<id_t>(pid_), &what, WEXITED | WNOWAIT);
  }
  /// Exit code, or 1000 + signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

std::byte pattern(u32 buffer, std::size_t at) {
  return static_cast<std::byte>((at * 31 + buffer * 7 + (at >> 8)) & 0xFF);
}

bool holds(std::span<const std::byte> bytes, u32 buffer) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != pattern(buffer, i)) return false;
  return true;
}

fw::error put(shm_publisher& learner, u32 buffer, u64 bytes) {
  auto slot = learner.acquire(buffer);
  if (!slot) return slot.error();
  for (std::size_t i = 0; i < bytes; ++i) (*slot)[i] = pattern(buffer, i);
  return learner.publish({fw::protocol_version, buffer, 99, 1, bytes});
}

message text_message(message_kind kind, std::size_t bytes, u32 seed = 0) {
  message made{kind, std::vector<std::byte>(bytes)};
  for (std::size_t i = 0; i < bytes; ++i) made.payload[i] = pattern(seed, i);
  return made;
}

/// Receives a message of that kind or returns false.
bool expect(shm_subscriber& engine, message_kind kind, message& into) {
  return !engine.receive(into) && into.kind == kind;
}

/// A learner with forked engines, each running body(subscriber&, number) -> exit code.
struct session {
  shm_publisher learner;
  std::vector<process> engines;
};
template <class Body> session begin(int engines, std::chrono::milliseconds timeout, const Body& body) {
  const std::string name = fresh_name();
  session made;
  for (int e = 0; e < engines; ++e)
    made.engines.emplace_back([&] {
      auto connected = shm_subscriber::connect(name, e, minute);
      return connected ? body(*connected, e) : 200;
    });
  auto listening = shm_publisher::listen(name, engines, minute);
  REQUIRE_MESSAGE(listening.ok(), listening.error().message());
  // Everything after the joining runs under the timeout that the test is about.
  const fw::error failed = listening->accept();
  REQUIRE_MESSAGE(!failed, failed.message());
  listening->set_timeout(timeout);
  made.learner = std::move(listening).value();
  return made;
}

/// Sleeps until it is killed.
int wait_for_the_end() {
  for (;;) ::pause();
}

std::vector<std::string> entries(const char* folder) {
  std::vector<std::string> names;
  for (const auto& one : std::filesystem::directory_iterator(folder)) names.push_back(one.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("buffers arrive in order and byte for byte at every engine") {
  for (const int engines : {1, 2, 16}) {
    CAPTURE(engines);
    constexpr u32 buffers = 20;
    session s = begin(engines, minute, [](shm_subscriber& engine, int number) {
      message m;
      if (!expect(engine, message_kind::hello, m) || m.payload != text_message(message_kind::hello, 1000).payload)
        return 1;
      if (engine.reply(text_message(message_kind::accept, 10, static_cast<u32>(number)))) return 2;
      for (u32 b = 0; b < buffers; ++b) {
        if (!expect(engine, message_kind::data, m)) return 3;
        const auto f = fw::decode_frame(m);
        if (!f || f->buffer != b || f->plan_hash != 99 || f->used_bytes != 5000 + b) return 4;
        const auto bytes = engine.bytes(*f);
        if (!bytes || bytes->size() != 5000 + b || !holds(*bytes, b)) return 5;
        if (engine.release(*f)) return 6;
      }
      return expect(engine, message_kind::bye, m) && m.payload.empty() ? 0 : 7;
    });
    CHECK_FALSE(s.learner.broadcast(text_message(message_kind::hello, 1000)));
    std::vector<bool> heard(static_cast<std::size_t>(engines));
    for (int i = 0; i < engines; ++i) {
      message m;
      int engine = -1;
      REQUIRE_FALSE(s.learner.receive(m, engine));
      CHECK(m.payload == text_message(message_kind::accept, 10, static_cast<u32>(engine)).payload);
      heard[static_cast<std::size_t>(engine)] = true;
    }
    CHECK(std::count(heard.begin(), heard.end(), true) == engines);
    REQUIRE_FALSE(s.learner.allocate(3, 5019));
    for (u32 b = 0; b < buffers; ++b) REQUIRE_FALSE(put(s.learner, b, 5000 + b));
    CHECK_FALSE(s.learner.broadcast({message_kind::bye, {}}));
    for (process& engine : s.engines) CHECK(engine.wait() == 0);
  }
}

TEST_CASE("a slot is given out again once the slowest reader has released it, and not before") {
  session s = begin(2, moment, [](shm_subscriber& engine, int number) {
    message m;
    frame first;
    for (u32 b = 0; b < 3; ++b) {
      if (!expect(engine, message_kind::data, m)) return 1;
      const frame f = *fw::decode_frame(m);
      if (number == 1 && b == 0) {
        first = f;  // the slow one keeps it
      } else if (engine.release(f)) {
        return 2;
      }
      if (number == 1 && b == 1) {
        if (!expect(engine, message_kind::begin, m)) return 3;
        if (!holds(*engine.bytes(first), 0)) return 4;
        if (engine.release(first)) return 5;
      }
      if (number == 0 && b == 1 && !expect(engine, message_kind::begin, m)) return 6;
    }
    return expect(engine, message_kind::bye, m) ? 0 : 7;
  });
  REQUIRE_FALSE(s.learner.allocate(2, 4096));
  REQUIRE_FALSE(put(s.learner, 0, 4096));
  REQUIRE_FALSE(put(s.learner, 1, 100));
  const auto held = s.learner.acquire(2);
  CHECK(held.error().code == errc::timeout);
  CHECK(held.error().tensor == "engine 1 " + s.engines[1].text());
  CHECK(held.error().message() == "C7 engine 1 " + s.engines[1].text() + ": buffer 0 was not released within 250 ms");
  CHECK(s.learner.acquire(1 + 2).ok());  // the other slot is free, and acquiring it twice is no publication
  s.learner.set_timeout(minute);
  CHECK_FALSE(s.learner.broadcast({message_kind::begin, std::vector<std::byte>(8)}));
  CHECK_FALSE(put(s.learner, 2, 4096));
  CHECK_FALSE(s.learner.broadcast({message_kind::bye, {}}));
  for (process& engine : s.engines) CHECK(engine.wait() == 0);
}

TEST_CASE("releases that come while something else is awaited are not lost") {
  session s = begin(1, minute, [](shm_subscriber& engine, int) {
    message m;
    for (int b = 0; b < 2; ++b)
      if (!expect(engine, message_kind::data, m) || engine.release(*fw::decode_frame(m))) return 1;
    if (engine.reply({message_kind::vote, {}})) return 2;
    ::raise(SIGSTOP);  // nothing more can come from here
    return 0;
  });
  REQUIRE_FALSE(s.learner.allocate(2, 64));
  REQUIRE_FALSE(put(s.learner, 0, 64));
  REQUIRE_FALSE(put(s.learner, 1, 64));
  message m;
  int engine = -1;
  REQUIRE_FALSE(s.learner.receive(m, engine));
  CHECK(m.kind == message_kind::vote);
  CHECK(s.learner.acquire(2).ok());
  CHECK(s.learner.acquire(3).ok());
}

TEST_CASE("an engine that is killed is named at once, whatever the learner does then") {
  enum class state { receiving, acquiring, broadcasting, publishing };
  for (const state what : {state::receiving, state::acquiring, state::broadcasting, state::publishing}) {
    CAPTURE(static_cast<int>(what));
    session s = begin(3, minute, [](shm_subscriber& engine, int) {
      message m;
      if (!expect(engine, message_kind::begin, m)) return 1;  // the slots are mapped by now
      return wait_for_the_end();
    });
    REQUIRE_FALSE(s.learner.allocate(2, 64));
    REQUIRE_FALSE(s.learner.broadcast({message_kind::begin, std::vector<std::byte>(8)}));
    if (what == state::acquiring) {
      REQUIRE_FALSE(put(s.learner, 0, 64));
      REQUIRE_FALSE(put(s.learner, 1, 64));
    }
    if (what == state::publishing) REQUIRE(s.learner.acquire(0).ok());
    // Killed while the learner waits: the killer is a process of its own.
    process killer([&] {
      ::usleep(100000);
      s.engines[1].kill(SIGKILL);
      return 0;
    });
    if (what == state::publishing) killer.wait(), s.engines[1].await_end();
    const std::string name = "engine 1 " + s.engines[1].text() + " is gone";
    message m;
    int engine = -1;
    fw::error got;
    if (what == state::receiving) got = s.learner.receive(m, engine);
    if (what == state::acquiring) got = s.learner.acquire(2).error();
    if (what == state::broadcasting) {
      // Too much for a socket: engine 1 dies with it half sent, the two others are stuck until they are killed as well.
      process second([&] {
        ::usleep(200000);
        s.engines[0].kill(SIGKILL), s.engines[2].kill(SIGKILL);
        return 0;
      });
      got = s.learner.broadcast(text_message(message_kind::hello, 50 << 20));
      CHECK(got.what == "engine 0 " + s.engines[0].text() + " is gone");
      CHECK(got.code == errc::peer_lost);
      continue;
    }
    if (what == state::publishing) got = s.learner.publish({fw::protocol_version, 0, 1, 1, 64});
    CHECK(got.code == errc::peer_lost);
    CHECK(got.broken == condition::c7_transport);
    CHECK(got.what == name);
    CHECK(s.learner.receive(m, engine).what == name);  // and it stays so
    CHECK(s.learner.acquire(2).error().what == name);
  }
}

TEST_CASE("after one engine is gone the others are still told") {
  session s = begin(2, minute, [](shm_subscriber& engine, int number) {
    message m;
    if (number == 0) return 9;
    return expect(engine, message_kind::abort, m) && m.payload == text_message(message_kind::abort, 70000).payload ? 0
                                                                                                                   : 1;
  });
  const std::string gone = "engine 0 " + s.engines[0].text() + " is gone";
  CHECK(s.engines[0].wait() == 9);
  CHECK(s.learner.broadcast(text_message(message_kind::abort, 70000)).what == gone);
  CHECK(s.engines[1].wait() == 0);
}

TEST_CASE("what an engine said before it went is still delivered") {
  session s = begin(1, minute, [](shm_subscriber& engine, int) {
    return engine.reply(text_message(message_kind::refuse, 3000)) ? 1 : 0;
  });
  CHECK(s.engines[0].wait() == 0);
  message m;
  int engine = -1;
  // The learner is in the middle of talking to it: the refusal must not be lost by that.
  CHECK(s.learner.broadcast(text_message(message_kind::hello, 1 << 20)).code == errc::peer_lost);
  REQUIRE_FALSE(s.learner.receive(m, engine));
  CHECK(m.kind == message_kind::refuse);
  CHECK(m.payload == text_message(message_kind::refuse, 3000).payload);
  CHECK(s.learner.receive(m, engine).code == errc::peer_lost);
}

TEST_CASE("a learner that is killed is named at once, and what was read stays readable") {
  enum class state { receiving, replying, before_the_welcome };
  for (const state what : {state::receiving, state::replying, state::before_the_welcome}) {
    CAPTURE(static_cast<int>(what));
    const std::string name = fresh_name();
    process learner([&] {
      auto one = shm_publisher::listen(name, 1, minute);
      if (!one) return 1;
      if (what == state::before_the_welcome) return wait_for_the_end();
      if (one->accept() || one->allocate(2, 128) || put(*one, 0, 128)) return 2;
      return wait_for_the_end();
    });
    process killer([&] {
      ::usleep(400000);
      learner.kill(SIGKILL);
      return 0;
    });
    auto engine = shm_subscriber::connect(name, 0, minute);
    if (what == state::before_the_welcome) {
      CHECK(engine.error().code == errc::peer_lost);
      CHECK(engine.error().what == "learner " + learner.text() + " is gone, or it turned engine 0 away");
      continue;
    }
    REQUIRE_MESSAGE(engine.ok(), engine.error().message());
    message m;
    REQUIRE(expect(*engine, message_kind::data, m));
    const frame f = *fw::decode_frame(m);
    const fw::error got =
        what == state::receiving ? engine->receive(m) : engine->reply(text_message(message_kind::accept, 50 << 20));
    CHECK(got.code == errc::peer_lost);
    CHECK(got.what == "learner " + learner.text() + " is gone");
    CHECK(holds(*engine->bytes(f), 0));
    CHECK(engine->release(f).code == errc::peer_lost);
  }
}

TEST_CASE("an engine that is stopped is named when the timeout is over and can come back") {
  session s = begin(2, moment, [](shm_subscriber& engine, int) {
    message m;
    while (!engine.receive(m)) {
      if (m.kind == message_kind::data && engine.release(*fw::decode_frame(m))) return 1;
      if (m.kind == message_kind::finish && engine.reply({message_kind::vote, {}})) return 2;
      if (m.kind == message_kind::bye) return 0;
    }
    return 3;
  });
  REQUIRE_FALSE(s.learner.allocate(1, 64));
  s.engines[1].stop();
  CHECK_FALSE(put(s.learner, 0, 64));  // a frame is small: the socket takes it
  const auto late = s.learner.acquire(1);
  CHECK(late.error().code == errc::timeout);
  CHECK(late.error().tensor == "engine 1 " + s.engines[1].text());
  CHECK_FALSE(s.learner.broadcast({message_kind::finish, {}}));
  message m;
  int engine = -1;
  CHECK_FALSE(s.learner.receive(m, engine));
  CHECK(engine == 0);
  const fw::error silent = s.learner.receive(m, engine);
  CHECK(silent.code == errc::timeout);
  CHECK(silent.tensor == "engine 1 " + s.engines[1].text());  // the one whose vote is missing
  s.learner.set_timeout(minute);
  s.engines[1].kill(SIGCONT);
  CHECK_FALSE(s.learner.receive(m, engine));
  CHECK(engine == 1);
  CHECK(s.learner.acquire(1).ok());
  CHECK_FALSE(s.learner.broadcast({message_kind::bye, {}}));
  for (process& one : s.engines) CHECK(one.wait() == 0);
}

TEST_CASE("an engine that takes half a message is lost, the others get all of it") {
  session s = begin(2, moment * 8, [](shm_subscriber& engine, int) {
    message m;
    return expect(engine, message_kind::hello, m) && m.payload == text_message(message_kind::hello, 8 << 20).payload
               ? 0
               : 1;
  });
  s.engines[0].stop();
  const fw::error got = s.learner.broadcast(text_message(message_kind::hello, 8 << 20));
  CHECK(got.code == errc::timeout);
  CHECK(got.what == "engine 0 " + s.engines[0].text() + " did not take a message within 2 s");
  CHECK(s.engines[1].wait() == 0);
}

TEST_CASE("waiting costs no processor time and signals do not end it") {
  session s = begin(1, std::chrono::milliseconds(1500), [](shm_subscriber&, int) { return wait_for_the_end(); });
  REQUIRE_FALSE(s.learner.allocate(1, 64));
  REQUIRE_FALSE(put(s.learner, 0, 64));
  struct sigaction quiet {};
  quiet.sa_handler = [](int) {};  // without SA_RESTART: poll ends with EINTR
  ::sigaction(SIGALRM, &quiet, nullptr);
  const itimerval often{{0, 50000}, {0, 50000}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  CHECK(s.learner.acquire(1).error().code == errc::timeout);
  ::getrusage(RUSAGE_SELF, &after);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  const auto micros = [](const rusage& used) {
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  };
  CHECK(micros(after) - micros(before) < 150000);  // a tenth of the wait; a busy loop takes all of it
}

TEST_CASE("two ends that send large messages at once both get through") {
  constexpr std::size_t large = 50 << 20;
  session s = begin(2, minute, [](shm_subscriber& engine, int number) {
    if (engine.reply(text_message(message_kind::accept, large, static_cast<u32>(number)))) return 1;
    message m;
    if (!expect(engine, message_kind::hello, m) || m.payload != text_message(message_kind::hello, large, 5).payload)
      return 2;
    return expect(engine, message_kind::bye, m) ? 0 : 3;  // who leaves before the others are heard counts as lost
  });
  CHECK_FALSE(s.learner.broadcast(text_message(message_kind::hello, large, 5)));
  for (int i = 0; i < 2; ++i) {
    message m;
    int engine = -1;
    REQUIRE_FALSE(s.learner.receive(m, engine));
    CHECK(m.payload == text_message(message_kind::accept, large, static_cast<u32>(engine)).payload);
  }
  CHECK_FALSE(s.learner.broadcast({message_kind::bye, {}}));
  for (process& engine : s.engines) CHECK(engine.wait() == 0);
}

TEST_CASE("nothing is left behind") {
  const auto memory = entries("/dev/shm"), files = entries("/proc/self/fd");
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("fp8wire-shm-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string name = (folder / "socket").string();
  {
    // A learner that is killed leaves the file of its path, and only that; the next one takes the path over.
    process killed([&] {
      auto one = shm_publisher::listen(name, 1, minute);
      return one ? wait_for_the_end() : 1;
    });
    while (!std::filesystem::exists(name)) ::usleep(1000);
    ::usleep(50000);
    killed.kill(SIGKILL);
    killed.wait();
    REQUIRE(std::filesystem::exists(name));
    auto learner = shm_publisher::listen(name, 1, minute);
    REQUIRE_MESSAGE(learner.ok(), learner.error().message());
    CHECK(shm_publisher::listen(name, 1, minute).error().code == errc::bad_file);  // somebody answers there now
    process engine([&] {
      auto one = shm_subscriber::connect(name, 0, minute);
      message m;
      return one && expect(*one, message_kind::data, m) ? wait_for_the_end() : 1;
    });
    REQUIRE_FALSE(learner->accept());
    CHECK_FALSE(std::filesystem::exists(name));
    REQUIRE_FALSE(learner->allocate(2, 1 << 20));
    REQUIRE_FALSE(put(*learner, 0, 1 << 20));
    CHECK(entries("/dev/shm") == memory);
    engine.kill(SIGKILL);
    CHECK(learner->acquire(2).error().code == errc::peer_lost);
  }
  CHECK(entries("/dev/shm") == memory);
  CHECK(entries("/proc/self/fd").size() == files.size());
  CHECK(entries(folder.c_str()).empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("engines cannot write into the slots") {
  session s = begin(1, minute, [](shm_subscriber& engine, int) {
    message m;
    if (!expect(engine, message_kind::data, m)) return 0;
    const auto bytes = engine.bytes(*fw::decode_frame(m));
    std::signal(SIGSEGV, [](int) { ::_exit(77); });
    *const_cast<volatile std::byte*>(bytes->data()) = std::byte{1};
    return 0;
  });
  REQUIRE_FALSE(s.learner.allocate(1, 64));
  REQUIRE_FALSE(put(s.learner, 0, 64));
  CHECK(s.engines[0].wait() == 77);
}

TEST_CASE("new slots replace the old ones once nobody reads those") {
  session s = begin(1, minute, [](shm_subscriber& engine, int) {
    message m;
    for (u32 round = 0; round < 2; ++round) {
      if (!expect(engine, message_kind::data, m)) return 1;
      const frame f = *fw::decode_frame(m);
      const auto bytes = engine.bytes(f);
      if (!bytes || !holds(*bytes, f.buffer) || bytes->size() != (round == 0 ? 64u : 100000u)) return 2;
      if (engine.release(f)) return 3;
    }
    return 0;
  });
  REQUIRE_FALSE(s.learner.allocate(1, 64));
  REQUIRE_FALSE(put(s.learner, 0, 64));
  CHECK(s.learner.allocate(0, 64).code == errc::bad_argument);
  CHECK(s.learner.allocate(2, 0).code == errc::bad_argument);
  CHECK(s.learner.allocate(2, u64{1} << 62).code == errc::bad_argument);
  REQUIRE(s.learner.acquire(1).ok());  // it is released by now
  REQUIRE_FALSE(s.learner.allocate(3, 100000));
  REQUIRE_FALSE(put(s.learner, 5, 100000));
  CHECK(s.engines[0].wait() == 0);
}

TEST_CASE("memory that is not there is refused before the update, not by a signal in its middle") {
  process asker([] {
    // Should the library ask the kernel for it all the same, this limit answers and not the end of the machine's
    // memory.
    const rlimit little{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &little);
    std::signal(SIGXFSZ, SIG_IGN);
    session s = begin(1, minute, [](shm_subscriber&, int) { return wait_for_the_end(); });
    const fw::error absurd = s.learner.allocate(2, u64{1} << 50), large = s.learner.allocate(1, 2 << 20);
    if (absurd.code != errc::capacity || absurd.got != fw::i64{1} << 51) return 1;
    return large.code == errc::capacity && large.message().find("2097152 bytes") != std::string::npos ? 0 : 2;
  });
  CHECK(asker.wait() == 0);
}

TEST_CASE("both ends refuse what the protocol does not allow their own caller") {
  session s = begin(1, minute, [](shm_subscriber& engine, int) {
    message m;
    frame never;
    never.buffer = 1;
    if (engine.bytes(never).error().code != errc::out_of_order) return 1;
    if (!expect(engine, message_kind::data, m)) return 2;
    frame f = *fw::decode_frame(m);
    frame wrong = f;
    wrong.used_bytes = 65;
    if (engine.bytes(wrong).error().code != errc::wrong_size || engine.bytes(wrong).error().expected != 64) return 3;
    wrong.used_bytes = ~u64{0};
    if (engine.bytes(wrong).error().code != errc::wrong_size) return 4;
    wrong = f;
    wrong.buffer += 2;  // the same slot, another buffer
    if (engine.bytes(wrong).error().code != errc::out_of_order || !engine.release(wrong)) return 5;
    if (engine.release(f)) return 6;
    if (engine.bytes(f).error().code != errc::out_of_order) return 7;  // the bytes are the learner's again
    if (engine.release(f).code != errc::out_of_order) return 8;
    return expect(engine, message_kind::bye, m) ? 0 : 9;
  });
  CHECK(s.learner.acquire(0).error().code == errc::out_of_order);
  CHECK(s.learner.publish({}).code == errc::out_of_order);
  REQUIRE_FALSE(s.learner.allocate(2, 64));
  CHECK(s.learner.publish({}).code == errc::out_of_order);
  REQUIRE(s.learner.acquire(0).ok());
  CHECK(s.learner.publish({fw::protocol_version, 0, 0, 0, 65}).code == errc::wrong_size);
  CHECK(s.learner.publish({fw::protocol_version, 2, 0, 0, 64}).code == errc::out_of_order);
  CHECK_FALSE(s.learner.publish({fw::protocol_version, 0, 0, 0, 64}));
  CHECK(s.learner.publish({fw::protocol_version, 0, 0, 0, 64}).code == errc::out_of_order);
  CHECK_FALSE(s.learner.broadcast({message_kind::bye, {}}));
  CHECK(s.engines[0].wait() == 0);
  CHECK(shm_publisher::listen("@x", 0).error().code == errc::bad_argument);
  CHECK(shm_publisher::listen("", 1).error().code == errc::bad_argument);
  CHECK(shm_publisher::listen("@" + std::string(107, 'x'), 1).error().code == errc::bad_argument);
  CHECK(shm_subscriber::connect("@x", -1).error().code == errc::bad_argument);
  CHECK(shm_publisher().acquire(0).error().code == errc::out_of_order);
  CHECK(shm_publisher().broadcast({}).code == errc::out_of_order);
  CHECK(shm_subscriber().reply({}).code == errc::out_of_order);
}

TEST_CASE("who does not come is counted, and who comes wrongly is turned away") {
  const std::string name = fresh_name();
  auto learner = shm_publisher::listen(name, 3, moment * 4);
  REQUIRE(learner.ok());
  process first([&] {
    auto one = shm_subscriber::connect(name, 1, minute);
    return one ? wait_for_the_end() : 1;
  });
  process second([&] {
    ::usleep(100000);
    auto again = shm_subscriber::connect(name, 1, minute);
    auto beyond = shm_subscriber::connect(name, 3, minute);
    return again.error().code == errc::peer_lost && beyond.error().code == errc::peer_lost ? 0 : 1;
  });
  const fw::error got = learner->accept();
  CHECK(got.code == errc::timeout);
  CHECK(got.got == 1);
  CHECK(got.expected == 3);
  CHECK(got.what.find(second.text()) != std::string::npos);
  CHECK(second.wait() == 0);
  CHECK(shm_subscriber::connect(fresh_name(), 0, moment).error().code == errc::timeout);
}

namespace {

/// A peer that says what it likes: a plain socket under the test's hands.
class raw_peer {
 public:
  explicit raw_peer(fw::detail::descriptor socket) : socket_(std::move(socket)) {}
  static raw_peer dial(const std::string& name) {
    const auto address = fw::detail::socket_address::of(name);
    fw::detail::descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), address->get(), address->size) == 0);
    return raw_peer(std::move(socket));
  }
  void say(std::initializer_list<int> bytes, int attached = -1) const {
    std::vector<char> text;
    for (const int one : bytes) text.push_back(static_cast<char>(one));
    iovec part{text.data(), text.size()};
    msghdr head{};
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    if (attached >= 0) {
      head.msg_control = room;
      head.msg_controllen = sizeof(room);
      cmsghdr* const rights = CMSG_FIRSTHDR(&head);
      rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &attached, sizeof(int));
    }
    REQUIRE(::sendmsg(socket_.get(), &head, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  void leave() { socket_.reset(); }

 private:
  fw::detail::descriptor socket_;
};

// magic, kind, zero, u64 size: written out by hand, so that a change of the wire is noticed.
#define FRAMED(kind_low, kind_high, size) 'F', 'P', '8', 'W', kind_low, kind_high, 0, 0, size, 0, 0, 0, 0, 0, 0, 0

struct hostile_row {
  const char* name;
  std::initializer_list<int> bytes;
  bool leaves;
  errc code;
  const char* says;
};

}  // namespace

TEST_CASE("an engine that talks nonsense is an error with its name, not a crash") {
  const hostile_row rows[] = {
      {"magic", {'F', 'P', '8', 'X', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false, errc::protocol_mismatch, "the magic"},
      {"kind 0", {FRAMED(0, 0, 0)}, false, errc::protocol_mismatch, "unknown kind 0"},
      {"kind 13", {FRAMED(13, 0, 0)}, false, errc::protocol_mismatch, "unknown kind 13"},
      {"zero field", {'F', 'P', '8', 'W', 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false, errc::protocol_mismatch, "kind"},
      {"huge", {'F', 'P', '8', 'W', 8, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0}, false, errc::capacity, "got 268435457"},
      {"huger",
       {'F', 'P', '8', 'W', 8, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255},
       false,
       errc::capacity,
       "bytes"},
      {"cut in the header", {'F', 'P', '8'}, true, errc::peer_lost, "is gone in the middle of a message"},
      {"cut in the payload", {FRAMED(8, 0, 9), 1, 2}, true, errc::peer_lost, "is gone in the middle of a message"},
      {"claims 256 MiB and goes",
       {'F', 'P', '8', 'W', 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0},
       true,
       errc::peer_lost,
       "middle"},
      {"a release of nothing", {FRAMED(6, 0, 4), 0, 0, 0, 0}, false, errc::out_of_order, "released buffer 0"},
      {"a release of no size", {FRAMED(6, 0, 3), 0, 0, 0}, false, errc::wrong_size, "got 3, expected 4"},
      {"slots", {FRAMED(3, 0xFF, 0)}, false, errc::protocol_mismatch, "only a learner sends"},
      {"joins again",
       {FRAMED(1, 0xFF, 8), 1, 0, 0, 0, 0, 0, 0, 0},
       false,
       errc::protocol_mismatch,
       "only a learner sends"},
  };
  for (const hostile_row& row : rows) {
    CAPTURE(row.name);
    const std::string name = fresh_name();
    auto learner = shm_publisher::listen(name, 1, minute);
    REQUIRE(learner.ok());
    raw_peer engine = raw_peer::dial(name);
    engine.say({FRAMED(1, 0xFF, 8), 1, 0, 0, 0, 0, 0, 0, 0});
    REQUIRE_FALSE(learner->accept());
    REQUIRE_FALSE(learner->allocate(2, 64));
    engine.say(row.bytes);
    if (row.leaves) engine.leave();
    message m;
    int from = -1;
    const fw::error got = learner->receive(m, from);
    CHECK(got.code == row.code);
    CHECK(got.message().find(row.says) != std::string::npos);
    CHECK(got.what.starts_with("engine 0 (pid " + std::to_string(::getpid()) + ") "));
  }
}

TEST_CASE("strangers at the door are turned away and do not keep the engines out") {
  const std::string name = fresh_name();
  auto learner = shm_publisher::listen(name, 2, minute);
  REQUIRE(learner.ok());
  const raw_peer silent = raw_peer::dial(name), garbage = raw_peer::dial(name), early = raw_peer::dial(name);
  garbage.say({'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1', '.', '1', '\r', '\n', '\r', '\n'});
  early.say({FRAMED(8, 0, 0)});
  const raw_peer newer = raw_peer::dial(name);
  newer.say({FRAMED(1, 0xFF, 8), 2, 0, 0, 0, 0, 0, 0, 0});  // another protocol version
  process zero([&] { return shm_subscriber::connect(name, 0, minute) ? wait_for_the_end() : 1; });
  process one([&] { return shm_subscriber::connect(name, 1, minute) ? wait_for_the_end() : 1; });
  REQUIRE_FALSE(learner->accept());
  CHECK(learner->name_of(0) == "engine 0 " + zero.text());
  CHECK(learner->name_of(1) == "engine 1 " + one.text());
}

TEST_CASE("a learner that talks nonsense is an error with its name, not a crash") {
  const fw::detail::descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), 8192) == 0);
  const fw::detail::descriptor sealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(sealed.get(), 8192) == 0);
  REQUIRE(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  struct row {
    const char* name;
    std::initializer_list<int> bytes;
    int attached;
    errc code;
    const char* says;
  };
  const row rows[] = {
      {"no memory",
       {FRAMED(3, 0xFF, 16), 2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0},
       -1,
       errc::unexpected,
       "sealed"},
      {"memory that can shrink",
       {FRAMED(3, 0xFF, 16), 2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0},
       unsealed.get(),
       errc::unexpected,
       "sealed"},
      {"less memory than slots",
       {FRAMED(3, 0xFF, 16), 3, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0},
       sealed.get(),
       errc::wrong_size,
       "got 8192, expected 12288"},
      {"no slots",
       {FRAMED(3, 0xFF, 16), 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0},
       sealed.get(),
       errc::bad_argument,
       "got 0"},
      {"endless slots",
       {FRAMED(3, 0xFF, 16), 255, 255, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255},
       sealed.get(),
       errc::bad_argument,
       "62 bits"},
      {"slots of another form", {FRAMED(3, 0xFF, 1), 2}, sealed.get(), errc::wrong_size, "got 1, expected 16"},
      {"a frame without slots",
       {FRAMED(5, 0, 32),
        1,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0},
       -1,
       errc::out_of_order,
       "before it made"},
      {"a short frame", {FRAMED(5, 0, 1), 1}, -1, errc::wrong_size, "got 1, expected 32"},
      {"welcome twice", {FRAMED(2, 0xFF, 4), 1, 0, 0, 0}, -1, errc::protocol_mismatch, "only an engine sends"},
  };
  for (const row& one : rows) {
    CAPTURE(one.name);
    const std::string name = fresh_name();
    const auto address = fw::detail::socket_address::of(name);
    const fw::detail::descriptor door(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(door.get(), address->get(), address->size) == 0);
    REQUIRE(::listen(door.get(), 1) == 0);
    fw::error got;
    std::thread engine([&] {
      auto connected = shm_subscriber::connect(name, 0, minute);
      message m;
      got = connected ? connected->receive(m) : connected.error();
    });
    const raw_peer learner(fw::detail::descriptor(::accept(door.get(), nullptr, nullptr)));
    learner.say({FRAMED(2, 0xFF, 4), 1, 0, 0, 0});
    learner.say(one.bytes, one.attached);
    engine.join();
    CHECK(got.code == one.code);
    CHECK(got.message().find(one.says) != std::string::npos);
    CHECK(got.what.starts_with("learner (pid " + std::to_string(::getpid()) + ") "));
  }
}

TEST_CASE("threads of one process can be learner and engines") {
  const std::string name = fresh_name();
  auto learner = shm_publisher::listen(name, 3, minute);
  REQUIRE(learner.ok());
  std::vector<int> results(3, -1);
  std::vector<std::thread> engines;
  for (int e = 0; e < 3; ++e)
    engines.emplace_back([&, e] {
      auto engine = shm_subscriber::connect(name, e, minute);
      results[static_cast<std::size_t>(e)] = [&] {
        message m;
        for (u32 b = 0; b < 50; ++b) {
          if (!engine || !expect(*engine, message_kind::data, m)) return 1;
          const frame f = *fw::decode_frame(m);
          if (f.buffer != b || !holds(*engine->bytes(f), b) || engine->release(f)) return 2;
        }
        return 0;
      }();
    });
  CHECK_FALSE(learner->accept());
  CHECK_FALSE(learner->allocate(2, 3000));
  for (u32 b = 0; b < 50; ++b) CHECK_FALSE(put(*learner, b, 3000));
  for (std::thread& engine : engines) engine.join();
  CHECK(results == std::vector<int>(3, 0));
}
