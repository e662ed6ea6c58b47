// SPDX-License-Identifier: Apache-2.0
/// How relayout moves one matrix: whole rows, runs of columns, or squares where rows and columns cross.
///
/// All rows of a layout look alike (concept.hpp), so the offsets of columns are computed once for many rows. What is
/// copied at a time is as long as it is contiguous on both sides.
#ifndef FP8WIRE_LAYOUT_MOVE_MATRIX_HPP
#define FP8WIRE_LAYOUT_MOVE_MATRIX_HPP
#include <fp8wire/core/slice.hpp>
#include <fp8wire/detail/byte_tile.hpp>
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

/// Matrices from here on are written past the caches: no reader finds so much in them, and what is not read first is
/// half of the work.
inline constexpr i64 streamed_matrix = i64{256} << 10;
template <class Value> constexpr bool is_large(i64 elements) noexcept {
  return elements * static_cast<i64>(sizeof(Value)) >= streamed_matrix;
}

template <bool Stream> inline void put_line(void* to, const word_line& line) noexcept {
#if defined(__x86_64__) && defined(__clang__)
  if constexpr (Stream) return __builtin_nontemporal_store(line, static_cast<word_line*>(to));
#elif defined(__x86_64__)
  if constexpr (Stream) {
    copied_words words;  // another type of the same bits, and g++ holds them apart
    __builtin_memcpy(&words, &line, sizeof(words));
    return __builtin_ia32_movntdq(static_cast<copied_words*>(to), words);
  }
#endif
  __builtin_memcpy(to, &line, sizeof(line));
}

/// Squares of 4 x 4 units of 4 bytes: one side has the units of a row side by side, the other has the units of rows r,
/// r + row_step ... side by side. Answers the part that is moved; the edges are left.
template <i64 Run, bool Stream, class From, class To, class Value>
inline slice move_squares(const From& from, const Value* src, const To& to, Value* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 size = 4, wide = size * Run;
  constexpr bool along_source = From::col_run > Run;
  constexpr i64 step = along_source ? To::row_step : From::row_step, run = along_source ? To::row_run : From::row_run;
  // Rows that lie together are gone through together, so that what is written is written in order.
  constexpr i64 band = step * size, block = run < 128 / step ? run * step : 128 / band * band;
  // Rows that are written get whole cache lines at a time.
  constexpr i64 squares = along_source ? 1 : 4, chunk = along_source ? (block < 128 ? 32 : 8) : 2;
  const auto along = [&](index3 i) { return along_source ? from.offset(i) : to.offset(i); };
  const auto across = [&](index3 i) { return along_source ? to.offset(i) : from.offset(i); };
  const slice moved{0, 0, rows / band * band, cols / wide * wide};
  i64 line_at[std::size_t{block}], group_at[std::size_t{block / size}];
  i64 line_step[std::size_t{squares * chunk}] = {}, unit_step[std::size_t{squares * chunk * size}] = {};
  for (i64 left = 0; left < moved.cols; left += squares * chunk * wide) {
    const i64 rest = (moved.cols - left) / wide, steps = rest < squares * chunk ? rest : squares * chunk;
    for (i64 q = 0; q < steps; ++q) {
      line_step[q] = along({0, 0, left + q * wide}) - along({0, 0, 0});
      for (i64 k = 0; k < size; ++k)
        unit_step[q * size + k] = across({0, 0, left + q * wide + k * Run}) - across({0, 0, 0});
    }
    for (i64 top = 0; top < moved.rows; top += block) {
      const i64 groups = (moved.rows - top < block ? moved.rows - top : block) / size;
      for (i64 group = 0; group < groups; ++group) {
        const i64 first = top + group / step * band + group % step;
        group_at[group] = across({0, first, 0});
        for (i64 k = 0; k < size; ++k) {
          line_at[group * size + k] = along({0, first + k * step, 0});
          // Rows that a map has scattered are nothing that the hardware foresees.
          if constexpr (along_source)
            for (i64 ahead = 0; ahead < steps * wide; ahead += 64 / static_cast<i64>(sizeof(Value)))
              __builtin_prefetch(src + line_at[group * size + k] + line_step[0] + ahead);
        }
      }
      for (i64 done = 0; done < steps; done += squares) {
        const i64 count = steps - done < squares ? steps - done : squares;
        const i64 *lines_to = line_step + done, *units_to = unit_step + done * size;
        for (i64 group = 0; group < groups; ++group) {
          word_line lines[std::size_t{squares}][4];
          for (i64 q = 0; q < count; ++q) {
            for (i64 k = 0; k < size; ++k) {
              const i64 at =
                  along_source ? line_at[group * size + k] + lines_to[q] : group_at[group] + units_to[q * size + k];
              __builtin_memcpy(&lines[q][k], src + at, sizeof(word_line));
            }
            transpose_square(lines[q]);
          }
          if constexpr (along_source) {
            for (i64 k = 0; k < size; ++k) put_line<Stream>(dst + group_at[group] + units_to[k], lines[0][k]);
          } else {
            for (i64 k = 0; k < size; ++k)
              for (i64 q = 0; q < count; ++q)
                put_line<Stream>(dst + line_at[group * size + k] + lines_to[q], lines[q][k]);
          }
        }
      }
    }
  }
  return moved;
}

/// Whether the lines that tiles are written in are whole rows or columns.
template <class From, class To>
inline constexpr bool lines_whole = (From::col_run > 1 ? To::row_run : To::col_run) == whole_run;

