// SPDX-License-Identifier: Apache-2.0
/// Layouts made of a row map and an inner layout: rows move whole, then the inner layout stores them.
#ifndef FP8WIRE_LAYOUT_ROW_MAP_HPP
#define FP8WIRE_LAYOUT_ROW_MAP_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// Sends the rows of a matrix to the rows of another one, each to a place of its own.
/// stored_rows(rows): rows of the image, at least `rows`. to(rows, row): where a row goes. from(rows, stored): what
/// comes to a stored row, -1 for padding. accepts_rows(rows): O(1), names the rule that is broken.
template <class Map>
concept row_map = requires(i64 n) {
  { Map::id } -> std::convertible_to<std::string_view>;
  { Map::stored_rows(n) } noexcept -> std::same_as<i64>;
  { Map::to(n, n) } noexcept -> std::same_as<i64>;
  { Map::from(n, n) } noexcept -> std::same_as<i64>;
  { Map::accepts_rows(n) } noexcept -> std::same_as<shape_check>;
};

template <row_map Map, layout Inner> struct row_mapped;

namespace detail {
template <class Layout, class Map> inline constexpr bool maps_rows_by = false;
template <class First, class Inner, class Map>
inline constexpr bool maps_rows_by<row_mapped<First, Inner>, Map> =
    std::same_as<First, Map> || maps_rows_by<Inner, Map>;

template <class Inner, class... Maps> struct row_chain {
  using type = Inner;
};
template <class Inner, class First, class... Rest> struct row_chain<Inner, First, Rest...> {
  using type = row_mapped<First, typename row_chain<Inner, Rest...>::type>;
};
}  // namespace detail

/// Inner over the rows as Map orders them; the id reads "map>inner". Padding rows hold Inner's padding.
/// A shuffle applied twice is no identity, so a layout that has a map cannot be given it again.
template <row_map Map, layout Inner> struct row_mapped {
  static_assert(!detail::maps_rows_by<Inner, Map>,
                "rows are mapped by this map already, and twice is not once: name the layout with the map in it once");
  static constexpr detail::short_text id_text = detail::short_text{} << Map::id << ">" << Inner::id;
  static constexpr std::string_view id = id_text.view();
  static constexpr u32 padding_bits = Inner::padding_bits;
  static constexpr i64 packed = Inner::packed, col_run = Inner::col_run, row_run = 1, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr typename Inner::mapping inner() const noexcept {
      return {batch, Map::stored_rows(rows), cols};
    }
    FP8WIRE_HD constexpr i64 size() const noexcept { return inner().size(); }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      return inner().offset({i.batch, Map::to(rows, i.row), i.col});
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      index3 i = inner().index(offset);
      if (i.batch < 0) return i;
      i.row = Map::from(rows, i.row);
      return i.row < 0 ? index3{-1, -1, -1} : i;
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return inner().shape(); }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    if (const shape_check extents = detail::check_extents(batch, rows, cols); !extents.ok()) return extents;
    if (const shape_check mapped = Map::accepts_rows(rows); !mapped.ok()) return mapped;
    return Inner::accepts(batch, Map::stored_rows(rows), cols);
  }
};

/// Inner after the maps, the first one first: mapped_rows<swizzle_128x4, interleave_halves, shuffle_rows<32>>.
template <layout Inner, row_map... Maps> using mapped_rows = typename detail::row_chain<Inner, Maps...>::type;

FP8WIRE_ABI_END
#endif
