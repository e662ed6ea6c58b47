// SPDX-License-Identifier: Apache-2.0
// A learner whose parameters live in FP8: several ranks own parts of the FP32 masters, start them exactly, step them,
// refresh the FP8 weights and send them to an engine, version after version. Ranks are threads, or MPI processes where
// Meson found an MPI. Usage: persistent [RANKS [STEPS [RATE]]], or mpirun persistent_mpi [STEPS [RATE]].
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/model/configuration.hpp>
#include <fp8wire/model/masters.hpp>
#include <fp8wire/model/shards.hpp>
#include <fp8wire/model/wire_format.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/shard/refresh.hpp>
#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/host_store.hpp>
#include <fp8wire/wire/sender.hpp>
#ifdef PERSISTENT_OVER_MPI
#include <fp8wire/interop/mpi.hpp>
#else
#include <fp8wire/interop/thread_group.hpp>
#endif

namespace {

namespace fw = fp8wire;

// The choice that this program makes once, checked where it is made: without `gather` it would not compile.
constexpr fw::configuration chosen = [] {
  fw::configuration made;
  made.arch = 90;
  made.policy = {.present = true,
                 .recipe = fw::fp8_recipe::blockwise,
                 .scale = fw::scale_type::fp32,
                 .persistent = true,
                 .gather = true};
  made.sync = fw::sync_mode::blockwise;
  made.fp32_scales = fw::toggle::on;
  made.deep_gemm_e8m0 = fw::toggle::off;
  return made;
}();
static_assert(fw::checked_configuration<chosen>::value.policy.persistent);

// Masters are rounded to BF16, the model's dtype, before they become FP8: the bytes of a BF16 learner's weights.
constexpr fw::numerics through_bf16{.f32_through_bf16 = true};
using recipe = fw::with_numerics<fw::presets::te_block::recipe, through_bf16>;
using wire = fw::wire_format<recipe, fw::namings::vllm>;

struct settings {
  int ranks = 3, steps = 4;
  float rate = 1e-6f;
};

/// Uniform in [-1, 1), the same at every rank: splitmix64 over a counter.
float uniform(fw::u64 tensor, fw::u64 step, fw::u64 element) {
  fw::u64 state = tensor * 0xD1B54A32D192ED03u + step * 0x8CB92BA72F3D8DD7u + element * 0x9E3779B97F4A7C15u;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  state = (state ^ state >> 27) * 0x94D049BB133111EBu;
  return static_cast<float>((state ^ state >> 31) >> 40) * 0x1p-23f - 1.0f;
}

/// One parameter at one rank. Codes and scales are whole at every rank, masters are not.
struct parameter {
  parameter(std::string weight, fw::i64 rows, fw::i64 cols, fw::u64 seed, int rank, int ranks)
      : name(std::move(weight)), of{1, rows, cols}, number(seed) {
    const fw::i64 elements = rows * cols;
    for (fw::i64 r = 0; r < ranks; ++r)  // as distributed optimizers cut: anywhere in a block
      ranges.push_back({elements * r / ranks, elements * (r + 1) / ranks - elements * r / ranks});
    masters.resize(static_cast<std::size_t>(ranges[static_cast<std::size_t>(rank)].length));
    codes.resize(static_cast<std::size_t>(elements));
    scales.resize(static_cast<std::size_t>(fp8().blocks()));
    amaxes.resize(scales.size());
    operands.resize(scales.size());
  }
  fw::persistent_parameter<recipe> fp8() { return {of, codes.data(), scales.data(), amaxes.data(), operands.data()}; }
  /// The unquantized tensor, which stands for a checkpoint's bytes: alive while masters are copied from it.
  std::vector<fw::bf16> checkpoint() const {
    std::vector<fw::bf16> made(codes.size());
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = fw::to_bf16(0.05f * uniform(number, 0, i));
    return made;
  }
  std::string name;
  fw::matrix_extents of;
  fw::u64 number;
  std::vector<fw::flat_range> ranges;
  std::vector<float> masters, before;
  std::vector<fw::u8> codes;
  std::vector<float> scales, operands;
  std::vector<fw::u32> amaxes;
};

std::vector<parameter> model(int rank, int ranks) {
  std::vector<parameter> made;
  made.emplace_back("layers.0.mlp.gate_proj.weight", 320, 384, 1, rank, ranks);
  made.emplace_back("layers.0.mlp.up_proj.weight", 320, 384, 2, rank, ranks);
  made.emplace_back("layers.0.mlp.down_proj.weight", 384, 320, 3, rank, ranks);
  return made;
}

fw::manifest manifest_of(const std::vector<parameter>& parameters, fw::error& wrong) {
  fw::manifest made;
  for (const parameter& one : parameters)
    if (!wrong) wrong = made.add<wire>(one.name, {one.of.rows, one.of.cols}, 0, one.name);
  return made;
}

/// Masters from the unquantized bytes, all of them before the first step.
fw::error start(std::vector<parameter>& parameters, int rank, fw::start_report& cost) {
  std::vector<fw::master_shard> shards;
  for (parameter& one : parameters) {
    const fw::i64 elements = one.of.rows * one.of.cols;
    if (fw::error wrong = fw::check_shards(one.name, elements, one.ranges)) return wrong;
    shards.push_back({one.name,
                      elements,
                      one.ranges[static_cast<std::size_t>(rank)],
                      one.masters,
                      {},
                      elements + static_cast<fw::i64>(one.scales.size() * sizeof(float))});
  }
  fw::exact_start exact(std::move(shards));
  for (const parameter& one : parameters) {
    const std::vector<fw::bf16> unquantized = one.checkpoint();
    if (fw::error wrong = exact.copy(one.name, fw::dtype::bf16, std::as_bytes(std::span(unquantized)))) return wrong;
  }
  cost = exact.report();
  return exact.finish();
}

/// The engine: serves what comes until the learner says bye, and leaves checksums of the last version.
struct engine {
  void operator()() {
    auto link = fw::shm_subscriber::connect(name, 0);
    fw::agreement agreed;
    std::vector<fw::error> reasons;
    ended = link ? fw::join<fw::json_text>(*link, expected, {}, agreed, reasons) : link.error();
    if (ended) return;
    fw::host_store<> store(agreed.tensors, agreed.wire, fw::commit_mode::staged);
    fw::receiver<fw::host_store<>> receiver(agreed.tensors, agreed.wire, store);
    fw::engine<fw::shm_subscriber, fw::receiver<fw::host_store<>>> loop(*link, receiver);
    for (fw::engine_event event{}; event != fw::engine_event::closed && event != fw::engine_event::lost;) {
      ended = loop.step({}, event);
      if (event != fw::engine_event::committed) continue;
      serving = receiver.serving();
      sums.clear();
      for (std::size_t e = 0; e < agreed.tensors.entries().size(); ++e)
        sums.push_back(fw::checksum(store.bytes(e).data(), store.bytes(e).size()));
    }
  }
  std::string name;
  fw::manifest expected;
  fw::error ended = {};
  fw::u64 serving = 0;
  std::vector<fw::u64> sums = {};
};

/// What only rank 0 has: the engine's link.
class publisher {
 public:
  fw::error open(const std::vector<parameter>& parameters) {
    fw::error wrong;
    const fw::manifest tensors = manifest_of(parameters, wrong);
    const std::string name = "@fp8wire-persistent-" + std::to_string(::getpid());
    auto link = fw::shm_publisher::listen(name, 1);
    if (!wrong && !link) wrong = link.error();
    if (wrong) return wrong;
    link_.emplace(std::move(*link));
    engine_.name = name;
    engine_.expected = tensors;
    thread_ = std::thread(std::ref(engine_));
    std::vector<fw::error> reasons;
    wrong = link_->accept();
    if (!wrong) wrong = fw::offer<fw::json_text>(*link_, tensors, {}, "", agreed_, reasons);
    if (!wrong) wrong = link_->allocate(agreed_.wire.options().slots, agreed_.wire.slot_bytes());
    if (!wrong) sender_.emplace(agreed_.tensors, agreed_.wire, *link_);
    return wrong;
  }
  /// Codes and scales go out as they are: nothing is quantized again.
  fw::error send(std::vector<parameter>& parameters, fw::u64 version) {
    fw::error wrong = sender_->begin(version);
    for (parameter& one : parameters)
      if (!wrong) wrong = sender_->forward(one.name, one.fp8().pair(), {});
    if (wrong) return sender_->abort(wrong), wrong;
    return sender_->finish({});
  }
  /// Whether the engine ended well, serving exactly what the learner holds.
  fw::error close(const std::vector<parameter>& parameters, fw::u64 version) {
    fw::error wrong = link_->broadcast({fw::message_kind::bye, {}});
    thread_.join();
    if (!wrong) wrong = engine_.ended;
    if (wrong) return wrong;
    std::vector<fw::u64> sums;
    for (const parameter& one : parameters) {
      sums.push_back(fw::checksum(reinterpret_cast<const std::byte*>(one.codes.data()), one.codes.size()));
      sums.push_back(
          fw::checksum(reinterpret_cast<const std::byte*>(one.scales.data()), one.scales.size() * sizeof(float)));
    }
    if (engine_.serving != version || engine_.sums != sums)
      return fw::make_error(fw::errc::checksum, "engine", "serves something else; its version",
                            static_cast<fw::i64>(engine_.serving), static_cast<fw::i64>(version));
    std::printf("the engine serves version %llu, the bytes that the learner holds\n",
                static_cast<unsigned long long>(version));
    return {};
  }
  ~publisher() {
    sender_.reset();
    link_.reset();  // an engine that still waits notices
    if (thread_.joinable()) thread_.join();
  }

