// SPDX-License-Identifier: Apache-2.0
/// BlockMajorK: K is cut into blocks, and each block holds its piece of every row.
#ifndef FP8WIRE_LAYOUT_BLOCK_MAJOR_K_HPP
#define FP8WIRE_LAYOUT_BLOCK_MAJOR_K_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// With T = ceil(cols / BlockK): offset(b, m, k) = ((b * T + k / BlockK) * rows + m) * BlockK + k % BlockK, for codes.
/// Stored as [T, rows, BlockK]. Padding: the last block beyond `cols`, zero. Every shape; the kernels that read it want
/// whole blocks (model/legality.hpp).
/// Source: FlashInfer flashinfer/fused_moe/core.py:417-570 at fb28d72 (WeightLayout::BlockMajorK, block_k = 128).
template <i64 BlockK = 128> struct block_major_k {
  static_assert(BlockK > 0 && (BlockK & (BlockK - 1)) == 0, "block_major_k: BlockK must be a power of two");
  static constexpr detail::short_text id_text = detail::short_text{} << "block-major-k-" << BlockK;
  static constexpr std::string_view id = id_text.view();
  static constexpr u32 padding_bits = 0;
  static constexpr i64 packed = 1, col_run = BlockK, row_run = whole_run, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 blocks() const noexcept { return ceil_div(cols, BlockK); }
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * blocks() * rows * BlockK; }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      return ((i.batch * blocks() + i.col / BlockK) * rows + i.row) * BlockK + i.col % BlockK;
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      const i64 line = offset / BlockK, block = line / rows;
      const i64 col = block % blocks() * BlockK + offset % BlockK;
      if (col >= cols) return {-1, -1, -1};
      return {block / blocks(), line % rows, col};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {3, {blocks(), rows, BlockK}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols, 1, BlockK);
  }
};
static_assert(layout<block_major_k<>>);

FP8WIRE_ABI_END
#endif