/// Bytes in tiles: lines of rows become lines of columns, or the other way round. Every line of either side is touched
/// once, however far apart lines are.
template <line_place Lines, class From, class To>
inline void move_tiles(const From& from, const u8* src, const To& to, u8* dst, i64 rows, i64 cols) noexcept {
  constexpr bool along_source = From::col_run > 1;
  constexpr i64 source_run = along_source ? From::col_run : From::row_run;
  constexpr i64 wide = source_run < byte_tile::most_width ? source_run : byte_tile::most_width;
  const i64 lines = along_source ? rows : cols, places = along_source ? cols : rows;
  const auto source = [&](i64 line, i64 place) {
    return along_source ? from.offset({0, line, place}) : from.offset({0, place, line});
  };
  const auto target = [&](i64 place, i64 line) {
    return along_source ? to.offset({0, line, place}) : to.offset({0, place, line});
  };
  const tile_cuts cuts{lines,
                       Lines == line_place::streamed && lines_whole<From, To> ? to_whole_line(dst + target(0, 0)) : 0},
      place_cuts{places, 0};
  const auto place_end = [&](i64 place) { return place_cuts.end(place, wide); };
  byte_tile tile;
  i64 tables[2][line_bytes], *line_at = tables[0], *next_at = tables[1];
  const auto find_lines = [&](i64* at, i64 first) {
    for (i64 i = 0; first + i < cuts.end(first, line_bytes); ++i) at[i] = source(first + i, 0);
  };
  find_lines(line_at, 0);
  for (i64 first = 0, last; first < lines; first = last) {
    last = cuts.end(first, line_bytes);
    find_lines(next_at, last);
    const i64 below = target(0, first) - target(0, 0);
    for (i64 place = 0, end; place < places; place = end) {
      end = place_end(place);
      const auto step = [&](i64 at) { return src + (source(0, at) - source(0, 0)); };
      tile.read({step(place), line_at, last - first, end - place});
      tile.write<Lines>(
          dst + below, [&](i64 i) { return target(place + i, 0); },
          end < places ? tile_place{step(end), line_at, last - first, place_end(end) - end}
                       : tile_place{src, next_at, cuts.end(last, line_bytes) - last, place_end(0)});
    }
    i64* const done = line_at;
    line_at = next_at, next_at = done;
  }
}

/// Whether lines of Line bytes can begin at multiples of it, in a matrix that has several. Shifts: the first bytes may
/// be cut off, so that they do, where all begin at the same distance from a multiple.
template <i64 Line, bool Shifts, class To, class Value>
inline bool streams_to(const To& to, const Value* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 size = static_cast<i64>(sizeof(Value));
  const auto at = reinterpret_cast<std::uintptr_t>(dst + to.offset({0, 0, 0}));
  const i64 next_row = to.offset({0, 1, 0}) - to.offset({0, 0, 0}), unit = to.offset({0, 0, 1}) - to.offset({0, 0, 0});
  const i64 apart = unit == 1 ? next_row : unit;  // lines of rows, or of columns
  return rows > 1 && cols > 1 && (Shifts || at % Line == 0) && apart * size % Line == 0;
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

/// All live elements of a rows x cols matrix; padding on neither side is read or written. large: past the caches where
/// lines allow it.
template <class From, class To, class Value>
inline void move_matrix(const From& from, const Value* src, const To& to, Value* dst, i64 rows, i64 cols,
                        bool large) noexcept {
  constexpr i64 run = From::col_run < To::col_run ? From::col_run : To::col_run;
  if constexpr (run == whole_run) {
    for (i64 row = 0; row < rows; ++row) copy(dst + to.offset({0, row, 0}), src + from.offset({0, row, 0}), cols);
  } else {
    // A row map costs nothing when the other side is walked in the map's order instead.
    if constexpr (requires { typename To::row_map; }) {
      using map = typename To::row_map;
      if (map::stored_rows(rows) == rows)
        return move_matrix(gathered_matrix<map, From>{from, rows}, src, to.inner(), dst, rows, cols, large);
    } else if constexpr (requires { typename From::row_map; }) {
      using map = typename From::row_map;
      if (map::stored_rows(rows) == rows)
        return move_matrix(from.inner(), src, gathered_matrix<map, To>{to, rows}, dst, rows, cols, large);
    }
    constexpr i64 bytes = run * static_cast<i64>(sizeof(Value)), size = bytes == 1 ? 64 : 4;
    constexpr bool crossed =
        (From::col_run >= size * run && To::row_run >= size) || (To::col_run >= size * run && From::row_run >= size);
    slice moved{};
    if constexpr (crossed && bytes == 1) {
      if (rows >= 16 && cols >= 16) {
        const auto* in = reinterpret_cast<const u8*>(src);
        auto* out = reinterpret_cast<u8*>(dst);
        if (!large) return move_tiles<line_place::cached>(from, in, to, out, rows, cols);
        if (!streams_to<line_bytes, lines_whole<From, To>>(to, out, rows, cols))
          return move_tiles<line_place::fetched>(from, in, to, out, rows, cols);
        move_tiles<line_place::streamed>(from, in, to, out, rows, cols);
        return end_streaming();
      }
    } else if constexpr (crossed && bytes == 4) {
      const bool stream = large && streams_to<16, false>(to, dst, rows, cols);
      moved = stream ? move_squares<run, true>(from, src, to, dst, rows, cols)
                     : move_squares<run, false>(from, src, to, dst, rows, cols);
      if (stream) end_streaming();
    }
    move_runs<run>(from, src, to, dst, slice{0, moved.cols, moved.rows, cols - moved.cols});
    move_runs<run>(from, src, to, dst, slice{moved.rows, 0, rows - moved.rows, cols});
  }
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
