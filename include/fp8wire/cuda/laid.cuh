// SPDX-License-Identifier: Apache-2.0
/// Weights, or canonical pairs, in device memory to codes and scales in an engine's pair of layouts.
///
/// Elements are stored at the layouts' offsets by the kernels that make them. What else a buffer needs, padding and the
/// rows that packed scales repeat, is written by kernels of its own beside them.
#ifndef FP8WIRE_CUDA_LAID_CUH
#define FP8WIRE_CUDA_LAID_CUH
#include <fp8wire/cuda/quantize.cuh>
#include <fp8wire/quant/kernel/packed_scales.hpp>
#include <fp8wire/quant/laid_pair.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {
namespace detail {

template <class Layout> inline constexpr bool packs_scales = Layout::scales::packed > 1;

/// A buffer as kernels reach it fastest: rows without a layout are a view.
template <class Layout, class Value> auto place_of(const laid_out<Layout, Value>& buffer) noexcept {
  if constexpr (std::same_as<Layout, row_major>) return dense(buffer.data, buffer.rows, buffer.cols, buffer.batch);
  else return buffer;
}
template <class Layout, class Value, class Visit>
void visit_padding(const laid_out<Layout, Value>& buffer, const Visit& visit) {
  if (buffer.size() != buffer.batch * buffer.rows * buffer.cols) visit(kernel::padding_task<Layout, Value>{buffer});
}
template <class From, class Layout, class Value, class Visit>
void visit_relayout(const From& from, const laid_out<Layout, Value>& to, const Visit& visit) {
  kernel::relayout_task<From, Layout, Value> task{from, to, 0};
  task.vector = kernel::vector_of(task);
  visit(task);
}
template <class Recipe, class Layout>
kernel::packed_scales<typename Layout::scales> packed_place(const laid_pair<Recipe, Layout>& out,
                                                            i64* refused) noexcept {
  static_assert(kernel::divides_tile<typename Recipe::block>, "rows of packed scales: blocks must divide 128");
  constexpr i64 rows = Recipe::block::rows;
  return {out.scales, rows, ceil_div(out.scales.rows, rows), reinterpret_cast<u64*>(refused)};
}

/// Calls visit(task) for all that quantizes into a pair of layouts.
template <class Recipe, class Layout, class In, class Visit>
void visit_quantize(matrix_view<const In> in, const laid_pair<Recipe, Layout>& out, i64* status, i64* refused,
                    float amax_floor, i64 index_base, const Visit& visit) {
  const auto codes = place_of(out.codes);
  visit_padding(out.codes, visit);
  if constexpr (packs_scales<Layout>) {
    const auto scales = packed_place(out, refused);
    visit(quantize_task<Recipe>(in, codes, scales, status, amax_floor, index_base));
    visit(kernel::spread_task<kernel::no_source, typename Layout::scales>{{}, scales});
  } else {
    visit(quantize_task<Recipe>(in, codes, place_of(out.scales), status, amax_floor, index_base));
    visit_padding(out.scales, visit);
  }
}
/// The same for all that moves a canonical pair.
template <class Recipe, class Layout, class Visit>
void visit_forward(const_pair_view<Recipe> pair, const laid_pair<Recipe, Layout>& out, i64* refused,
                   const Visit& visit) {
  visit_relayout(pair.codes, out.codes, visit);
  if constexpr (packs_scales<Layout>) {
    using from = matrix_view<const stored_t<Recipe>>;
    visit(kernel::spread_task<from, typename Layout::scales>{pair.scales, packed_place(out, refused)});
  } else {
    visit_relayout(pair.scales, out.scales, visit);
  }
}

template <class Recipe, class Layout, class Matrix>
bool fits(const Matrix& codes, const laid_pair<Recipe, Layout>& out) noexcept {
  const auto& [to, scales] = out;
  return codes.batch >= 0 && codes.rows >= 0 && codes.cols >= 0 && to.batch == codes.batch && to.rows == codes.rows &&
         to.cols == codes.cols && scales.batch == codes.batch &&
         scales.rows == laid_scale_rows<Recipe, Layout>(codes.rows) &&
         scales.cols == scale_cols<typename Recipe::block>(codes.cols) &&
         Layout::codes::accepts(to.batch, to.rows, to.cols).ok() &&
         Layout::scales::accepts(scales.batch, scales.rows, scales.cols).ok();
}

/// Launches tasks one after another, until one fails.
struct launch_each {
  cudaStream_t stream;
  cudaError_t& wrong;
  template <class Task> void operator()(const Task& task) const noexcept {
    using body = typename kernel::body_of<Task>::template from<kernel::one_task<Task>>;
    if (wrong == cudaSuccess) wrong = launch<body>(tiles_of_task(task), {task}, stream);
  }
};

}  // namespace detail

