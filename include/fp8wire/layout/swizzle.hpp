// SPDX-License-Identifier: Apache-2.0
/// The tiled E8M0 scale layouts of block-scaled tensor cores: 128x4 and 8x4.
#ifndef FP8WIRE_LAYOUT_SWIZZLE_HPP
#define FP8WIRE_LAYOUT_SWIZZLE_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// Tiles of TileRows x 4 scales, the tiles of one row band side by side; inside a tile the rows r, r + Lanes ... lie
/// beside each other, 4 bytes each. With T = ceil(cols / 4) tiles a band and t = TileRows * 4 bytes a tile:
/// offset(b, m, k) = b * size/batch + ((m / TileRows) * T + k / 4) * t + (m % Lanes) * t/Lanes
///                 + (m % TileRows) / Lanes * 4 + k % 4.
/// rows x cols: the scale grid, cols = K/32. Padding: rows to TileRows, cols to 4, byte 00 (FF is NaN). Every shape.
template <i64 TileRows, i64 Lanes> struct tiled_scales {
  static constexpr detail::short_text id_text = detail::short_text{} << "swizzle-" << TileRows << "x4";
  static constexpr std::string_view id = id_text.view();
  static constexpr u32 padding_bits = 0;
  static constexpr i64 packed = 1, col_run = 4, row_run = TileRows / Lanes > 1 ? TileRows / Lanes : TileRows;
  static constexpr i64 row_step = TileRows / Lanes > 1 ? Lanes : 1;
  static constexpr i64 tile_size = TileRows * 4;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 bands() const noexcept { return ceil_div(rows, TileRows); }
    FP8WIRE_HD constexpr i64 tiles() const noexcept { return ceil_div(cols, 4); }
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * bands() * tiles() * tile_size; }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      const i64 tile = (i.batch * bands() + i.row / TileRows) * tiles() + i.col / 4;
      return tile * tile_size + i.row % Lanes * (tile_size / Lanes) + i.row % TileRows / Lanes * 4 + i.col % 4;
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      const i64 tile = offset / tile_size, inside = offset % tile_size;
      const i64 lane = inside / (tile_size / Lanes), group = inside % (tile_size / Lanes) / 4;
      const i64 band = tile / tiles() % bands();
      const i64 row = band * TileRows + group * Lanes + lane, col = tile % tiles() * 4 + inside % 4;
      if (row >= rows || col >= cols) return {-1, -1, -1};
      return {tile / tiles() / bands(), row, col};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {1, {bands() * tiles() * tile_size}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols, TileRows, 4);
  }
};

/// What cuBLASLt, CUTLASS SM100/SM120, FlashInfer, torch._scaled_mm and vLLM read; 512 bytes hold 128 x 4 scales.
/// Source: CUTLASS detail/sm100_blockscaled_layout.hpp:54-108 at 7107b05; FlashInfer quantization_utils.cuh:931-1022.
using swizzle_128x4 = tiled_scales<128, 32>;

/// The low-latency activation layout of trtllm-gen; 32 bytes hold 8 x 4 scales.
/// Source: FlashInfer csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh at fb28d72.
using swizzle_8x4 = tiled_scales<8, 8>;

static_assert(layout<swizzle_128x4> && layout<swizzle_8x4>);

FP8WIRE_ABI_END
#endif