 private:
  engine engine_;
  std::thread thread_;
  std::optional<fw::shm_publisher> link_;
  fw::agreement agreed_;
  std::optional<fw::sender<wire, fw::shm_publisher>> sender_;
};

/// Whether any rank failed; all ranks get the same answer and leave together.
template <fw::communicator Communicator> bool any_failed(Communicator& with, const fw::error& wrong) {
  if (wrong) std::fprintf(stderr, "persistent: rank %d: %s\n", static_cast<int>(with.rank()), wrong.message().c_str());
  fw::u32 failed = wrong ? 1 : 0;
  with.all_max(&failed, 1);
  return failed != 0;
}

/// Everybody's counters at rank 0: masters and codes are each rank's own, scales are the same everywhere.
template <fw::communicator Communicator> fw::refresh_counts sum(Communicator& with, const fw::refresh_counts& mine) {
  std::vector<fw::refresh_counts> all(static_cast<std::size_t>(with.size()));
  std::vector<fw::flat_range> ranges;
  for (fw::i64 rank = 0; rank < with.size(); ++rank)
    ranges.push_back({rank * static_cast<fw::i64>(sizeof(mine)), static_cast<fw::i64>(sizeof(mine))});
  all[static_cast<std::size_t>(with.rank())] = mine;
  with.all_gather(reinterpret_cast<fw::u8*>(all.data()), ranges);
  fw::refresh_counts total = mine;
  total.masters = total.masters_changed = total.codes_changed = 0;
  for (const fw::refresh_counts& one : all) {
    total.masters += one.masters;
    total.masters_changed += one.masters_changed;
    total.codes_changed += one.codes_changed;
  }
  return total;
}

template <fw::communicator Communicator> int train(Communicator& with, const settings& of) {
  const int rank = with.rank();
  const bool leads = rank == 0;
  std::vector<parameter> parameters = model(rank, with.size());
  fw::start_report cost;
  if (any_failed(with, start(parameters, rank, cost))) return 1;
  publisher engine_link;
  if (any_failed(with, leads ? engine_link.open(parameters) : fw::error{})) return 1;
  if (leads)
    std::printf("%lld parameters started exactly; rank 0 keeps %lld bytes instead of %lld, and %lld of masters\n",
                static_cast<long long>(cost.parameters), static_cast<long long>(cost.fp8_bytes),
                static_cast<long long>(cost.unquantized_bytes), static_cast<long long>(cost.master_bytes));

  for (int step = 0; step <= of.steps; ++step) {  // version 1 is the checkpoint
    fw::refresh_counts counts;
    for (parameter& one : parameters) {
      one.before = one.masters;
      const fw::u64 first = static_cast<fw::u64>(one.ranges[static_cast<std::size_t>(rank)].start);
      for (std::size_t i = 0; step > 0 && i < one.masters.size(); ++i)
        one.masters[i] += of.rate * uniform(one.number, static_cast<fw::u64>(step), first + i);
      const fw::refresh_counts now =
          fw::refresh<recipe>(one.fp8(), one.ranges, one.masters.data(), one.before.data(), with);
      counts += now;
    }
    const fw::u64 version = static_cast<fw::u64>(step) + 1;
    if (any_failed(with, leads ? engine_link.send(parameters, version) : fw::error{})) return 1;
    const fw::refresh_counts total = sum(with, counts);
    if (leads)
      std::printf("version %llu: %lld of %lld masters changed, %lld codes, %lld of %lld scales, %lld blocks moved\n",
                  static_cast<unsigned long long>(version), static_cast<long long>(total.masters_changed),
                  static_cast<long long>(total.masters), static_cast<long long>(total.codes_changed),
                  static_cast<long long>(total.scales_changed), static_cast<long long>(total.scales),
                  static_cast<long long>(total.blocks_moved));
  }
  const fw::u64 last = static_cast<fw::u64>(of.steps) + 1;
  return any_failed(with, leads ? engine_link.close(parameters, last) : fw::error{}) ? 1 : 0;
}

bool number(const char* text, double least, double most, double& out) {
  char* end = nullptr;
  out = std::strtod(text, &end);
  return end != text && *end == '\0' && out >= least && out <= most;
}

}  // namespace

