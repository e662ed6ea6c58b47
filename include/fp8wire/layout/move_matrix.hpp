// SPDX-License-Identifier: Apache-2.0
/// How relayout moves one matrix: whole rows, runs of columns, or squares where rows and columns cross.
///
/// All rows of a layout look alike (concept.hpp), so the offsets of columns are computed once for many rows. What is
/// copied at a time is as long as it is contiguous on both sides.
#ifndef FP8WIRE_LAYOUT_MOVE_MATRIX_HPP
#define FP8WIRE_LAYOUT_MOVE_MATRIX_HPP
#include <fp8wire/core/slice.hpp>
#include <fp8wire/detail/transpose.hpp>
#include <fp8wire/layout/row_map.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// One matrix of a strided view, as far as moving needs a layout.
template <i64 ColRun> struct strided_matrix {
  static constexpr i64 col_run = ColRun, row_run = 1, row_step = 1;
  i64 row_stride, col_stride;
  constexpr i64 offset(index3 i) const noexcept { return i.row * row_stride + i.col * col_stride; }
};

/// One matrix of a layout: the mapping together with its runs.
template <class Layout> struct laid_matrix {
  static constexpr i64 col_run = Layout::col_run, row_run = Layout::row_run, row_step = Layout::row_step;
  typename Layout::mapping mapping;
  constexpr i64 offset(index3 i) const noexcept { return mapping.offset(i); }
};

/// The same with the row map of the layout in the open.
template <class Map, class Inner> struct laid_matrix<row_mapped<Map, Inner>> {
  using row_map = Map;
  static constexpr i64 col_run = Inner::col_run, row_run = 1, row_step = 1;
  typename row_mapped<Map, Inner>::mapping mapping;
  constexpr i64 offset(index3 i) const noexcept { return mapping.offset(i); }
  constexpr laid_matrix<Inner> inner() const noexcept { return {mapping.inner()}; }
};

/// A matrix by the rows that a row map makes of it.
template <class Map, class Matrix> struct gathered_matrix {
  static constexpr i64 col_run = Matrix::col_run, row_run = 1, row_step = 1;
  Matrix matrix;
  i64 rows;
  constexpr i64 offset(index3 i) const noexcept { return matrix.offset({0, Map::from(rows, i.row), i.col}); }
};

template <class Value> inline void copy(Value* dst, const Value* src, i64 count) noexcept {
  __builtin_memcpy(static_cast<void*>(dst), src, static_cast<std::size_t>(count) * sizeof(Value));
}

/// The columns and rows of `part` in runs of Run columns; part.col is a multiple of Run.
/// 128 rows at a time, so that what they touch stays in the cache until it is whole.
template <i64 Run, class From, class To, class Value>
inline void move_runs(const From& from, const Value* src, const To& to, Value* dst, const slice& part) noexcept {
  constexpr i64 table = 32, block = 128;
  i64 from_at[table], to_at[table];
  const i64 from_first = from.offset({0, 0, 0}), to_first = to.offset({0, 0, 0});
  const i64 row_end = part.row + part.rows, whole_end = part.col + part.cols / Run * Run, rest = part.cols % Run;
  for (i64 top = part.row; top < row_end; top += block) {
    const i64 bottom = row_end - top < block ? row_end : top + block;
    for (i64 left = part.col; left < whole_end; left += table * Run) {
      const i64 count = (whole_end - left) / Run < table ? (whole_end - left) / Run : table;
      for (i64 j = 0; j < count; ++j) {
        from_at[j] = from.offset({0, 0, left + j * Run}) - from_first;
        to_at[j] = to.offset({0, 0, left + j * Run}) - to_first;
      }
      for (i64 row = top; row < bottom; ++row) {
        const Value* source = src + from.offset({0, row, 0});
        Value* target = dst + to.offset({0, row, 0});
        for (i64 j = 0; j < count; ++j) copy(target + to_at[j], source + from_at[j], Run);
      }
    }
    if (rest > 0) {
      for (i64 row = top; row < bottom; ++row)
        copy(dst + to.offset({0, row, whole_end}), src + from.offset({0, row, whole_end}), rest);
    }
  }
}

