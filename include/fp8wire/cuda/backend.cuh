// SPDX-License-Identifier: Apache-2.0
/// The sender's work on a GPU: a job table a buffer, one launch for its quantizing and one for its checksums.
///
/// Layouts of engines add a table for each kind of work that only they have: padding, moved pairs, repeated scales.
/// Scales of whole rows and matrices take four launches a buffer instead of one.
#ifndef FP8WIRE_CUDA_BACKEND_CUH
#define FP8WIRE_CUDA_BACKEND_CUH
#include <string_view>
#include <vector>

#include <fp8wire/cuda/laid.cuh>
#include <fp8wire/cuda/move.cuh>
#include <fp8wire/quant/kernel/spanning.hpp>
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
 public:
  backend() = default;
  explicit backend(backend_memory memory) noexcept : memory_(memory) {}

  /// Bytes for a plan of that many pieces and a manifest of that many items.
  static constexpr std::size_t backend_bytes(std::size_t pieces, std::size_t items) noexcept {
    return words_bytes(pieces, items) + 3 * pieces * most_task_bytes;
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
    for (task_list& list : lists_) list.clear();
    packed_.clear();
  }

  template <any_recipe Same, class In>
  error quantize(const quantize_job& job, matrix_view<const In> in, pair_view<Recipe> out, float amax_floor,
                 cudaStream_t stream) {
    static_assert(std::same_as<Same, Recipe>, "a backend is made for the sender's recipe");
    if (error wrong = open(stream)) return wrong;
    i64* const status = status_words() + job.item;
    if constexpr (kernel::divides_tile<typename Recipe::block>) {
      add(quantize_task<Recipe>(in, out.codes, out.scales, status, amax_floor, job.index_base));
    } else {
      using task = kernel::spanning_task<Recipe, In>;
      task pair{in, out.codes, out.scales, reinterpret_cast<u64*>(status), job.index_base, amax_floor, 0};
      pair.vector = kernel::vector_of(pair);
      add(kernel::clear_step<task>{pair});
      add(kernel::amax_step<task>{pair});
      add(kernel::cast_step<task>{pair});
      add(kernel::scale_step<task>{pair});
    }
    sum(job.codes_piece, out.codes.data, out.codes.size());
    sum(job.scales_piece, out.scales.data, out.scales.size() * static_cast<i64>(sizeof(stored_t<Recipe>)));
    return {};
  }
  /// Into a pair of layouts; all padding is written. A scale that E8M0 cannot hold: an error of collect.
  template <any_recipe Same, class Layout, class In>
  error quantize_into(const quantize_job& job, matrix_view<const In> in, u8* codes, std::byte* scales, float amax_floor,
                      cudaStream_t stream) {
    static_assert(std::same_as<Same, Recipe>, "a backend is made for the sender's recipe");
    if (error wrong = open(stream)) return wrong;
    const auto out = laid<Layout>(job, codes, scales, {in.batch, in.rows, in.cols});
    detail::visit_quantize(in, out, status_words() + job.item, refused_words() + job.item, amax_floor, job.index_base,
                           [this](const auto& task) { add(task); });
    return {};
  }
  template <any_recipe Same, class Layout>
  error forward_into(const quantize_job& job, const_pair_view<Recipe> pair, u8* codes, std::byte* scales,
                     cudaStream_t stream) {
    static_assert(std::same_as<Same, Recipe>, "a backend is made for the sender's recipe");
    if (error wrong = open(stream)) return wrong;
    const auto out = laid<Layout>(job, codes, scales, {pair.codes.batch, pair.codes.rows, pair.codes.cols});
    detail::visit_forward(pair, out, refused_words() + job.item, [this](const auto& task) { add(task); });
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
      if (error wrong = failed(
              cudaMemcpy2DAsync(to + b * from.rows * from.cols, width, from.data + b * from.batch_stride,
                                from.rows > 1 ? static_cast<std::size_t>(from.row_stride) * sizeof(Value) : width,
                                width, static_cast<std::size_t>(from.rows), cudaMemcpyDefault, stream)))
        return wrong;
    }
    sum(piece, to, from.size() * static_cast<i64>(sizeof(Value)));
    return {};
  }

  error seal(cudaStream_t stream) {
    if (error wrong = open(stream)) return wrong;
    for (int turn = 0; turn <= kernel::last_turn; ++turn)
      for (task_list& list : lists_)
        if (list.turn == turn && list.count > 0)
          if (error wrong = (this->*list.launch)(list, stream)) return wrong;
    return {};
  }

  /// Errors: bad_scale (C9) of the first weight put whose packed layout cannot hold a scale; CUDA's.
  error collect(cudaStream_t stream) {
    if (error wrong = open(stream)) return wrong;
    const std::size_t bytes = (sums_.size() + 2 * statuses_.size()) * 8;
    if (error wrong = failed(cudaMemcpyAsync(memory_.pinned, memory_.device, bytes, cudaMemcpyDeviceToHost, stream)))
      return wrong;
    if (error wrong = failed(cudaStreamSynchronize(stream))) return wrong;
    open_ = false;
    const u64* words = static_cast<const u64*>(memory_.pinned);
    for (u64& sum : sums_) sum = *words++;
    for (i64& status : statuses_) status = static_cast<i64>(*words++);
    for (const packed_item& one : packed_) {
      const i64 rank = static_cast<i64>(words[one.item]);
      if (rank >= 0)
        return fp8wire::detail::scale_refused(
            one.weight, {rank / one.cols / one.rows, rank / one.cols % one.rows, rank % one.cols});
    }
    return {};
  }
  std::span<const u64> sums() const noexcept { return sums_; }
  std::span<const i64> statuses() const noexcept { return statuses_; }

 private:
  /// Tasks of one kind, one after another, until seal makes a table of them.
  struct task_list {
    error (backend::*launch)(task_list&, cudaStream_t);
    int turn;
    std::vector<std::byte> tasks;
    i64 count = 0;
    void clear() noexcept {
      tasks.clear();
      count = 0;
    }
  };
  /// A weight whose scales were packed, and the extents of its block grid.
  struct packed_item {
    u32 item;
    std::string_view weight;
    i64 rows, cols;
  };
  // A pair, two pieces, has four tasks of its own and two sums; a table of one task takes what it must and the rest of
  // 256 bytes.
  static constexpr std::size_t most_task_bytes = 512;

  static constexpr std::size_t words_bytes(std::size_t pieces, std::size_t items) noexcept {
    return ((pieces + 2 * items) * 8 + 255) / 256 * 256;
  }
  static error failed(cudaError_t code) {
    if (code == cudaSuccess) return {};
    static_cast<void>(cudaGetLastError());
    return make_error(errc::unsupported, "cuda", cudaGetErrorString(code));
  }
  i64* status_words() noexcept { return static_cast<i64*>(memory_.device) + sums_.size(); }
  i64* refused_words() noexcept { return status_words() + statuses_.size(); }

  /// The first call of an update clears the words.
  error open(cudaStream_t stream) {
    if (open_) return {};
    const std::size_t need = backend_bytes(sums_.size(), statuses_.size());
    if (memory_.bytes < need)
      return make_error(errc::capacity, "cuda backend", "its memory is too small", static_cast<i64>(memory_.bytes),
                        static_cast<i64>(need));
    if (error wrong = failed(cudaMemsetAsync(memory_.device, 0, sums_.size() * 8, stream))) return wrong;
    if (error wrong = failed(cudaMemsetAsync(status_words(), 0xFF, 2 * statuses_.size() * 8, stream))) return wrong;
    open_ = true;
    stream_ = stream;
    return {};
  }
  void sum(u32 piece, const void* data, i64 bytes) {
    add(kernel::checksum_task{static_cast<const u8*>(data), bytes, static_cast<u64*>(memory_.device) + piece});
  }
  /// The pair of a job in its slot, its sums and its scales' promise noted.
  template <class Layout>
  laid_pair<Recipe, Layout> laid(const quantize_job& job, u8* codes, std::byte* scales, const matrix_extents& m) {
    using scale = laid_scale_t<Recipe, Layout>;
    using block = typename Recipe::block;
    const auto out = laid_pair<Recipe, Layout>::of(codes, reinterpret_cast<scale*>(scales), m.batch, m.rows, m.cols);
    sum(job.codes_piece, codes, out.codes.size_bytes());
    sum(job.scales_piece, scales, out.scales.size_bytes());
    if constexpr (detail::packs_scales<Layout>)
      packed_.push_back({job.item, job.weight, scale_rows<block>(m.rows), scale_cols<block>(m.cols)});
    return out;
  }
  template <class Task> void add(const Task& task) {
    static_assert(std::is_trivially_copyable_v<Task> && sizeof(Task) + sizeof(i64) + 16 + 255 <= most_task_bytes);
    constexpr auto launch = &backend::template launch_tasks<Task>;
    task_list* to = nullptr;
    for (task_list& list : lists_)
      if (list.launch == launch) to = &list;
    if (to == nullptr) to = &lists_.emplace_back(task_list{launch, kernel::body_of<Task>::turn, {}});
    const auto* bytes = reinterpret_cast<const std::byte*>(&task);
    to->tasks.insert(to->tasks.end(), bytes, bytes + sizeof(Task));
    ++to->count;
  }
  template <class Task> error launch_tasks(task_list& list, cudaStream_t stream) {
    using table = job_table<Task>;
    using body = typename kernel::body_of<Task>::template from<kernel::task_table<Task>>;
    void* const pinned = static_cast<std::byte*>(memory_.pinned) + used_;
    void* const device = static_cast<std::byte*>(memory_.device) + used_;
    const i64 count = list.count;
    used_ += (table::bytes(count) + 255) / 256 * 256;
    const i64 blocks = table::fill(reinterpret_cast<const Task*>(list.tasks.data()), count, pinned);
    list.clear();
    if (error wrong = failed(table::upload(pinned, device, count, stream))) return wrong;
    return failed(launch<body>(blocks, table::view(device, count), stream));
  }

  backend_memory memory_;
  std::vector<u64> sums_;
  std::vector<i64> statuses_;
  std::vector<task_list> lists_;  // in the order of their first tasks, each of a kind
  std::vector<packed_item> packed_;
  std::size_t used_ = 0;
  cudaStream_t stream_ = nullptr;
  bool open_ = false;
};

}  // namespace cuda
FP8WIRE_ABI_END
#endif