int main(int count, char** arguments) {
  settings of;
  std::vector<double> numbers(static_cast<std::size_t>((std::max)(count - 1, 0)));
  bool understood = true;
#ifdef PERSISTENT_OVER_MPI
  constexpr std::size_t first = 1;  // mpirun says how many ranks there are
#else
  constexpr std::size_t first = 0;
#endif
  constexpr double most[] = {64, 1e6, 1};
  for (std::size_t i = 0; i < numbers.size() && understood; ++i)
    understood = first + i < 3 && number(arguments[i + 1], first + i == 0 ? 1 : 0, most[first + i], numbers[i]);
  if (!understood) {
    std::fprintf(stderr, "persistent: error: usage: persistent%s\n",
                 first == 0 ? " [RANKS 1..64 [STEPS [RATE 0..1]]]" : "_mpi [STEPS [RATE 0..1]]");
    return 2;
  }
  if (first == 0 && !numbers.empty()) of.ranks = static_cast<int>(numbers[0]);
  if (numbers.size() > 1 - first) of.steps = static_cast<int>(numbers[1 - first]);
  if (numbers.size() > 2 - first) of.rate = static_cast<float>(numbers[2 - first]);

#ifdef PERSISTENT_OVER_MPI
  int provided = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
  int code = 0;
  {
    fw::mpi_communicator with;
    code = train(with, of);
  }
  MPI_Finalize();
  return code;
#else
  fw::thread_group group(of.ranks);
  std::vector<int> codes(static_cast<std::size_t>(of.ranks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < of.ranks; ++rank)
    ranks.emplace_back([&, rank] {
      fw::thread_group::member with = group.join(rank);
      codes[static_cast<std::size_t>(rank)] = train(with, of);
    });
  for (std::thread& one : ranks) one.join();
  return *std::max_element(codes.begin(), codes.end());
#endif
}
