// SPDX-License-Identifier: Apache-2.0
/// Where a body reads and writes elements: strided views and buffers of any layout, through one set of functions.
#ifndef FP8WIRE_QUANT_KERNEL_PLACE_HPP
#define FP8WIRE_QUANT_KERNEL_PLACE_HPP
#include <fp8wire/layout/laid_out.hpp>
#include <fp8wire/quant/kernel/context.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// The rows row, row + every, row + 2 * every ... of a view from one column on: one base, one stride.
template <class Value> struct strided_rows {
  Value* first;
  i64 step;
  FP8WIRE_HD constexpr Value* operator()(int i) const noexcept { return first + i * step; }
};
template <class Layout, class Value> struct laid_rows {
  laid_out<Layout, Value> buffer;
  i64 batch, row, col, every;
  FP8WIRE_HD constexpr Value* operator()(int i) const noexcept { return &buffer(batch, row + i * every, col); }
};

template <class Value> FP8WIRE_HD constexpr strided_rows<Value> rows_of(const matrix_view<Value>& view, i64 batch,
                                                                        i64 row, i64 col, i64 every) noexcept {
  return {&view(batch, row, col), view.row_stride * every};
}
template <class Layout, class Value>
FP8WIRE_HD constexpr laid_rows<Layout, Value> rows_of(const laid_out<Layout, Value>& buffer, i64 batch, i64 row,
                                                      i64 col, i64 every) noexcept {
  return {buffer, batch, row, col, every};
}

/// The most elements, a power of two up to 32, that every aligned group of a row can be moved by in one access.
template <class Value> inline int vector_width(const matrix_view<Value>& view) noexcept {
  if (view.col_stride != 1 && view.cols > 1) return 1;
  u64 all = reinterpret_cast<std::uintptr_t>(view.data) / sizeof(Value) | 32;
  if (reinterpret_cast<std::uintptr_t>(view.data) % sizeof(Value) != 0) return 1;
  if (view.rows > 1) all |= static_cast<u64>(view.row_stride);
  if (view.batch > 1) all |= static_cast<u64>(view.batch_stride);
  return static_cast<int>(all & (~all + 1));
}
/// The layout promises runs of col_run adjacent columns; where a run is a whole row, rows start at multiples of cols.
template <class Layout, class Value> inline int vector_width(const laid_out<Layout, Value>& buffer) noexcept {
  u64 all = reinterpret_cast<std::uintptr_t>(buffer.data) / sizeof(Value) | 32;
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % sizeof(Value) != 0) return 1;
  all |= Layout::col_run == whole_run ? static_cast<u64>(buffer.mapping().shape().extents[1])
                                      : static_cast<u64>(Layout::col_run);
  return static_cast<int>(all & (~all + 1));
}

}  // namespace kernel
FP8WIRE_ABI_END
#endif
