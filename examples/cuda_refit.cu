// SPDX-License-Identifier: Apache-2.0
// A weight update that never leaves the GPU: BF16 weights -> one grouped launch a buffer, straight into a slot of
// device memory -> the engine's loader copies, sums and votes -> it serves the new version, or the old one.
// Learner and engine share a process here; with CUDA IPC the slots would be another process's, and nothing else would
// change. Build:
// nvcc -std=c++20 -Iinclude -arch=native -o cuda_refit examples/cuda_refit.cu
#include <cstdio>
#include <deque>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fp8wire/cuda/backend.cuh>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/sender.hpp>

using namespace fp8wire;
using recipe_type = presets::vllm_block::recipe;
using wire = wire_format<recipe_type, namings::vllm>;

void expect(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}
void expect(const error& wrong) {
  if (wrong) throw std::runtime_error(wrong.message());
}

/// Device memory (or pinned memory) that is freed with its owner.
class memory {
 public:
  explicit memory(std::size_t bytes, bool pinned = false) : pinned_(pinned) {
    expect(pinned ? cudaMallocHost(&data_, bytes) : cudaMalloc(&data_, bytes));
  }
  memory(memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), pinned_(other.pinned_) {}
  ~memory() { pinned_ ? cudaFreeHost(data_) : cudaFree(data_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  void swap(memory& other) noexcept { std::swap(data_, other.data_); }  // of the same kind

 private:
  void* data_ = nullptr;
  bool pinned_;
};

/// Messages between a learner and an engine of one process, and the slots that the learner quantizes into.
struct link {
  std::vector<memory> slots;
  std::size_t slot_bytes;
  std::deque<message> to_engine, to_learner;
  bool (*run_engine)(void*) = nullptr;  // handles one message; false when there is none
  void* engine = nullptr;

  link(u32 count, std::size_t bytes) : slot_bytes(bytes) {
    for (u32 i = 0; i < count; ++i) slots.emplace_back(bytes);
  }
  std::byte* slot(u32 buffer) const { return slots[buffer % slots.size()].data(); }

  struct publisher {
    using stream = cudaStream_t;
    link* net;
    int engines() const { return 1; }
    // Whoever read the slot is done: the engine's copies and the learner's kernels are on one stream here.
    result<std::span<std::byte>> acquire(u32 buffer, stream) {
      while (net->run_engine(net->engine)) {
      }
      return std::span<std::byte>(net->slot(buffer), net->slot_bytes);
    }
    error publish(const frame& f, stream) {
      message announced;
      encode(f, announced);
      net->to_engine.push_back(std::move(announced));
      return {};
    }
    error broadcast(const message& m) {
      net->to_engine.push_back(m);
      return {};
    }
    error receive(message& into, int& from) {
      while (net->to_learner.empty() && net->run_engine(net->engine)) {
      }
      if (net->to_learner.empty()) return make_error(errc::timeout, "engine", "nothing came");
      from = 0;
      into = std::move(net->to_learner.front());
      net->to_learner.pop_front();
      return {};
    }
  };
  struct subscriber {
    using stream = cudaStream_t;
    link* net;
    error receive(message& into) {
      if (net->to_engine.empty()) return make_error(errc::timeout, "learner", "nothing came");
      into = std::move(net->to_engine.front());
      net->to_engine.pop_front();
      return {};
    }
    result<std::span<const std::byte>> bytes(const frame& f, stream) {
      return std::span<const std::byte>(net->slot(f.buffer), net->slot_bytes);
    }
    error release(const frame&, stream) { return {}; }
    error reply(const message& m) {
      net->to_learner.push_back(m);
      return {};
    }
  };
};

/// The engine's parameters, twice: the served ones and those being written.
class device_store {
 public:
  using stream = cudaStream_t;
  device_store(const manifest& tensors, const plan& p)
      : total_(lay_out(tensors)),
        live_(total_),
        staging_(total_),
        device_(bytes_of_work(p)),
        pinned_(bytes_of_work(p), true),
        reports_(p.pieces().size()) {
    for (const plan_piece& piece : p.pieces()) pieces_.push_back({offsets_[piece.entry] + piece.from, piece.bytes});
  }
  commit_mode mode() const noexcept { return commit_mode::staged; }
  const std::byte* tensor(std::size_t entry) const { return live_.data() + offsets_[entry]; }

  error write(u32 piece, std::span<const std::byte> bytes, stream s) {
    std::byte* const to = staging_.data() + pieces_[piece].offset;
    expect(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyDeviceToDevice, s));
    return {};
  }
  /// Sums what lies in the parameters, in one launch, and waits.
  result<std::span<const piece_report>> reports(stream s) {
    const i64 count = static_cast<i64>(pieces_.size());
    auto* const sums = reinterpret_cast<u64*>(device_.data() + table::bytes(count));
    std::vector<kernel::checksum_task> tasks;
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      tasks.push_back({reinterpret_cast<const u8*>(staging_.data() + pieces_[i].offset),
                       static_cast<i64>(pieces_[i].bytes), sums + i});
    const i64 blocks = table::fill(tasks.data(), count, pinned_.data());
    expect(cudaMemsetAsync(sums, 0, pieces_.size() * 8, s));
    expect(table::upload(pinned_.data(), device_.data(), count, s));
    expect(cuda::checksum(table::view(device_.data(), count), blocks, s));
    expect(cudaMemcpyAsync(pinned_.data() + table::bytes(count), sums, pieces_.size() * 8, cudaMemcpyDeviceToHost, s));
    expect(cudaStreamSynchronize(s));
    const auto* made = reinterpret_cast<const u64*>(pinned_.data() + table::bytes(count));
    for (std::size_t i = 0; i < pieces_.size(); ++i) reports_[i] = {made[i], -1};
    return std::span<const piece_report>(reports_);
  }
  error finalize(stream) { return {}; }  // where scales would be laid out for a GEMM: cuda::relayout
  void publish(u64) noexcept { live_.swap(staging_); }
  void discard() noexcept {}

 private:
  using table = cuda::job_table<kernel::checksum_task>;
  struct place {
    u64 offset, bytes;
  };
  static std::size_t bytes_of_work(const plan& p) {
    return table::bytes(static_cast<i64>(p.pieces().size())) + p.pieces().size() * 8 + 256;
  }
  std::size_t lay_out(const manifest& tensors) {
    u64 total = 0;
    for (const manifest_entry& entry : tensors.entries()) {
      offsets_.push_back(total);
      total += (entry.bytes + 255) / 256 * 256;
    }
    return static_cast<std::size_t>(total);
  }
  std::vector<u64> offsets_;
  std::size_t total_;
  memory live_, staging_, device_, pinned_;
  std::vector<place> pieces_;
  std::vector<piece_report> reports_;
};

/// One layer of weights in device memory, as a trainer holds them.
struct weight {
  std::string name;
  i64 rows, cols;
  memory values;
  matrix_view<const bf16> view() const { return dense(reinterpret_cast<const bf16*>(values.data()), rows, cols); }
};

std::vector<weight> trained(float step) {
  std::vector<weight> made;
  for (const auto& [name, rows, cols] : {std::tuple{"layers.0.mlp.gate_proj.weight", i64{512}, i64{256}},
                                         std::tuple{"layers.0.mlp.up_proj.weight", i64{512}, i64{256}},
                                         std::tuple{"layers.0.mlp.down_proj.weight", i64{256}, i64{512}}}) {
    std::vector<bf16> values(static_cast<std::size_t>(rows * cols));
    float value = -0.5f;
    for (bf16& one : values) one = to_bf16(value = value > 0.5f ? -0.5f : value + step);
    made.push_back({name, rows, cols, memory(values.size() * 2)});
    expect(cudaMemcpy(made.back().values.data(), values.data(), values.size() * 2, cudaMemcpyHostToDevice));
  }
  return made;
}

int main() try {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("SKIP: no GPU");
    return 77;
  }
  cudaStream_t stream;
  expect(cudaStreamCreate(&stream));

