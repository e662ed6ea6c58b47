// SPDX-License-Identifier: Apache-2.0
/// The rectangle of weights that shares one scale.
#ifndef FP8WIRE_QUANT_BLOCK_HPP
#define FP8WIRE_QUANT_BLOCK_HPP
#include <concepts>
#include <string_view>

#include <fp8wire/core/bits.hpp>
#include <fp8wire/detail/text.hpp>

FP8WIRE_ABI_BEGIN

/// Rows x Cols; an extent of `whole` covers the matrix: block<1, whole> is per row, block<whole, whole> per tensor.
inline constexpr int whole = 0;

template <int Rows, int Cols> struct block {
  static_assert(Rows >= 0 && Cols >= 0,
                "a block has positive extents: use fp8wire::block<128, 128>, or fp8wire::whole");
  static constexpr int rows = Rows, cols = Cols;
};

template <class Block>
concept block_shape = requires {
  { Block::rows } -> std::convertible_to<int>;
  { Block::cols } -> std::convertible_to<int>;
};

namespace detail {
template <block_shape Block> constexpr short_text block_text() noexcept {
  short_text text;
  if (Block::rows == whole && Block::cols == whole) return text << "tensor";
  if (Block::rows == 1 && Block::cols == whole) return text << "row";
  if (Block::rows == whole && Block::cols == 1) return text << "column";
  return text << i64{Block::rows} << "x" << i64{Block::cols};
}
template <block_shape Block> inline constexpr short_text block_text_of = block_text<Block>();

FP8WIRE_HD constexpr i64 block_extent(int extent, i64 matrix_extent) noexcept {
  return extent == whole ? (matrix_extent > 0 ? matrix_extent : 1) : extent;
}
}  // namespace detail

/// The block as people write it: "128x128", "1x32", "row", "column", "tensor".
template <block_shape Block> constexpr std::string_view block_name() noexcept {
  return detail::block_text_of<Block>.view();
}

/// Rows of the scale matrix of a matrix with `rows` rows; ragged edge blocks count whole; none for no rows.
template <block_shape Block> FP8WIRE_HD constexpr i64 scale_rows(i64 rows) noexcept {
  return ceil_div(rows, detail::block_extent(Block::rows, rows));
}
/// Columns of the scale matrix of a matrix with `cols` columns.
template <block_shape Block> FP8WIRE_HD constexpr i64 scale_cols(i64 cols) noexcept {
  return ceil_div(cols, detail::block_extent(Block::cols, cols));
}

FP8WIRE_ABI_END
#endif
