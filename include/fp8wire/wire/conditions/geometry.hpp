// SPDX-License-Identifier: Apache-2.0
/// Condition C5 on live data: weights read back at chosen coordinates, where wrong geometry shows and shapes do not.
///
/// A transposed square, a shard that starts 64 rows late, gate in the place of up: every size and every checksum is
/// right then, and each value is somebody else's.
#ifndef FP8WIRE_WIRE_CONDITIONS_GEOMETRY_HPP
#define FP8WIRE_WIRE_CONDITIONS_GEOMETRY_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/layout/concept.hpp>
#include <fp8wire/model/wire_format.hpp>
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {

/// First and last position of the first blocks along an axis and of the last one, ascending, each once.
inline std::vector<i64> probe_positions(i64 extent, i64 block, i64 most_blocks) {
  std::vector<i64> found;
  const i64 size = block > 0 ? block : (extent > 0 ? extent : 1), blocks = ceil_div(extent, size);
  for (i64 b = 0; b < blocks; ++b) {
    if (b == most_blocks) b = blocks - 1;
    const i64 last = (b + 1) * size < extent ? (b + 1) * size - 1 : extent - 1;
    found.push_back(b * size);
    if (last != b * size) found.push_back(last);
  }
  return found;
}

}  // namespace detail

/// Coordinates that tell block grids, orientations and offsets apart: both ends of the first blocks of every axis and
/// of the last one, for the first and the last matrix of a batch. A block extent of 0 covers the matrix.
/// At most 2 * (2 * (most_blocks + 1))^2 of them.
inline std::vector<index3> geometry_probes(const matrix_extents& of, i64 block_rows, i64 block_cols,
                                           i64 most_blocks = 3) {
  std::vector<index3> found;
  const std::vector<i64> rows = detail::probe_positions(of.rows, block_rows, most_blocks);
  const std::vector<i64> cols = detail::probe_positions(of.cols, block_cols, most_blocks);
  for (i64 b = 0; b < of.batch; b += of.batch > 1 ? of.batch - 1 : 1)
    for (const i64 row : rows)
      for (const i64 col : cols) found.push_back({b, row, col});
  return found;
}

/// What a pair decodes to at (batch, row, col). Codes and scales: matrix_view or laid_out, so that the same words read
/// canonical bytes and an engine's swizzled ones. Expects: both outlive the function.
template <any_recipe Recipe, class Codes, class Scales> auto values_of(const Codes& codes, const Scales& scales) {
  const i64 height = detail::block_extent(Recipe::block::rows, codes.rows);
  const i64 width = detail::block_extent(Recipe::block::cols, codes.cols);
  return [codes, scales, height, width](i64 b, i64 row, i64 col) {
    return reference::decode<Recipe>(codes(b, row, col), scales(b, row / height, col / width));
  };
}

/// Compares an engine's live weights with what was sent to it, at the probes. `sent`, `live`: float(batch, row, col),
/// of the tensor as the manifest has it; whoever fused, sharded or shuffled it looks up where the element should be.
/// Errors: wrong_shape (C5) with the first coordinate that differs, FP32 bits as numbers.
/// Cost: two look-ups a probe, some hundred probes a tensor at most.
template <class Sent, class Live>
error check_geometry(std::string_view tensor, const std::vector<index3>& probes, const Sent& sent, const Live& live) {
  for (const index3& at : probes) {
    const u32 wanted = bits_of(sent(at.batch, at.row, at.col)), got = bits_of(live(at.batch, at.row, at.col));
    if (got == wanted || (f32::is_nan(got) && f32::is_nan(wanted))) continue;
    return make_error(errc::wrong_shape, std::string(tensor),
                      std::string("element (")
                          .append(std::to_string(at.batch))
                          .append(", ")
                          .append(std::to_string(at.row))
                          .append(", ")
                          .append(std::to_string(at.col))
                          .append(") is served from another place; its bits"),
                      static_cast<i64>(got), static_cast<i64>(wanted), condition::c5_geometry);
  }
  return {};
}

/// Fills a pair so that no two blocks have the same scale and neighbours no common code: an update of such pairs proves
/// an engine's loader before the first real one, where trained weights might look alike.
/// E8M0 has 255 numbers: blocks repeat after 251 of them, a prime, so that no transposition maps them onto themselves.
template <any_recipe Recipe> void fill_position_probe(const pair_view<Recipe>& pair, u32 salt = 0) {
  using stored = stored_t<Recipe>;
  for (i64 b = 0; b < pair.codes.batch; ++b) {
    for (i64 row = 0; row < pair.codes.rows; ++row)
      for (i64 col = 0; col < pair.codes.cols; ++col)
        pair.codes(b, row, col) = static_cast<u8>(1 + (static_cast<u64>(113 * b + 31 * row + 7 * col) + salt) % 119);
    for (i64 row = 0; row < pair.scales.rows; ++row)
      for (i64 col = 0; col < pair.scales.cols; ++col) {
        const u64 number = static_cast<u64>((b * pair.scales.rows + row) * pair.scales.cols + col) + salt;
        if constexpr (std::same_as<stored, e8m0>) pair.scales(b, row, col) = e8m0{static_cast<u8>(2 + number % 251)};
        else if constexpr (std::same_as<stored, bf16>)
          pair.scales(b, row, col) = bf16{static_cast<u16>(0x3800 + number % 2039)};
        else pair.scales(b, row, col) = float_of(f32::one + static_cast<u32>(number % 8388593));
      }
  }
}

FP8WIRE_ABI_END
#endif
