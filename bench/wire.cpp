// SPDX-License-Identifier: Apache-2.0
// Rows of the wire floor: what planning costs, and updates over shared memory beside plain copies of the same bytes.
#include <unistd.h>

#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/host_store.hpp>
#include <fp8wire/wire/sender.hpp>
#include <atomic>
#include <thread>

#include "common.hpp"

namespace bench {
namespace {

using namespace fp8wire;
using wire_type = wire_format<presets::vllm_block::recipe, namings::vllm>;

/// A mixture-of-experts model: three weights an expert, gate and up in one unit; two tensors each.
manifest experts(i64 tensors) {
  manifest made;
  for (i64 i = 0; made.entries().size() < static_cast<std::size_t>(tensors); ++i) {
    const std::string base = "model.layers." + std::to_string(i / 128) + ".mlp.experts." + std::to_string(i % 128);
    made.add<wire_type>(base + ".gate_proj.weight", {768, 2048}, 1e-10f, base + ".gate_up_proj");
    made.add<wire_type>(base + ".up_proj.weight", {768, 2048}, 1e-10f, base + ".gate_up_proj");
    made.add<wire_type>(base + ".down_proj.weight", {2048, 768});
  }
  return made;
}

/// Counter ns_per_tensor, and of_10k: how many times the cost of 10 000 tensors (12 is the promise at 100 000).
void plan_row(benchmark::State& state, i64 tensors, bool from_names) {
  planner scratch;
  plan wire;
  const manifest small = experts(10000), large = experts(tensors);
  const auto cost = [&](const manifest& of, i64 count) {
    std::vector<double> times;
    for (int i = 0; i < repetitions(); ++i)
      times.push_back(seconds([&] {
        if (from_names) benchmark::DoNotOptimize(experts(count).hash());
        else benchmark::DoNotOptimize(scratch.make(of, {}, wire));
      }));
    return median(times);
  };
  for (auto _ : state) {
    const double base = cost(small, 10000), all = cost(large, tensors);
    state.SetIterationTime(all);
    state.counters["ns_per_tensor"] = all * 1e9 / static_cast<double>(large.entries().size());
    state.counters["of_10k"] = all / base;
  }
}

/// The same traffic and nothing else: one thread copies into two slots in turn, another out of them.
void copy_through_slots(const buffer& from, const buffer& slots, const buffer& to, i64 bytes, i64 slot_bytes) {
  const i64 count = (bytes + slot_bytes - 1) / slot_bytes;
  std::atomic<i64> written{0}, read{0};
  const auto size = [&](i64 i) { return static_cast<std::size_t>(std::min(slot_bytes, bytes - i * slot_bytes)); };
  std::thread reader([&] {
    for (i64 i = 0; i < count; ++i) {
      while (written.load() <= i) std::this_thread::yield();
      std::memcpy(to.as() + i * slot_bytes, slots.as() + i % 2 * slot_bytes, size(i));
      read.store(i + 1);
    }
  });
  for (i64 i = 0; i < count; ++i) {
    while (read.load() + 2 <= i) std::this_thread::yield();
    std::memcpy(slots.as() + i % 2 * slot_bytes, from.as() + i * slot_bytes, size(i));
    written.store(i + 1);
  }
  reader.join();
}

/// Runs `work`, a memcpy of the same bytes and, where there is one, a limit in turn; of_copy and of_limit are the
/// medians of the ratios of their speeds.
void against_copy(benchmark::State& state, const buffer& from, const buffer& to, i64 bytes,
                  const std::function<void()>& work, const std::function<void()>& limit = {}) {
  std::vector<double> of_copy, of_limit, works, copies;
  work();
  for (auto _ : state) {
    for (int i = 0; i < repetitions(); ++i) {
      copies.push_back(seconds([&] { std::memcpy(to.as(), from.as(), static_cast<std::size_t>(bytes)); }));
      works.push_back(seconds(work));
      of_copy.push_back(copies.back() / works.back());
      if (limit) of_limit.push_back(seconds(limit) / works.back());
    }
    state.SetIterationTime(median(works));
  }
  state.counters["of_copy"] = median(of_copy);
  if (limit) state.counters["of_limit"] = median(of_limit);
  state.counters["GB/s"] = static_cast<double>(bytes) / median(works) / 1e9;
  state.counters["copy_GB/s"] = static_cast<double>(bytes) / median(copies) / 1e9;
}

manifest kept_model(i64 bytes) {
  manifest made;
  for (i64 i = 0; i < bytes >> 22; ++i) made.keep("tensor." + std::to_string(i), dtype::uint8, {i64{1} << 22});
  return made;
}

/// Whole updates from a learner to one engine, every check on, over two slots of 16 MiB. In one process, two threads.
void update_row(benchmark::State& state, commit_mode mode) {
  const i64 bytes = input_bytes() >> 22 << 22;
  constexpr i64 slot_bytes = i64{16} << 20;
  buffer from(bytes), to(bytes), slots(2 * slot_bytes);
  std::memset(from.as(), 1, static_cast<std::size_t>(bytes));
  const manifest tensors = kept_model(bytes);
  const plan wire = make_plan(tensors, {.capacity_bytes = u64{slot_bytes}}).value();
  const std::string name = "@fp8wire-bench-" + std::to_string(::getpid()) + std::string(name_of(mode));
  auto link = shm_publisher::listen(name, 1).value();
  std::thread engine_thread([&] {
    auto side = shm_subscriber::connect(name, 0).value();
    host_store<> store(tensors, wire, mode);
    receiver<host_store<>> target(tensors, wire, store);
    engine<shm_subscriber, receiver<host_store<>>> loop(side, target);
    for (engine_event event{}; event != engine_event::closed && event != engine_event::lost;)
      static_cast<void>(loop.step({}, event));
  });
  if (link.accept() || link.allocate(wire.options().slots, wire.slot_bytes())) std::abort();
  {
    sender<wire_type, shm_publisher> learner(tensors, wire, link);
    u64 version = 0;
    against_copy(
        state, from, to, bytes,
        [&] {
          error wrong = learner.begin(++version);
          for (std::size_t i = 0; i < tensors.items().size() && !wrong; ++i)
            wrong = learner.keep(tensors.item_name(i), from.as() + (i << 22), std::size_t{1} << 22, {});
          if (!wrong) wrong = learner.finish({});
          if (wrong) std::abort();
        },
        [&] { copy_through_slots(from, slots, to, bytes, slot_bytes); });
  }
  static_cast<void>(link.broadcast({message_kind::bye, {}}));
  engine_thread.join();
}

}  // namespace

void add_wire() {
  for (const i64 tensors : {10000, 100000}) {
    const std::string size = std::to_string(tensors / 1000) + "k";
    add("wire/plan/" + size, [=](benchmark::State& state) { plan_row(state, tensors, false); });
    add("wire/manifest/" + size, [=](benchmark::State& state) { plan_row(state, tensors, true); });
  }
  add("wire/copy_and_checksum", [](benchmark::State& state) {
    buffer from(input_bytes()), to(input_bytes());
    against_copy(state, from, to, input_bytes(), [&] {
      benchmark::DoNotOptimize(copy_and_checksum(to.as(), from.as(), static_cast<std::size_t>(input_bytes())));
    });
  });
  add("wire/update/shm/staged", [](benchmark::State& state) { update_row(state, commit_mode::staged); });
  add("wire/update/shm/in_place", [](benchmark::State& state) { update_row(state, commit_mode::in_place); });
}

}  // namespace bench
