// SPDX-License-Identifier: Apache-2.0
// Learners and engines killed at random moments of updates between processes: what an engine serves then is one whole
// version. FP8WIRE_KILLS: how many (default 200); FP8WIRE_KILL_SEED: of the moments.
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>

#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/host_store.hpp>
#include <fp8wire/wire/sender.hpp>

namespace fw = fp8wire;
using fw::u64;

namespace {

using wire_format = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm>;
constexpr int engines = 2;
constexpr u64 versions = 12;  // more than a trial lives to see

// What the processes of one trial say to the one that counts; it outlives them all.
struct page {
  std::atomic<u64> serving[engines];  // committed and found whole
  std::atomic<u64> mixed;  // versions that were served and were not whole
  std::atomic<u64> committed;  // by the learner's own account
};

struct update {
  fw::manifest tensors;
  fw::plan wire;
  update() {
    for (const char* name : {"a.weight", "b.weight", "c.weight"})
      REQUIRE(!tensors.add<wire_format>(name, {200, 130}, 1e-10f, name[0] == 'c' ? "" : "ab"));
    REQUIRE(!tensors.keep("norm.weight", fw::dtype::bf16, {4000}));
    wire = fw::make_plan(tensors, {32768, 64, 2, false, false}).value();
  }
  // Every byte depends on the version: a mix of two is neither.
  std::vector<std::byte> bytes(std::size_t entry, u64 version) const {
    const fw::manifest_entry& one = tensors.entries()[entry];
    std::vector<std::byte> made(static_cast<std::size_t>(one.bytes));
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = static_cast<std::byte>((i * 31 + entry * 7 + version * 13) % 120);
    if (one.what == fw::role::scales)
      for (std::size_t i = 0; i + 4 <= made.size(); i += 4) {
        const float scale = static_cast<float>(version) + 0.25f * static_cast<float>(i);
        std::memcpy(made.data() + i, &scale, 4);
      }
    return made;
  }
};

bool is_whole(const update& all, const fw::host_store<>& store, u64 version) {
  for (std::size_t e = 0; e < all.tensors.entries().size(); ++e) {
    const auto wanted = all.bytes(e, version);
    if (std::memcmp(store.bytes(e).data(), wanted.data(), wanted.size()) != 0) return false;
  }
  return true;
}

int engine(const update& all, int number, const std::string& name, fw::commit_mode mode,
           std::chrono::milliseconds patience, page& said) {
  auto link = fw::shm_subscriber::connect(name, number, patience);
  if (!link) return 0;
  fw::host_store<> store(all.tensors, all.wire, mode);
  fw::receiver<fw::host_store<>> receiver(all.tensors, all.wire, store);
  fw::engine<fw::shm_subscriber, fw::receiver<fw::host_store<>>> loop(*link, receiver);
  for (;;) {
    fw::engine_event event{};
    static_cast<void>(loop.step({}, event));
    const bool ends =
        event == fw::engine_event::closed || event == fw::engine_event::lost || event == fw::engine_event::idle;
    if (event != fw::engine_event::committed && !ends) continue;
    // What it serves now, also after somebody else died in the middle of an update.
    if (receiver.serving() != 0 && !is_whole(all, store, receiver.serving())) ++said.mixed;
    said.serving[number] = receiver.serving();
    if (ends) return 0;
  }
}

int learner(const update& all, fw::shm_publisher link, page& said) {
  if (link.accept() || link.allocate(all.wire.options().slots, all.wire.slot_bytes())) return 0;
  fw::sender<wire_format, fw::shm_publisher> sender(all.tensors, all.wire, link);
  for (u64 version = 1; version <= versions; ++version) {
    fw::error wrong = sender.begin(version);
    for (std::size_t item = 0; item < all.tensors.items().size() && !wrong; ++item) {
      const std::size_t entry = all.tensors.items()[item].first_entry;
      const auto codes = all.bytes(entry, version);
      if (all.tensors.items()[item].encoding < 0) {
        wrong = sender.keep(all.tensors.item_name(item), codes.data(), codes.size(), {});
        continue;
      }
      const auto bytes = all.bytes(entry + 1, version);
      std::vector<float> scales(bytes.size() / 4);
      std::memcpy(scales.data(), bytes.data(), bytes.size());
      wrong = sender.forward(all.tensors.item_name(item),
                             {fw::dense(reinterpret_cast<const fw::u8*>(codes.data()), 200, 130),
                              fw::dense<const float>(scales.data(), 2, 2)},
                             {});
    }
    if (wrong || sender.finish({})) return 0;
    said.committed = version;
  }
  static_cast<void>(link.broadcast({fw::message_kind::bye, {}}));
  return 0;
}

unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

template <class Body> pid_t start(const Body& body) {
  const pid_t parent = ::getpid(), child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::_exit(body());
}

}  // namespace

TEST_CASE("kill -9 at any moment leaves every engine with one whole version, or with none") {
  const update all;
  const unsigned long kills = number_from("FP8WIRE_KILLS", 200), seed = number_from("FP8WIRE_KILL_SEED", 1);
  auto* said =
      static_cast<page*>(::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(said != MAP_FAILED);
  std::mt19937 random(static_cast<unsigned>(seed));
  unsigned long within = 0, behind = 0;
  double whole = 0.004;  // seconds of an undisturbed run, learned
  for (unsigned long trial = 0; trial < kills; ++trial) {
    new (said) page();
    const fw::commit_mode mode = random() % 2 == 0 ? fw::commit_mode::staged : fw::commit_mode::in_place;
    const std::string name = "@fp8wire-kill-" + std::to_string(::getpid()) + "-" + std::to_string(trial);
    // One trial in 32 is left alone and says how long the others may take.
    const bool alone = trial % 32 == 0;
    // Who is killed before it joined is waited for so long.
    const std::chrono::milliseconds patience(alone ? 20000 : 100);
    auto door = fw::shm_publisher::listen(name, engines, patience);
    REQUIRE(door);
    pid_t members[engines + 1];
    members[engines] = start([&] { return learner(all, std::move(*door), *said); });
    for (int e = 0; e < engines; ++e)
      members[e] = start([&] {
        door = fw::make_error(fw::errc::aborted, "", "the door is the learner's");
        return engine(all, e, name, mode, patience, *said);
      });
    door = fw::make_error(fw::errc::aborted, "", "the door is the learner's");
    const std::size_t victim = random() % (engines + 1);
    const auto began = std::chrono::steady_clock::now();
    if (!alone) {
      ::usleep(static_cast<useconds_t>(whole * 1e6 * static_cast<double>(random() % 1000) / 1000.0));
      ::kill(members[victim], SIGKILL);
    }
    for (const pid_t member : members) {
      int status = 0;
      REQUIRE(::waitpid(member, &status, 0) == member);
      CHECK((WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0));
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    CHECK(took < 5);  // nobody waits for the dead
    if (alone) {
      whole = took;
      CHECK(said->committed == versions);
    }
    CAPTURE(trial);
    CHECK(said->mixed == 0);
    for (int e = 0; e < engines; ++e) {
      const u64 serving = said->serving[e];
      // All voted before anybody committed: no engine is ahead of the learner's update, and none is two behind.
      CHECK(serving <= said->committed + 1);
      if (alone) CHECK(serving == versions);
    }
    within += said->committed > 0 && said->committed < versions ? 1u : 0u;
    behind += said->committed == versions ? 1u : 0u;
  }
  MESSAGE(kills << " trials, " << within << " ended between the first and the last commit, " << behind << " after it");
  CHECK(within > kills / 8);
  ::munmap(said, sizeof(page));
}
