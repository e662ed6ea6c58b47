// SPDX-License-Identifier: Apache-2.0
/// Job tables: thousands of tensors, one launch. Built in pinned memory, copied once, valid in a captured graph.
#ifndef FP8WIRE_CUDA_TABLE_CUH
#define FP8WIRE_CUDA_TABLE_CUH
#include <type_traits>

#include <fp8wire/cuda/launch.cuh>
#include <fp8wire/quant/kernel/tasks.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// A table of tasks in memory of the caller's: `count` tasks, then their tile sums. The same bytes in pinned and in
/// device memory. A graph that captured upload and launch stays valid while shapes and count do: write other pointers
/// with fill into the same pinned memory, once the last replay has passed its copy, and replay.
/// Threads: no state.
template <class Task> class job_table {
  static_assert(std::is_trivially_copyable_v<Task>);

 public:
  /// Bytes of either memory, aligned as cudaMalloc does.
  static constexpr std::size_t bytes(i64 count) noexcept {
    return static_cast<std::size_t>(count) * (sizeof(Task) + sizeof(i64)) + sums_padding;
  }
  /// Writes tasks and sums into `pinned`; returns the blocks of the launch.
  static i64 fill(const Task* tasks, i64 count, void* pinned) noexcept {
    Task* const to = static_cast<Task*>(pinned);
    for (i64 i = 0; i < count; ++i) to[i] = tasks[i];
    return kernel::sum_tiles(to, count, static_cast<i64*>(sums_of(pinned, count)),
                             [](const Task& task) { return tiles_of_task(task); });
  }
  /// Enqueues the one copy to device memory. Stream: capturable; pinned memory must stay as it is until it is done.
  static cudaError_t upload(const void* pinned, void* device, i64 count, cudaStream_t stream) noexcept {
    if (count == 0) return cudaSuccess;
    return cudaMemcpyAsync(device, pinned, bytes(count), cudaMemcpyHostToDevice, stream);
  }
  /// What a kernel is given.
  static kernel::task_table<Task> view(const void* device, i64 count) noexcept {
    return {static_cast<const i64*>(sums_of(device, count)), static_cast<const Task*>(device), count};
  }

 private:
  static constexpr std::size_t sums_padding = 16;
  static void* sums_of(const void* table, i64 count) noexcept {
    const auto end = reinterpret_cast<std::uintptr_t>(table) + static_cast<std::size_t>(count) * sizeof(Task);
    return reinterpret_cast<void*>((end + 15) / 16 * 16);
  }
};

}  // namespace cuda
FP8WIRE_ABI_END
#endif
