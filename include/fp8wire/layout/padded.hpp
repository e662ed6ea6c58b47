// SPDX-License-Identifier: Apache-2.0
/// Rows or columns one after another, with both extents rounded up to a multiple.
///
/// The two plain orders cover Transformer Engine's scale shapes, DeepGEMM's FP32 scales, CUTLASS blockwise scales and
/// transposed codes; those headers only give names to them.
#ifndef FP8WIRE_LAYOUT_PADDED_HPP
#define FP8WIRE_LAYOUT_PADDED_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

constexpr short_text padded_id(std::string_view order, i64 row_multiple, i64 col_multiple, u32 padding) noexcept {
  short_text text;
  text << order;
  if (row_multiple > 1 || col_multiple > 1) text << "-pad-" << row_multiple << "x" << col_multiple;
  if (padding != 0) (text << "-fill-").hex(padding, 8);
  return text;
}

}  // namespace detail

/// offset(b, r, c) = (b * R + r) * C + c, where R and C are rows and cols rounded up to their multiples.
/// Padding: rows beyond `rows` and columns beyond `cols` hold `Padding`. Every shape.
template <i64 RowMultiple, i64 ColMultiple, u32 Padding = 0> struct row_major_padded {
  static_assert(RowMultiple > 1 || ColMultiple > 1, "nothing is padded: use fp8wire::row_major");
  static constexpr detail::short_text id_text = detail::padded_id("row-major", RowMultiple, ColMultiple, Padding);
  static constexpr std::string_view id = id_text.view();
  static constexpr u32 padding_bits = Padding;
  static constexpr i64 packed = 1, col_run = whole_run, row_run = 1, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 stored_rows() const noexcept { return detail::round_up(rows, RowMultiple); }
    FP8WIRE_HD constexpr i64 stored_cols() const noexcept { return detail::round_up(cols, ColMultiple); }
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * stored_rows() * stored_cols(); }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      return (i.batch * stored_rows() + i.row) * stored_cols() + i.col;
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      const i64 col = offset % stored_cols(), line = offset / stored_cols();
      if (line % stored_rows() >= rows || col >= cols) return {-1, -1, -1};
      return {line / stored_rows(), line % stored_rows(), col};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {2, {stored_rows(), stored_cols()}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols, RowMultiple, ColMultiple);
  }
};

/// offset(b, r, c) = (b * C + c) * R + r, where R and C are rows and cols rounded up to their multiples.
/// Padding: rows beyond `rows` of every column, and columns beyond `cols`, hold `Padding`. Every shape.
template <i64 RowMultiple = 1, i64 ColMultiple = 1, u32 Padding = 0> struct col_major {
  static constexpr detail::short_text id_text = detail::padded_id("col-major", RowMultiple, ColMultiple, Padding);
  static constexpr std::string_view id = id_text.view();
  static constexpr u32 padding_bits = Padding;
  static constexpr i64 packed = 1, col_run = 1, row_run = whole_run, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 stored_rows() const noexcept { return detail::round_up(rows, RowMultiple); }
    FP8WIRE_HD constexpr i64 stored_cols() const noexcept { return detail::round_up(cols, ColMultiple); }
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * stored_rows() * stored_cols(); }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      return (i.batch * stored_cols() + i.col) * stored_rows() + i.row;
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      const i64 row = offset % stored_rows(), line = offset / stored_rows();
      if (row >= rows || line % stored_cols() >= cols) return {-1, -1, -1};
      return {line / stored_cols(), row, line % stored_cols()};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {2, {stored_cols(), stored_rows()}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols, RowMultiple, ColMultiple);
  }
};

/// The transpose of the canonical layout: codes of a columnwise operand, scales that CUTLASS calls MN-major.
/// offset(b, r, c) = (b * cols + c) * rows + r; no padding, every shape.
/// Source: CUTLASS detail/blockwise_scale_layout.hpp:100-175 at 7107b05 (SFB, its default; its K-major is row_major).
using transposed = col_major<>;

static_assert(layout<row_major_padded<1, 4>> && layout<col_major<4, 1>> && layout<transposed>);

FP8WIRE_ABI_END
#endif
