// SPDX-License-Identifier: Apache-2.0
/// What a layout is: where element (batch, row, col) of a batch of matrices is stored, and the way back.
///
/// A layout is a type of integers only. The same type serves code bytes, FP32 scales and E8M0 bytes; what an element is
/// stays with whoever holds the data. Codes: rows x cols of the weight. Scales: rows x cols of the scale grid.
#ifndef FP8WIRE_LAYOUT_CONCEPT_HPP
#define FP8WIRE_LAYOUT_CONCEPT_HPP
#include <concepts>
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// One element of a batch of matrices; batch == -1 stands for padding.
struct index3 {
  i64 batch = 0, row = 0, col = 0;
  bool operator==(const index3&) const = default;
};

/// The answer to "does this layout take that shape": both numbers of the first rule that is broken.
struct shape_check {
  const char* what = nullptr;  // null: the shape is taken
  i64 got = 0, expected = 0;
  FP8WIRE_HD constexpr bool ok() const noexcept { return what == nullptr; }
};

/// The shape under which one matrix is stored in a file or on the wire, at most 4-D; a batch goes in front.
struct stored_shape {
  int rank = 0;
  i64 extents[4] = {};
  FP8WIRE_HD constexpr i64 size() const noexcept {
    i64 count = 1;
    for (int i = 0; i < rank; ++i) count *= extents[i];
    return count;
  }
  bool operator==(const stored_shape&) const = default;
};

/// A run that spans the whole row (or column), however long it is.
inline constexpr i64 whole_run = i64{1} << 62;

/// The arithmetic of a layout for one shape; everything is constexpr, noexcept and callable on host and device.
/// size(): elements of the buffer, padding included. offset(i): element offset of i, which must lie inside the shape.
/// index(o): the element stored at o; batch == -1 for padding and for offsets outside the buffer.
/// shape(): how one matrix is stored; its size times `packed` times batch is size().
template <class Mapping>
concept layout_mapping = requires(const Mapping m, index3 i, i64 offset) {
  Mapping{offset, offset, offset};
  { m.batch } -> std::convertible_to<i64>;
  { m.rows } -> std::convertible_to<i64>;
  { m.cols } -> std::convertible_to<i64>;
  { m.size() } noexcept -> std::same_as<i64>;
  { m.offset(i) } noexcept -> std::same_as<i64>;
  { m.index(offset) } noexcept -> std::same_as<index3>;
  { m.shape() } noexcept -> std::same_as<stored_shape>;
};

/// A layout: a mapping, a stable name, and what its buffers look like.
/// id: stable text, hashed into wire ids. padding_bits: what padding elements hold, low 8 bits for byte elements.
/// packed: elements that one stored element holds (4 for E8M0 bytes in an int32), else 1.
/// col_run: columns [n*col_run, (n+1)*col_run) of a row are adjacent; such a unit is what moves. row_run, row_step: in
/// each band of row_run * row_step rows, the units of rows r, r + row_step ... follow each other; else 1 and 1.
/// All are powers of two. accepts(batch, rows, cols): O(1), names the first rule that a shape breaks.
///
/// Two promises that no compiler checks (tests/layout does, for the built-in ones): the matrices of a batch follow each
/// other, so that offset(b, r, c) is b * size() / batch + offset(0, r, c); and all rows look alike, so that
/// offset(b, r, c) - offset(b, r, 0) depends on c alone.
template <class Layout>
concept layout = layout_mapping<typename Layout::mapping> && requires(i64 n) {
  { Layout::id } -> std::convertible_to<std::string_view>;
  { Layout::padding_bits } -> std::convertible_to<u32>;
  { Layout::packed } -> std::convertible_to<i64>;
  { Layout::col_run } -> std::convertible_to<i64>;
  { Layout::row_run } -> std::convertible_to<i64>;
  { Layout::row_step } -> std::convertible_to<i64>;
  { Layout::accepts(n, n, n) } noexcept -> std::same_as<shape_check>;
};

namespace detail {

/// `count` rounded up to a multiple.
FP8WIRE_HD constexpr i64 round_up(i64 count, i64 multiple) noexcept { return ceil_div(count, multiple) * multiple; }

/// No negative extent, and 2^58 elements at most after padding, so that no byte count of a mapping can overflow.
FP8WIRE_HD constexpr shape_check check_extents(i64 batch, i64 rows, i64 cols, i64 row_multiple = 1,
                                               i64 col_multiple = 1) noexcept {
  constexpr i64 most = i64{1} << 58;
  if (batch < 0) return {"batch is negative", batch, 0};
  if (rows < 0) return {"rows are negative", rows, 0};
  if (cols < 0) return {"cols are negative", cols, 0};
  if (batch > most) return {"batch exceeds 2^58", batch, most};
  if (rows > most - row_multiple) return {"rows exceed 2^58", rows, most};
  if (cols > most - col_multiple) return {"cols exceed 2^58", cols, most};
  // Divisions: the overflow builtins are not callable in device code.
  const i64 stored_rows = round_up(rows, row_multiple), stored_cols = round_up(cols, col_multiple);
  if (stored_rows > 0 && stored_cols > most / stored_rows) return {"rows x cols exceed 2^58 elements", rows, most};
  const i64 matrix = stored_rows * stored_cols;
  if (matrix > 0 && batch > most / matrix) return {"batch x rows x cols exceed 2^58 elements", batch, most};
  return {};
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
