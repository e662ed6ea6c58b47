// SPDX-License-Identifier: Apache-2.0
/// The sender's work on a GPU: a job table a buffer, one launch for its quantizing and one for its checksums.
#ifndef FP8WIRE_CUDA_BACKEND_CUH
#define FP8WIRE_CUDA_BACKEND_CUH
#include <tuple>
#include <vector>

#include <fp8wire/cuda/move.cuh>
#include <fp8wire/cuda/quantize.cuh>
#include <fp8wire/wire/backend.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// Memory that a backend works in: the same number of bytes on the device (cudaMalloc) and pinned (cudaMallocHost).
struct backend_memory {
  void* device = nullptr;
  void* pinned = nullptr;
  std::size_t bytes = 0;
};

/// Backend of a sender whose slots are device memory; see wire/backend.hpp. Weights and kept tensors: device memory,
/// alive until the buffer's work on the stream is done. One stream an update.
/// Memory: the caller's, backend_bytes of it; the job lists are its own and kept from update to update.
/// Errors: capacity where the memory is too small; unsupported for CUDA's failures, by name. Sync: collect alone, and
/// begin after an update that never came to it.
template <any_recipe Recipe> class backend {
  template <class In> using task = kernel::quantize_task<Recipe, In>;

 public:
  backend() = default;
  explicit backend(backend_memory memory) noexcept : memory_(memory) {}

  /// Bytes for a plan of that many pieces and a manifest of that many items.
  static constexpr std::size_t backend_bytes(std::size_t pieces, std::size_t items) noexcept {
    return words_bytes(pieces, items) + pieces * (sizeof(task<bf16>) + sizeof(kernel::checksum_task) + 16) +
           // A buffer has at most four tables; each begins at a multiple of 256.
           4 * 512 * (pieces + 1);
  }

  void prepare(std::size_t pieces, std::size_t items) {
    sums_.assign(pieces, 0);
    statuses_.assign(items, -1);
  }
  void begin() noexcept {
    // Pinned tables of an update that was given up may still be read.
    if (open_) static_cast<void>(cudaStreamSynchronize(stream_));
    open_ = false;
    used_ = words_bytes(sums_.size(), statuses_.size());
    std::apply([](auto&... list) { (list.clear(), ...); }, tasks_);
    to_sum_.clear();
  }

  template <any_recipe Same, class In>
  error quantize(const quantize_job& job, matrix_view<const In> in, pair_view<Recipe> out, float amax_floor,
                 cudaStream_t stream) {
    static_assert(std::same_as<Same, Recipe>, "a backend is made for the sender's recipe");
    if (error wrong = open(stream)) return wrong;
    std::get<std::vector<task<In>>>(tasks_).push_back(
        quantize_task<Recipe>(in, out.codes, out.scales, status_words() + job.item, amax_floor, job.index_base));
    sum(job.codes_piece, out.codes.data, out.codes.size());
    sum(job.scales_piece, out.scales.data, out.scales.size() * static_cast<i64>(sizeof(stored_t<Recipe>)));
    return {};
  }

  /// Columns must be adjacent. Source: device or host memory.
  template <class Value> error copy(u32 piece, Value* to, matrix_view<const Value> from, cudaStream_t stream) {
    if (error wrong = open(stream)) return wrong;
    if (from.col_stride != 1 && from.cols > 1)
      return make_error(errc::unsupported, "", "a GPU copy needs adjacent columns; the column stride is",
                        from.col_stride, 1);
    const std::size_t width = static_cast<std::size_t>(from.cols) * sizeof(Value);
    for (i64 b = 0; b < from.batch && from.rows * from.cols > 0; ++b) {
      if (error wrong = failed(cudaMemcpy2DAsync(
              to + b * from.rows * from.cols, width, from.data + b * from.batch_stride,
              from.rows > 1 ? static_cast<std::size_t>(from.row_stride) * sizeof(Value) : width, width,
              static_cast<std::size_t>(from.rows), cudaMemcpyDefault, stream)))
        return wrong;
    }
    sum(piece, to, from.size() * static_cast<i64>(sizeof(Value)));
    return {};
  }

  error seal(cudaStream_t stream) {
    if (error wrong = open(stream)) return wrong;
    error wrong;
    std::apply([&](auto&... list) { static_cast<void>((... || (wrong = launch_all(list, stream)))); }, tasks_);
    if (wrong) return wrong;
    return launch_all(to_sum_, stream);
  }

  error collect(cudaStream_t stream) {
    if (error wrong = open(stream)) return wrong;
    const std::size_t bytes = (sums_.size() + statuses_.size()) * 8;
    if (error wrong = failed(cudaMemcpyAsync(memory_.pinned, memory_.device, bytes, cudaMemcpyDeviceToHost, stream)))
      return wrong;
    if (error wrong = failed(cudaStreamSynchronize(stream))) return wrong;
    open_ = false;
    const u64* words = static_cast<const u64*>(memory_.pinned);
    for (u64& sum : sums_) sum = *words++;
    for (i64& status : statuses_) status = static_cast<i64>(*words++);
    return {};
  }
  std::span<const u64> sums() const noexcept { return sums_; }
  std::span<const i64> statuses() const noexcept { return statuses_; }

 private:
  static constexpr std::size_t words_bytes(std::size_t pieces, std::size_t items) noexcept {
    return ((pieces + items) * 8 + 255) / 256 * 256;
  }
  static error failed(cudaError_t code) {
    if (code == cudaSuccess) return {};
    static_cast<void>(cudaGetLastError());
    return make_error(errc::unsupported, "cuda", cudaGetErrorString(code));
  }
  i64* status_words() noexcept { return static_cast<i64*>(memory_.device) + sums_.size(); }

  /// The first call of an update clears the words.
  error open(cudaStream_t stream) {
    if (open_) return {};
    const std::size_t need = backend_bytes(sums_.size(), statuses_.size());
    if (memory_.bytes < need)
      return make_error(errc::capacity, "cuda backend", "its memory is too small", static_cast<i64>(memory_.bytes),
                        static_cast<i64>(need));
    if (error wrong = failed(cudaMemsetAsync(memory_.device, 0, sums_.size() * 8, stream))) return wrong;
    if (error wrong = failed(cudaMemsetAsync(status_words(), 0xFF, statuses_.size() * 8, stream))) return wrong;
    open_ = true;
    stream_ = stream;
    return {};
  }
  void sum(u32 piece, const void* data, i64 bytes) {
    to_sum_.push_back({static_cast<const u8*>(data), bytes, static_cast<u64*>(memory_.device) + piece});
  }
  static cudaError_t enqueue(kernel::task_table<kernel::checksum_task> table, i64 blocks,
                             cudaStream_t stream) noexcept {
    return checksum(table, blocks, stream);
  }
  template <class In>
  static cudaError_t enqueue(kernel::task_table<task<In>> table, i64 blocks, cudaStream_t stream) noexcept {
    return cuda::quantize(table, blocks, stream);
  }
  template <class Task> error launch_all(std::vector<Task>& list, cudaStream_t stream) {
    if (list.empty()) return {};
    using table = job_table<Task>;
    const i64 count = static_cast<i64>(list.size());
    void* const pinned = static_cast<std::byte*>(memory_.pinned) + used_;
    void* const device = static_cast<std::byte*>(memory_.device) + used_;
    used_ += (table::bytes(count) + 255) / 256 * 256;
    const i64 blocks = table::fill(list.data(), count, pinned);
    list.clear();
    if (error wrong = failed(table::upload(pinned, device, count, stream))) return wrong;
    return failed(enqueue(table::view(device, count), blocks, stream));
  }

  backend_memory memory_;
  std::vector<u64> sums_;
  std::vector<i64> statuses_;
  std::tuple<std::vector<task<bf16>>, std::vector<task<fp16>>, std::vector<task<float>>> tasks_;
  std::vector<kernel::checksum_task> to_sum_;
  std::size_t used_ = 0;
  cudaStream_t stream_ = nullptr;
  bool open_ = false;
};

}  // namespace cuda
FP8WIRE_ABI_END
#endif
