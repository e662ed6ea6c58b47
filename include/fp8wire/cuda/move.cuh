// SPDX-License-Identifier: Apache-2.0
/// Dequantize, relayout, compare and sum what lies in device memory.
#ifndef FP8WIRE_CUDA_MOVE_CUH
#define FP8WIRE_CUDA_MOVE_CUH
#include <fp8wire/cuda/table.cuh>
#include <fp8wire/quant/kernel/checksum.hpp>
#include <fp8wire/quant/kernel/compare.hpp>
#include <fp8wire/quant/kernel/dequantize.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// Enqueues weights = codes * scales. codes, scales: matrix_views or laid-out buffers of const elements.
/// Errors: cudaErrorInvalidValue where shapes disagree. Exact: fp8wire::dequantize. Stream: capturable.
template <any_recipe Recipe, class Out, class Codes, class Scales>
cudaError_t dequantize(Codes codes, Scales scales, matrix_view<Out> out, cudaStream_t stream) noexcept {
  using block = typename Recipe::block;
  if (codes.batch != out.batch || codes.rows != out.rows || codes.cols != out.cols || scales.batch != out.batch ||
      scales.rows != scale_rows<block>(out.rows) || scales.cols != scale_cols<block>(out.cols))
    return cudaErrorInvalidValue;
  using task = kernel::dequantize_task<Recipe, Out, Codes, Scales>;
  task work{codes, scales, out, 0};
  work.vector = kernel::vector_of(work);
  return launch<kernel::dequantize_body<kernel::one_task<task>, task>>(tiles_of_task(work), {work}, stream);
}

/// Enqueues every element of `to`, padding included, from a view or a laid-out buffer of const Value.
/// Errors: cudaErrorInvalidValue where shapes disagree or the layout does not take the shape. Exact: fp8wire::relayout.
/// Stream: capturable.
template <class From, layout To, class Value>
cudaError_t relayout(From from, laid_out<To, Value> to, cudaStream_t stream) noexcept {
  if (from.batch != to.batch || from.rows != to.rows || from.cols != to.cols ||
      !To::accepts(to.batch, to.rows, to.cols).ok())
    return cudaErrorInvalidValue;
  using task = kernel::relayout_task<From, To, Value>;
  using body = kernel::relayout_body<task>;
  task work{from, to, 0};
  work.vector = kernel::vector_of(work);
  return launch<body>(ceil_div(to.size(), body::block_elements), work, stream);
}

/// Enqueues a bit for every code that changed, and a byte for every tile that holds a change (or null): the flags that
/// cuda::compact makes tile numbers of. Errors: cudaErrorInvalidValue where shapes disagree.
inline cudaError_t compare(matrix_view<const u8> before, matrix_view<const u8> after, matrix_view<u8> changed,
                           u8* changed_tiles, cudaStream_t stream) noexcept {
  if (before.batch != after.batch || before.rows != after.rows || before.cols != after.cols ||
      changed.batch != after.batch || changed.rows != after.rows || changed.cols != ceil_div(after.cols, 8))
    return cudaErrorInvalidValue;
  kernel::compare_task task{before, after, changed, changed_tiles, 0};
  task.vector = kernel::vector_of(task);
  return launch<kernel::compare_body<kernel::one_task<kernel::compare_task>>>(tiles_of_task(task), {task}, stream);
}

/// Enqueues the checksums of an uploaded job table; every sum was zero. Exact: fp8wire::checksum.
inline cudaError_t checksum(kernel::task_table<kernel::checksum_task> table, i64 blocks, cudaStream_t stream) noexcept {
  return launch<kernel::checksum_body<kernel::task_table<kernel::checksum_task>>>(blocks, table, stream);
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
