// SPDX-License-Identifier: Apache-2.0
/// The blocks of a tile: their scales from their amax, stored where they belong and kept for the elements.
#ifndef FP8WIRE_QUANT_KERNEL_BLOCK_SCALES_HPP
#define FP8WIRE_QUANT_KERNEL_BLOCK_SCALES_HPP
#include <fp8wire/quant/kernel/fragment.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Blocks that divide a tile evenly, so that no block has elements in two tiles.
template <class Block> inline constexpr bool divides_tile =
    Block::rows > 0 && Block::cols > 0 && tile_extent % Block::rows == 0 && tile_extent % Block::cols == 0;

/// The grid of a recipe's blocks in a tile.
template <class Recipe> struct block_grid {
  using block = typename Recipe::block;
  static_assert(divides_tile<block>,
                "a tile kernel needs a block whose extents divide 128: use kernel/partial.hpp for rows and tensors");
  static constexpr int rows = tile_extent / block::rows, cols = tile_extent / block::cols, count = rows * cols;
};

/// Stores the scale of block (row, col) of matrix `batch`. Places that hold something else than a recipe's scales, one
/// element a block, have overloads of their own (packed_scales.hpp).
template <class Context, class Scales, class Stored>
FP8WIRE_BODY void store_scale(Context& c, const Scales& scales, i64 batch, i64 row, i64 col, const Stored& scale) {
  c.store(&scales(batch, row, col), scale);
}

/// Makes, stores and keeps the scale of block (row, col) of a tile, if the matrix has that block.
/// Returns whether no element of the block can leave the finite numbers under it.
template <class Recipe, class In, class Context, class Scales>
FP8WIRE_BODY bool settle(Context& c, const Scales& scales, const tile_place& place, int row, int col, u32 amax_bits,
                         float amax_floor, float* operands) {
  using grid = block_grid<Recipe>;
  if (row * Recipe::block::rows >= place.rows || col * Recipe::block::cols >= place.cols) return true;
  const auto scale = reference::block_scale<Recipe, In>(amax_bits, amax_floor);
  c.write(operands + row * grid::cols + col, scale.operand);
  store_scale(c, scales, place.batch, i64{place.down} * grid::rows + row, i64{place.across} * grid::cols + col,
              scale.stored);
  return stays_finite<Recipe>(amax_bits, scale.operand);
}

}  // namespace kernel
FP8WIRE_ABI_END
#endif
