// SPDX-License-Identifier: Apache-2.0
/// A borrowed batch x rows x cols tensor with row and batch strides, in elements.
#ifndef FP8WIRE_CORE_MATRIX_VIEW_HPP
#define FP8WIRE_CORE_MATRIX_VIEW_HPP
#include <concepts>

#include <fp8wire/core/expects.hpp>

FP8WIRE_ABI_BEGIN

/// Non-owning; trivially copyable; columns are contiguous unless `col_stride` says otherwise.
/// Shapes: batch x rows x cols elements of Value. Strides: elements, may exceed the extent (padding is never read or
/// written) and may be anything when the extent is 0 or 1.
template <class Value> struct matrix_view {
  Value* data = nullptr;
  i64 rows = 0, cols = 0;
  i64 row_stride = 0;
  i64 batch = 1, batch_stride = 0;
  i64 col_stride = 1;

  FP8WIRE_HD constexpr Value& operator()(i64 row, i64 col) const noexcept {
    return data[row * row_stride + col * col_stride];
  }
  FP8WIRE_HD constexpr Value& operator()(i64 b, i64 row, i64 col) const noexcept {
    return data[b * batch_stride + row * row_stride + col * col_stride];
  }
  FP8WIRE_HD constexpr i64 size() const noexcept { return batch * rows * cols; }
  /// Matrix `b` of the batch as a view of its own.
  FP8WIRE_HD constexpr matrix_view slice_of(i64 b) const noexcept {
    return {data + b * batch_stride, rows, cols, row_stride, 1, 0, col_stride};
  }
  /// To a read-only view. A template, since nvcc warns about a conversion to the class itself where Value is const.
  template <class Other>
    requires std::same_as<Other, const Value> && (!std::same_as<Other, Value>)
  FP8WIRE_HD constexpr operator matrix_view<Other>() const noexcept {
    return {data, rows, cols, row_stride, batch, batch_stride, col_stride};
  }
};

/// The shape of a tensor of weights: batch matrices of rows x cols.
struct matrix_extents {
  i64 batch = 1, rows = 0, cols = 0;
  bool operator==(const matrix_extents&) const = default;
};

/// A densely packed row-major view.
template <class Value> FP8WIRE_HD constexpr matrix_view<Value> dense(Value* data, i64 rows, i64 cols,
                                                                     i64 batch = 1) noexcept {
  return {data, rows, cols, cols, batch, rows * cols, 1};
}

namespace detail {

/// Throws precondition_error on negative extents, on null data of a non-empty view, and on sizes beyond 63 bits.
template <class Value> constexpr void expect_valid(const matrix_view<Value>& view, const char* what) {
  if (view.rows < 0) raise(what, view.rows, 0);
  if (view.cols < 0) raise(what, view.cols, 0);
  if (view.batch < 0) raise(what, view.batch, 0);
  i64 count = 0;
  if (!multiply_checked(view.batch, view.rows, count) || !multiply_checked(count, view.cols, count) ||
      !multiply_checked(count, static_cast<i64>(sizeof(Value)), count))
    raise(what, view.rows, view.cols);
  if (count > 0 && view.data == nullptr) raise(what, 0, count);
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
