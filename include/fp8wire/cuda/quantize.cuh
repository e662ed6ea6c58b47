// SPDX-License-Identifier: Apache-2.0
/// Weights in device memory to codes and scales: one tensor, or a job table of thousands in one launch.
#ifndef FP8WIRE_CUDA_QUANTIZE_CUH
#define FP8WIRE_CUDA_QUANTIZE_CUH
#include <fp8wire/cuda/table.cuh>
#include <fp8wire/quant/kernel/quantize.hpp>
#include <fp8wire/quant/kernel/quantize_both.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// The task of one pair. codes, scales: matrix_views or laid-out buffers in device memory, scale_rows x scale_cols each
/// matrix. status: a device word that was -1, or null; it falls to index_base + the index of the first NaN or Inf.
template <any_recipe Recipe, class In, class Codes, class Scales>
kernel::quantize_task<Recipe, In, Codes, Scales> quantize_task(matrix_view<const In> in, Codes codes, Scales scales,
                                                               i64* status,
                                                               float amax_floor = Recipe::num.amax_floor,
                                                               i64 index_base = 0) noexcept {
  kernel::quantize_task<Recipe, In, Codes, Scales> task{in, codes, scales, reinterpret_cast<u64*>(status), index_base,
                                                        amax_floor, 0};
  task.vector = kernel::vector_of(task);
  return task;
}

namespace detail {

template <class Block, class Matrix, class Codes, class Scales>
constexpr bool shapes_agree(const Matrix& in, const Codes& codes, const Scales& scales) noexcept {
  return in.batch >= 0 && in.rows >= 0 && in.cols >= 0 && codes.batch == in.batch && codes.rows == in.rows &&
         codes.cols == in.cols && scales.batch == in.batch && scales.rows == scale_rows<Block>(in.rows) &&
         scales.cols == scale_cols<Block>(in.cols);
}

// A strided view has no padding to write.
template <class Value> cudaError_t write_padding(const matrix_view<Value>&, cudaStream_t) noexcept {
  return cudaSuccess;
}
template <class Layout, class Value>
cudaError_t write_padding(const laid_out<Layout, Value>& to, cudaStream_t stream) noexcept {
  using body = kernel::padding_body<Layout, Value>;
  const i64 size = to.size();
  if (size == to.batch * to.rows * to.cols) return cudaSuccess;
  return launch<body>(ceil_div(size, body::block_elements), to, stream);
}

}  // namespace detail

/// Enqueues one tensor. in: batch x rows x cols of float, bf16 or fp16, any strides (16-byte aligned rows are fast).
/// codes, scales: as quantize_task; the padding of laid-out buffers is written too. Memory: all of it the caller's,
/// alive until the stream has passed. Expects: outputs overlap nothing (unchecked).
/// Errors: cudaErrorInvalidValue where shapes disagree; those of a launch. NaN, Inf: bytes as the rule says; the status
/// tells.
/// Exact: the bytes of fp8wire::quantize; no compiler flag changes them. Stream: capturable, no sync, no allocation.
template <any_recipe Recipe, class In, class Codes, class Scales>
cudaError_t quantize(matrix_view<const In> in, Codes codes, Scales scales, i64* status, float amax_floor,
                     cudaStream_t stream) noexcept {
  if (!detail::shapes_agree<typename Recipe::block>(in, codes, scales)) return cudaErrorInvalidValue;
  const auto task = quantize_task<Recipe>(in, codes, scales, status, amax_floor);
  using task_type = std::remove_const_t<decltype(task)>;
  if (const cudaError_t wrong = detail::write_padding(codes, stream); wrong != cudaSuccess) return wrong;
  if (const cudaError_t wrong = detail::write_padding(scales, stream); wrong != cudaSuccess) return wrong;
  return launch<kernel::quantize_body<kernel::one_task<task_type>, task_type>>(tiles_of_task(task), {task}, stream);
}
template <any_recipe Recipe, class In>
cudaError_t quantize(matrix_view<const In> in, pair_view<Recipe> out, i64* status, float amax_floor,
                     cudaStream_t stream) noexcept {
  return quantize<Recipe>(in, out.codes, out.scales, status, amax_floor, stream);
}

/// Enqueues all tasks of an uploaded job table; blocks: what fill returned. Bytes, errors, stream: as quantize.
template <class Task>
cudaError_t quantize(kernel::task_table<Task> table, i64 blocks, cudaStream_t stream) noexcept {
  return launch<kernel::quantize_body<kernel::task_table<Task>, Task>>(blocks, table, stream);
}

/// The task of a rowwise and a columnwise pair (1x32 and 32x1 blocks) that are made from one read of the weights.
template <any_recipe Row, any_recipe Column, class In>
kernel::both_task<Row, Column, In> both_task(matrix_view<const In> in, pair_view<Row> rows, pair_view<Column> columns,
                                             i64* status, float amax_floor = Row::num.amax_floor) noexcept {
  kernel::both_task<Row, Column, In> task{in, rows.codes, columns.codes, rows.scales, columns.scales,
                                          reinterpret_cast<u64*>(status), 0, amax_floor, 0};
  task.vector = kernel::vector_of(task);
  return task;
}

/// Enqueues one tensor, both ways. Bytes: those of two calls of quantize. Errors, stream: as quantize.
template <any_recipe Row, any_recipe Column, class In>
cudaError_t quantize_both(matrix_view<const In> in, pair_view<Row> rows, pair_view<Column> columns, i64* status,
                          float amax_floor, cudaStream_t stream) noexcept {
  if (!detail::shapes_agree<typename Row::block>(in, rows.codes, rows.scales) ||
      !detail::shapes_agree<typename Column::block>(in, columns.codes, columns.scales))
    return cudaErrorInvalidValue;
  const auto task = both_task<Row, Column, In>(in, rows, columns, status, amax_floor);
  using task_type = std::remove_const_t<decltype(task)>;
  return launch<kernel::both_body<kernel::one_task<task_type>, task_type>>(tiles_of_task(task), {task}, stream);
}
template <class Task>
cudaError_t quantize_both(kernel::task_table<Task> table, i64 blocks, cudaStream_t stream) noexcept {
  return launch<kernel::both_body<kernel::task_table<Task>, Task>>(blocks, table, stream);
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
