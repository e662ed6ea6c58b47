// SPDX-License-Identifier: Apache-2.0
/// Parts of a matrix, and blocks that no tile holds whole: maxima, then scales, then codes.
#ifndef FP8WIRE_CUDA_PARTIAL_CUH
#define FP8WIRE_CUDA_PARTIAL_CUH
#include <fp8wire/cuda/table.cuh>
#include <fp8wire/quant/kernel/partial.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// The task of the rectangle that begins at (row, col) of a rows x cols matrix. amax: scale_rows x scale_cols of the
/// whole matrix, FP32 magnitudes as bits, zero before its first part. codes: of the part; no data for amax alone.
template <any_recipe Recipe, class In>
kernel::partial_task<Recipe, In> partial_task(matrix_view<const In> part, i64 row, i64 col, i64 rows, i64 cols,
                                              matrix_view<u32> amax, matrix_view<u8> codes, i64* status,
                                              float amax_floor = Recipe::num.amax_floor) noexcept {
  kernel::partial_task<Recipe, In> task{part, row, col, rows, cols, amax, codes, reinterpret_cast<u64*>(status), 0,
                                        amax_floor, 0};
  task.vector = kernel::vector_of(task);
  return task;
}

namespace detail {

template <class Recipe, class In> bool valid(const kernel::partial_task<Recipe, In>& task) noexcept {
  return task.row >= 0 && task.col >= 0 && task.part.batch == 1 && task.part.rows >= 0 && task.part.cols >= 0 &&
         task.row + task.part.rows <= task.rows && task.col + task.part.cols <= task.cols &&
         task.amax.rows == scale_rows<typename Recipe::block>(task.rows) &&
         task.amax.cols == scale_cols<typename Recipe::block>(task.cols);
}

}  // namespace detail

/// Enqueues the maxima of one part, which never fall: parts of one matrix may run in any order, and a MAX over ranks of
/// the bits as unsigned integers joins the shards of many.
/// Errors: cudaErrorInvalidValue where shapes disagree. Stream: capturable, no sync, no allocation.
template <any_recipe Recipe, class In>
cudaError_t partial_amax(const kernel::partial_task<Recipe, In>& task, cudaStream_t stream) noexcept {
  using type = kernel::partial_task<Recipe, In>;
  if (!detail::valid(task)) return cudaErrorInvalidValue;
  return launch<kernel::partial_amax_body<kernel::one_task<type>, type>>(tiles_of_task(task), {task}, stream);
}
/// Enqueues the codes of one part under the scales of its matrix's maxima. Exact: the codes of fp8wire::quantize.
template <any_recipe Recipe, class In>
cudaError_t partial_cast(const kernel::partial_task<Recipe, In>& task, cudaStream_t stream) noexcept {
  using type = kernel::partial_task<Recipe, In>;
  if (!detail::valid(task) || task.codes.rows != task.part.rows || task.codes.cols != task.part.cols)
    return cudaErrorInvalidValue;
  return launch<kernel::partial_cast_body<kernel::one_task<type>, type>>(tiles_of_task(task), {task}, stream);
}
/// The same of an uploaded job table; blocks: what fill returned.
template <class Task>
cudaError_t partial_amax(kernel::task_table<Task> table, i64 blocks, cudaStream_t stream) noexcept {
  return launch<kernel::partial_amax_body<kernel::task_table<Task>, Task>>(blocks, table, stream);
}
template <class Task>
cudaError_t partial_cast(kernel::task_table<Task> table, i64 blocks, cudaStream_t stream) noexcept {
  return launch<kernel::partial_cast_body<kernel::task_table<Task>, Task>>(blocks, table, stream);
}

/// Enqueues the stored scales of a grid of maxima.
template <any_recipe Recipe, class In, class Scales>
cudaError_t scales_of(matrix_view<const u32> amax, Scales scales, float amax_floor, cudaStream_t stream) noexcept {
  using task = kernel::scales_task<Recipe, In, Scales>;
  using body = kernel::scales_body<task>;
  if (scales.rows != amax.rows || scales.cols != amax.cols) return cudaErrorInvalidValue;
  return launch<body>(ceil_div(amax.rows * amax.cols, body::threads), {amax, scales, amax_floor}, stream);
}

/// Enqueues matrices whose blocks span tiles: a scale for each matrix (block<whole, whole>) or for each row.
/// scratch: batch x scale_rows x scale_cols words, dense. Reads the weights twice, in three launches a matrix.
/// Bytes, errors, stream: as cuda::quantize.
template <any_recipe Recipe, class In>
cudaError_t quantize_in_two(matrix_view<const In> in, pair_view<Recipe> out, u32* scratch, i64* status,
                            float amax_floor, cudaStream_t stream) noexcept {
  using block = typename Recipe::block;
  const i64 grid_rows = scale_rows<block>(in.rows), grid_cols = scale_cols<block>(in.cols);
  if (in.batch < 0 || in.rows < 0 || in.cols < 0 || out.codes.batch != in.batch || out.codes.rows != in.rows ||
      out.codes.cols != in.cols || out.scales.batch != in.batch || out.scales.rows != grid_rows ||
      out.scales.cols != grid_cols)
    return cudaErrorInvalidValue;
  const std::size_t bytes = static_cast<std::size_t>(in.batch * grid_rows * grid_cols) * sizeof(u32);
  cudaError_t wrong = bytes == 0 ? cudaSuccess : cudaMemsetAsync(scratch, 0, bytes, stream);
  for (i64 b = 0; b < in.batch && wrong == cudaSuccess; ++b) {
    const auto amax = dense(scratch + b * grid_rows * grid_cols, grid_rows, grid_cols);
    auto task = partial_task<Recipe>(in.slice_of(b), 0, 0, in.rows, in.cols, amax, out.codes.slice_of(b), status,
                                     amax_floor);
    task.index_base = b * in.rows * in.cols;
    wrong = partial_amax(task, stream);
    if (wrong == cudaSuccess)
      wrong = scales_of<Recipe, In>(matrix_view<const u32>(amax), out.scales.slice_of(b), amax_floor, stream);
    if (wrong == cudaSuccess) wrong = partial_cast(task, stream);
  }
  return wrong;
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