/// Enqueues one tensor into a pair of layouts, all padding included; packed scales become E8M0, one for every row.
/// in, status, floor, memory, stream: as quantize. refused: a device word that was -1, or null; where E8M0 cannot hold
/// a scale it falls to that block's rank (batch, then row, then column of the block grid), and the bytes are FF.
/// Errors: cudaErrorInvalidValue where shapes disagree or a layout does not take them; those of a launch.
/// Exact: the bytes of fp8wire::quantize_into.
template <any_recipe Recipe, class Layout, class In>
cudaError_t quantize_into(matrix_view<const In> in, laid_pair<Recipe, Layout> out, i64* status, i64* refused,
                          float amax_floor, cudaStream_t stream) noexcept {
  if (!detail::fits(in, out)) return cudaErrorInvalidValue;
  cudaError_t wrong = cudaSuccess;
  detail::visit_quantize(in, out, status, refused, amax_floor, 0, detail::launch_each{stream, wrong});
  return wrong;
}

/// Enqueues canonical codes and scales, any strides, into a pair of layouts. Everything else: as quantize_into.
template <any_recipe Recipe, class Layout>
cudaError_t forward_into(const_pair_view<Recipe> pair, laid_pair<Recipe, Layout> out, i64* refused,
                         cudaStream_t stream) noexcept {
  using block = typename Recipe::block;
  if (!detail::fits(pair.codes, out) || pair.scales.batch != pair.codes.batch ||
      pair.scales.rows != scale_rows<block>(pair.codes.rows) || pair.scales.cols != scale_cols<block>(pair.codes.cols))
    return cudaErrorInvalidValue;
  cudaError_t wrong = cudaSuccess;
  detail::visit_forward(pair, out, refused, detail::launch_each{stream, wrong});
  return wrong;
}

/// Enqueues a rowwise and a columnwise pair from one read of the weights, scales of each in a view or a layout whose
/// padding is written too. Bytes: those of two calls of quantize. Everything else: as quantize_into.
template <any_recipe Row, any_recipe Column, class In, class RowScales, class ColumnScales>
cudaError_t quantize_both(matrix_view<const In> in, matrix_view<u8> row_codes, RowScales row_scales,
                          matrix_view<u8> column_codes, ColumnScales column_scales, i64* status, float amax_floor,
                          cudaStream_t stream) noexcept {
  if (!detail::shapes_agree<typename Row::block>(in, row_codes, row_scales) ||
      !detail::shapes_agree<typename Column::block>(in, column_codes, column_scales))
    return cudaErrorInvalidValue;
  using task_type = kernel::both_task<Row, Column, In, RowScales, ColumnScales>;
  task_type task{in,         row_codes, column_codes, row_scales, column_scales, reinterpret_cast<u64*>(status), 0,
                 amax_floor, 0};
  task.vector = kernel::vector_of(task);
  cudaError_t wrong = detail::write_padding(row_scales, stream);
  if (wrong == cudaSuccess) wrong = detail::write_padding(column_scales, stream);
  using body = kernel::laid_body<kernel::both_body<kernel::one_task<task_type>, task_type>>;
  return wrong == cudaSuccess ? launch<body>(tiles_of_task(task), {task}, stream) : wrong;
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