/// Squares of Lines x Lines units of Run columns, one Line wide: one side has the units of a row side by side, the
/// other has the units of rows r, r + row_step ... side by side. Answers the part that is moved; the edges are left.
template <i64 Run, std::size_t Lines, class Line, class From, class To, class Value>
inline slice move_squares(const From& from, const Value* src, const To& to, Value* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 size = static_cast<i64>(Lines);
  constexpr bool along_source = From::col_run > Run;
  constexpr i64 step = along_source ? To::row_step : From::row_step, band = step * size, block = 128 / band * band;
  const auto along = [&](index3 i) { return along_source ? from.offset(i) : to.offset(i); };
  const auto across = [&](index3 i) { return along_source ? to.offset(i) : from.offset(i); };
  const slice moved{0, 0, rows / band * band, cols / (size * Run) * (size * Run)};
  i64 line_at[std::size_t{block}], group_at[std::size_t{block / size}];
  for (i64 top = 0; top < moved.rows; top += block) {
    const i64 groups = (moved.rows - top < block ? moved.rows - top : block) / size;
    for (i64 group = 0; group < groups; ++group) {
      const i64 first = top + group / step * band + group % step;
      group_at[group] = across({0, first, 0});
      for (i64 k = 0; k < size; ++k) line_at[group * size + k] = along({0, first + k * step, 0});
    }
    for (i64 col = 0; col < moved.cols; col += size * Run) {
      const i64 line_step = along({0, 0, col}) - along({0, 0, 0});
      i64 unit_step[Lines];
      for (i64 k = 0; k < size; ++k) unit_step[k] = across({0, 0, col + k * Run}) - across({0, 0, 0});
      for (i64 group = 0; group < groups; ++group) {
        Line square[Lines];
        for (i64 k = 0; k < size; ++k) {
          const i64 at = along_source ? line_at[group * size + k] + line_step : group_at[group] + unit_step[k];
          __builtin_memcpy(&square[k], src + at, sizeof(Line));
        }
        transpose_square(square);
        for (i64 k = 0; k < size; ++k) {
          const i64 at = along_source ? group_at[group] + unit_step[k] : line_at[group * size + k] + line_step;
          __builtin_memcpy(static_cast<void*>(dst + at), &square[k], sizeof(Line));
        }
      }
    }
  }
  return moved;
}

/// Rows into another order where they lie, each read and written once: cycle by cycle of the permutation.
/// scratch: one row, and behind it one bit a row of those that are in place.
template <class From, class To, class Value>
inline void permute_rows(const laid_matrix<From>& from, const laid_matrix<To>& to, Value* data, Value* scratch,
                         i64 rows, i64 cols) noexcept {
  u8* placed = reinterpret_cast<u8*>(scratch + cols);
  __builtin_memset(placed, 0, static_cast<std::size_t>(ceil_div(rows, 8)));
  const auto comes_from = [&](i64 row) { return from.offset({0, to.mapping.index(row * cols).row, 0}) / cols; };
  for (i64 first = 0; first < rows; ++first) {
    i64 row = first, next = comes_from(first);
    if ((placed[first / 8] >> (first % 8) & 1) != 0 || next == first) continue;
    copy(scratch, static_cast<const Value*>(data + first * cols), cols);
    for (; next != first; row = next, next = comes_from(row)) {
      copy(data + row * cols, static_cast<const Value*>(data + next * cols), cols);
      placed[next / 8] = static_cast<u8>(placed[next / 8] | 1 << (next % 8));
    }
    copy(data + row * cols, static_cast<const Value*>(scratch), cols);
  }
}

/// All live elements of a rows x cols matrix; padding on neither side is read or written.
template <class From, class To, class Value>
inline void move_matrix(const From& from, const Value* src, const To& to, Value* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 run = From::col_run < To::col_run ? From::col_run : To::col_run;
  if constexpr (run == whole_run) {
    for (i64 row = 0; row < rows; ++row) copy(dst + to.offset({0, row, 0}), src + from.offset({0, row, 0}), cols);
  } else {
    // A row map costs nothing when the other side is walked in the map's order instead.
    if constexpr (requires { typename To::row_map; }) {
      using map = typename To::row_map;
      if (map::stored_rows(rows) == rows)
        return move_matrix(gathered_matrix<map, From>{from, rows}, src, to.inner(), dst, rows, cols);
    } else if constexpr (requires { typename From::row_map; }) {
      using map = typename From::row_map;
      if (map::stored_rows(rows) == rows)
        return move_matrix(from.inner(), src, gathered_matrix<map, To>{to, rows}, dst, rows, cols);
    }
    constexpr i64 bytes = run * static_cast<i64>(sizeof(Value)), size = bytes == 1 ? 8 : 4;
    constexpr bool crossed =
        (From::col_run >= size * run && To::row_run >= size) || (To::col_run >= size * run && From::row_run >= size);
    slice moved{};
    if constexpr (crossed && bytes == 1) moved = move_squares<run, 8, u64>(from, src, to, dst, rows, cols);
    if constexpr (crossed && bytes == 4) moved = move_squares<run, 4, word_line>(from, src, to, dst, rows, cols);
    move_runs<run>(from, src, to, dst, slice{0, moved.cols, moved.rows, cols - moved.cols});
    move_runs<run>(from, src, to, dst, slice{moved.rows, 0, rows - moved.rows, cols});
  }
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