  // Both ends, from metadata alone.
  std::vector<weight> weights = trained(0.001f);
  manifest tensors;
  for (const weight& one : weights) expect(tensors.add<wire>(one.name, {one.rows, one.cols}));
  const plan agreed = make_plan(tensors, {.capacity_bytes = std::size_t{1} << 20}).value();

  link net(2, static_cast<std::size_t>(agreed.slot_bytes()));
  link::subscriber engine_end{&net};
  device_store store(tensors, agreed);
  receiver<device_store> target(tensors, agreed, store);
  engine<link::subscriber, receiver<device_store>> loop(engine_end, target);
  auto step = [&] {
    if (net.to_engine.empty()) return false;
    engine_event event{};
    if (error wrong = loop.step(stream, event)) std::printf("engine: %s\n", wrong.message().c_str());
    return true;
  };
  net.engine = &step;
  net.run_engine = [](void* engine) { return (*static_cast<decltype(step)*>(engine))(); };

  using backend = cuda::backend<recipe_type>;
  const std::size_t work = backend::backend_bytes(agreed.pieces().size(), tensors.items().size());
  const memory device(work), pinned(work, true);
  link::publisher learner_end{&net};
  sender<wire, link::publisher, backend> learner(tensors, agreed, learner_end, recipe_type::num.amax_floor,
                                                 backend({device.data(), pinned.data(), work}));

  for (u64 version = 1; version <= 3; ++version) {
    weights = trained(0.001f * static_cast<float>(version));
    // An Inf in the third version: found on the device, refused before the vote; the second goes on serving.
    const bf16 infinite{0x7F80};
    if (version == 3)
      expect(cudaMemcpy(weights[1].values.data() + 1000, &infinite, sizeof(infinite), cudaMemcpyHostToDevice));
    expect(learner.begin(version));
    for (const weight& one : weights)
      expect(learner.put(one.name, one.view(), stream));
    const error refused = learner.finish(stream);
    while (step()) {
    }
    std::printf("version %llu: %s; serving %llu\n", static_cast<unsigned long long>(version),
                refused ? refused.message().c_str() : "committed", static_cast<unsigned long long>(target.serving()));
  }
  cudaStreamDestroy(stream);
  return target.serving() == 2 ? 0 : 1;
} catch (const std::exception& wrong) {
  std::printf("%s\n", wrong.what());
  return 1;
}
