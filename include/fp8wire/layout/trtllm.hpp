// SPDX-License-Identifier: Apache-2.0
/// The row shuffle of trtllm-gen kernels and the weight and scale layouts that are made of it.
#ifndef FP8WIRE_LAYOUT_TRTLLM_HPP
#define FP8WIRE_LAYOUT_TRTLLM_HPP
#include <fp8wire/layout/block_major_k.hpp>
#include <fp8wire/layout/moe_rows.hpp>
#include <fp8wire/layout/row_major.hpp>
#include <fp8wire/layout/swizzle.hpp>

FP8WIRE_ABI_BEGIN

/// Inside every block of Block rows, row o goes to (o % (Block/8)) * 8 + o / (Block/8).
/// Block: 32 for an epilogue tile of 128 rows, 16 for one of 64. Shape: rows a multiple of Block.
/// Source: FlashInfer flashinfer/utils.py:1002-1087 at fb28d72 (shuffle_matrix_a).
template <i64 Block> struct shuffle_rows {
  static_assert(Block == 32 || Block == 16, "shuffle_rows: Block is 32 (epilogue tile 128) or 16 (epilogue tile 64)");
  static constexpr detail::short_text id_text = detail::short_text{} << "shuffle-rows-" << Block;
  static constexpr std::string_view id = id_text.view();
  static constexpr i64 ways = Block / 8;
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return rows; }
  FP8WIRE_HD static constexpr i64 to(i64, i64 row) noexcept {
    const i64 inside = row % Block;
    return row - inside + inside % ways * 8 + inside / ways;
  }
  FP8WIRE_HD static constexpr i64 from(i64, i64 stored) noexcept {
    const i64 inside = stored % Block;
    return stored - inside + inside % 8 * ways + inside / 8;
  }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64 rows) noexcept {
    if (rows % Block != 0) return {"rows are not a multiple of the shuffle block", rows, detail::round_up(rows, Block)};
    return {};
  }
};
static_assert(row_map<shuffle_rows<32>> && row_map<shuffle_rows<16>>);

/// MXFP8 codes and scales of a linear or w2 weight: shuffled, scales then swizzled (that order is mandatory).
using trtllm_mxfp8_codes = mapped_rows<row_major, shuffle_rows<32>>;
using trtllm_mxfp8_scales = mapped_rows<swizzle_128x4, shuffle_rows<32>>;

/// MXFP8 codes and scales of canonical w13 = [gate; up]: up first, interleaved, shuffled.
/// Source: vLLM's and FlashInfer's trtllm-gen MoE; the kernel computes silu(second half) * first half.
using trtllm_mxfp8_w13_codes = mapped_rows<row_major, swap_halves, interleave_halves, shuffle_rows<32>>;
using trtllm_mxfp8_w13_scales = mapped_rows<swizzle_128x4, swap_halves, interleave_halves, shuffle_rows<32>>;

/// The same as SGLang makes them of what it loads: the halves stay where they are.
/// Source: SGLang flashinfer_trtllm.py of mid-2026, MXFP8 and per-tensor FP8 (whose scales are one an expert).
using sglang_w13_codes = mapped_rows<row_major, interleave_halves, shuffle_rows<32>>;
using sglang_w13_scales = mapped_rows<swizzle_128x4, interleave_halves, shuffle_rows<32>>;

/// Block FP8 codes (128 x 128, FP32 scales kept row-major): tile 64, BlockMajorK; w13 up first, never interleaved.
using trtllm_fp8_block_codes = mapped_rows<block_major_k<128>, shuffle_rows<16>>;
using trtllm_fp8_block_w13_codes = mapped_rows<block_major_k<128>, swap_halves, shuffle_rows<16>>;

/// Canonical w13 with the up half first, codes or scales (TensorRT-LLM's w3_w1, FlashInfer CUTLASS block FP8 MoE).
using up_first = mapped_rows<row_major, swap_halves>;

FP8WIRE_ABI_END
#endif
