// SPDX-License-Identifier: Apache-2.0
/// A borrowed buffer whose layout is part of its type, so that nobody can be handed the wrong one.
#ifndef FP8WIRE_LAYOUT_LAID_OUT_HPP
#define FP8WIRE_LAYOUT_LAID_OUT_HPP
#include <type_traits>

#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/layout/row_major.hpp>

FP8WIRE_ABI_BEGIN

/// batch x rows x cols elements of Value stored as Layout says, at least `size()` elements from `data` on.
/// Non-owning; trivially copyable. There is no conversion between layouts: relayout.hpp is the only way.
template <layout Layout, class Value> struct laid_out {
  Value* data = nullptr;
  i64 batch = 1, rows = 0, cols = 0;

  FP8WIRE_HD constexpr typename Layout::mapping mapping() const noexcept { return {batch, rows, cols}; }
  /// Elements of the buffer, padding included.
  FP8WIRE_HD constexpr i64 size() const noexcept { return mapping().size(); }
  FP8WIRE_HD constexpr i64 size_bytes() const noexcept { return size() * static_cast<i64>(sizeof(Value)); }
  FP8WIRE_HD constexpr Value& operator()(i64 b, i64 row, i64 col) const noexcept {
    return data[mapping().offset({b, row, col})];
  }
  /// Read only; a template, since nvcc warns of a conversion to the type itself where Value is const already.
  template <class Out>
    requires(std::is_same_v<Out, const Value> && !std::is_const_v<Value>)
  FP8WIRE_HD constexpr operator laid_out<Layout, Out>() const noexcept {
    return {data, batch, rows, cols};
  }
};

namespace detail {

/// Throws precondition_error when the layout does not take the shape, or on null data of a non-empty buffer.
template <class Layout, class Value> constexpr void expect_valid(const laid_out<Layout, Value>& buffer) {
  const shape_check shape = Layout::accepts(buffer.batch, buffer.rows, buffer.cols);
  if (!shape.ok()) raise(shape.what, shape.got, shape.expected);
  if (buffer.size() > 0 && buffer.data == nullptr) raise("laid_out: the buffer has no data", 0, buffer.size());
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
