// SPDX-License-Identifier: Apache-2.0
/// Matrices of bytes over their diagonal where they lie, and the tiles that this is done in.
///
/// What costs is memory: tiles are read and written by whole cache lines, and while one is written, the lines of the
/// next come into the second-level cache, a few at a time, since a core waits for 16 at most.
#ifndef FP8WIRE_DETAIL_BYTE_TILE_HPP
#define FP8WIRE_DETAIL_BYTE_TILE_HPP
#include <fp8wire/detail/transpose.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Where a tile is: `height` lines of `width` neighbours; line i begins at data + line_at[i].
struct tile_place {
  const u8* data;
  const i64* line_at;
  i64 height, width;
};

/// Where lines are that will be written: in the cache; in memory, so that they are fetched first; or in memory, and
/// whole, so that they are written past the cache.
enum class line_place : u8 { cached, fetched, streamed };

/// A tile of at most 64 lines of 128 bytes, on its way to the other side of the diagonal.
class byte_tile {
 public:
  static constexpr i64 most_height = line_bytes, most_width = 128;

  void read(const tile_place& from) noexcept {
    height_ = from.height, width_ = from.width;
    for (i64 i = 0; i < height_; ++i) {
      u8* to = bytes_ + i * most_width;
      const u8* line = from.data + from.line_at[i];
      if (width_ == most_width) __builtin_memcpy(to, line, most_width);
      else if (width_ == line_bytes) __builtin_memcpy(to, line, line_bytes);
      else __builtin_memcpy(to, line, static_cast<std::size_t>(width_));
    }
  }

  /// Byte j of line i to to[at(j) + i]. Streamed: lines of 64 bytes begin at multiples of 64. next: the tile that is
  /// read afterwards.
  template <line_place Lines, class At> void write(u8* to, const At& at, const tile_place& next) const noexcept {
    const strip_function strip = best_strip<Lines == line_place::streamed>();
    const i64 strips = ceil_div(width_, strip_lines);
    for (i64 n = 0; n < strips; ++n) {
      for (i64 i = next.height * n / strips; i < next.height * (n + 1) / strips; ++i)
        for (i64 j = 0; j < next.width; j += 64) __builtin_prefetch(next.data + next.line_at[i] + j, 0, 2);
      const i64 left = n * strip_lines, lines = width_ - left < strip_lines ? width_ - left : strip_lines;
      if constexpr (Lines == line_place::fetched) {
        for (i64 i = left + strip_lines; i < left + 2 * strip_lines && i < width_; ++i) {
          __builtin_prefetch(to + at(i), 1);
          __builtin_prefetch(to + at(i) + height_ - 1, 1);
        }
      }
      i64 line_at[strip_lines];
      if (height_ == line_bytes && lines == strip_lines) {
        for (i64 i = 0; i < strip_lines; ++i) line_at[i] = at(left + i);
        strip(bytes_ + left, most_width, to, line_at);
      } else {
        u8 made[strip_lines * line_bytes];
        for (i64 i = 0; i < strip_lines; ++i) line_at[i] = i * line_bytes;
        best_strip<false>()(bytes_ + left, most_width, made, line_at);
        for (i64 i = 0; i < lines; ++i)
          __builtin_memcpy(to + at(left + i), made + line_at[i], static_cast<std::size_t>(height_));
      }
    }
  }

 private:
  alignas(64) u8 bytes_[most_height * most_width] = {};  // zeros, since strips take what a ragged tile leaves out, too
  i64 height_ = 0, width_ = 0;
};

/// Bytes from an address to the next multiple of 64.
inline i64 to_whole_line(const u8* data) noexcept {
  return static_cast<i64>((line_bytes - reinterpret_cast<std::uintptr_t>(data) % line_bytes) % line_bytes);
}

/// Tiles along an extent: a short one where lines do not begin at multiples of 64, then whole ones.
struct tile_cuts {
  i64 extent, lead;
  constexpr i64 end(i64 at, i64 size) const noexcept {
    const i64 next = at < lead ? lead : at + size;
    return next < extent ? next : extent;
  }
};

/// Matrices up to here stay in the cache while they are gone through twice.
inline constexpr i64 cached_matrix = i64{1} << 20;

