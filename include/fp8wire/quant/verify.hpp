// SPDX-License-Identifier: Apache-2.0
/// Proves that codes and scales are what a recipe makes of the given weights, byte by byte.
#ifndef FP8WIRE_QUANT_VERIFY_HPP
#define FP8WIRE_QUANT_VERIFY_HPP
#include <fp8wire/quant/quantize.hpp>

FP8WIRE_ABI_BEGIN

/// The first byte that differs; `found` is false when none does.
struct mismatch {
  bool found = false;
  bool in_scale = false;        // row and col then count scales
  i64 batch = 0, row = 0, col = 0;
  u32 got = 0, expected = 0;    // a code, or the bits of a stored scale
};

namespace detail {
constexpr u32 stored_bits(float scale) noexcept { return bits_of(scale); }
constexpr u32 stored_bits(bf16 scale) noexcept { return scale.bits; }
constexpr u32 stored_bits(e8m0 scale) noexcept { return scale.bits; }
}  // namespace detail

/// Compares with the scalar definition (quant/reference.hpp), never with a fast path. Writes and allocates nothing.
/// Shapes as in quantize. Throws: precondition_error if they disagree.
template <any_recipe Recipe, class In>
constexpr mismatch verify(matrix_view<const In> in, const_pair_view<Recipe> pair,
                          float amax_floor = Recipe::num.amax_floor) {
  detail::expect_pair<Recipe, In>(in, pair);
  detail::expect_floor(amax_floor);
  if (in.size() == 0) return {};
  for (i64 b = 0; b < in.batch; ++b) {
    const matrix_view<const In> matrix = in.slice_of(b);
    for (i64 block_row = 0; block_row < pair.scales.rows; ++block_row) {
      for (i64 block_col = 0; block_col < pair.scales.cols; ++block_col) {
        bool nonfinite = false;
        const slice area = reference::block_area<Recipe, In>(matrix, block_row, block_col);
        const auto scale =
            reference::block_scale<Recipe, In>(reference::block_amax<Recipe, In>(matrix, area, nonfinite), amax_floor);
        const u32 got = detail::stored_bits(pair.scales(b, block_row, block_col)),
                  expected = detail::stored_bits(scale.stored);
        if (got != expected) return {true, true, b, block_row, block_col, got, expected};
        for (i64 row = area.row; row < area.row + area.rows; ++row) {
          for (i64 col = area.col; col < area.col + area.cols; ++col) {
            const u8 code = reference::encode<Recipe, In>(matrix(row, col), scale.operand);
            if (pair.codes(b, row, col) != code) return {true, false, b, row, col, pair.codes(b, row, col), code};
          }
        }
      }
    }
  }
  return {};
}

FP8WIRE_ABI_END
#endif