/// A square over its diagonal: tiles change places with those on the other side.
inline void transpose_square_in_place(u8* data, i64 extent) noexcept {
  byte_tile above, below;
  const tile_cuts cuts{extent, extent % line_bytes == 0 ? to_whole_line(data) : 0};
  i64 row_at[line_bytes], next_row_at[line_bytes];
  const auto place = [&](i64 top, i64 left, i64(&at)[line_bytes]) {
    for (i64 i = 0; i < line_bytes; ++i) at[i] = (top + i) * extent;
    return tile_place{data + left, at, cuts.end(top, line_bytes) - top, cuts.end(left, line_bytes) - left};
  };
  const auto rows_from = [extent](i64 first) { return [=](i64 i) { return (first + i) * extent; }; };
  for (i64 top = 0; top < extent; top = cuts.end(top, line_bytes)) {
    for (i64 left = top, next; left < extent; left = next) {
      next = cuts.end(left, line_bytes);
      above.read(place(top, left, row_at));
      if (left != top) {
        below.read(place(left, top, row_at));
        below.write<line_place::cached>(data + left, rows_from(top), place(top, next, next_row_at));
      }
      above.write<line_place::cached>(data + top, rows_from(left), place(next, top, next_row_at));
    }
  }
}

/// Any matrix over its diagonal, in panels of rows. A tile goes to its place if that lies in panels which are read
/// already; half of the tiles find it so. The others go aside, and follow when the panel is read that was in their way,
/// while its lines are in the cache. `rows` is a multiple of 64 where lines are streamed.
template <line_place Lines, line_place Aside>
inline void transpose_panels(u8* data, i64 rows, i64 cols, u8* scratch) noexcept {
  constexpr bool whole = Lines == line_place::streamed;
  byte_tile tile;
  const tile_cuts cuts{rows, whole ? to_whole_line(data) : 0}, col_cuts{cols, 0};
  const auto col_end = [&](i64 left) { return col_cuts.end(left, byte_tile::most_width); };
  // Rows that are read before the place of all columns up to `right` is free.
  const auto rows_aside = [&](i64 right) {
    const i64 free = ceil_div(right * rows, cols), lead = cuts.lead;
    const i64 cut = free <= lead ? lead : lead + ceil_div(free - lead, line_bytes) * line_bytes;
    return cut < rows ? cut : rows;
  };
  const auto step_aside = [&](i64 aside) { return whole ? ceil_div(aside, line_bytes) * line_bytes : aside; };
  i64 row_at[line_bytes], next_row_at[line_bytes], settled = 0;
  for (i64 top = 0, bottom; top < rows; top = bottom) {
    bottom = cuts.end(top, line_bytes);
    for (i64 i = 0; i < line_bytes; ++i) row_at[i] = (top + i) * cols, next_row_at[i] = (bottom + i) * cols;
    for (i64 left = 0, right; left < cols; left = right) {
      right = col_end(left);
      const tile_place next = right < cols
                                  ? tile_place{data + right, row_at, bottom - top, col_end(right) - right}
                                  : tile_place{data, next_row_at, cuts.end(bottom, line_bytes) - bottom, col_end(0)};
      tile.read({data + left, row_at, bottom - top, right - left});
      if (const i64 aside = rows_aside(right), step = step_aside(aside); top < aside)
        tile.write<Aside>(scratch + left * rows + top, [step](i64 i) { return i * step; }, next);
      else tile.write<Lines>(data + top, [=](i64 i) { return (left + i) * rows; }, next);
    }
    for (; settled < cols; settled = col_end(settled)) {
      const i64 right = col_end(settled), aside = rows_aside(right), step = step_aside(aside);
      if (aside > bottom) break;
      for (i64 i = 0; i < right - settled; ++i)
        __builtin_memcpy(data + (settled + i) * rows, scratch + settled * rows + i * step,
                         static_cast<std::size_t>(aside));
    }
  }
  if constexpr (whole) end_streaming();
}

/// Row-major rows x cols to row-major cols x rows in the same bytes; scratch: as many.
inline void transpose_in_place(u8* data, i64 rows, i64 cols, u8* scratch) noexcept {
  if (rows <= 1 || cols <= 1) return;
  if (rows == cols) return transpose_square_in_place(data, rows);
  constexpr line_place cached = line_place::cached, fetched = line_place::fetched, streamed = line_place::streamed;
  if (rows * cols <= cached_matrix) return transpose_panels<cached, cached>(data, rows, cols, scratch);
  if (rows % line_bytes != 0) return transpose_panels<fetched, fetched>(data, rows, cols, scratch);
  if (to_whole_line(data) != to_whole_line(scratch))
    return transpose_panels<streamed, fetched>(data, rows, cols, scratch);
  transpose_panels<streamed, streamed>(data, rows, cols, scratch);
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
