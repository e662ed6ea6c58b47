// SPDX-License-Identifier: Apache-2.0
/// One block at a time, as the rule reads: the definition that every faster path is compared with.
#ifndef FP8WIRE_QUANT_REFERENCE_HPP
#define FP8WIRE_QUANT_REFERENCE_HPP
#include <fp8wire/core/slice.hpp>
#include <fp8wire/quant/recipe.hpp>

FP8WIRE_ABI_BEGIN
namespace reference {

/// The FP32 value that a weight enters the recipe with.
template <any_recipe Recipe, class In> FP8WIRE_HD constexpr float load(In weight) noexcept {
  float value = to_float(weight);
  if constexpr (std::same_as<In, float> && Recipe::num.f32_through_bf16) value = to_float(to_bf16(value));
  return value;
}

/// The rows and columns of `in` that block (block_row, block_col) covers.
template <any_recipe Recipe, class In>
FP8WIRE_HD constexpr slice block_area(const matrix_view<const In>& in, i64 block_row, i64 block_col) noexcept {
  const i64 height = detail::block_extent(Recipe::block::rows, in.rows),
            width = detail::block_extent(Recipe::block::cols, in.cols);
  const i64 row = block_row * height, col = block_col * width;
  return {row, col, in.rows - row < height ? in.rows - row : height, in.cols - col < width ? in.cols - col : width};
}

/// Bits of max(|x|) over one block of a single matrix, before the floor; NaN takes part only if the rule says so.
/// `nonfinite` becomes true when the block holds NaN or Inf.
template <any_recipe Recipe, class In>
FP8WIRE_HD constexpr u32 block_amax(const matrix_view<const In>& in, slice area, bool& nonfinite) noexcept {
  u32 largest = 0;
  const auto see = [&](In weight) {
    const u32 magnitude = f32::magnitude(bits_of(load<Recipe>(weight)));
    if (f32::is_nan(magnitude) && !Recipe::rule::nan_poisons_amax) return;
    if (magnitude > largest) largest = magnitude;  // NaN bits compare above Inf
  };
  for (i64 row = area.row; row < area.row + area.rows; ++row) {
    for (i64 col = area.col; col < area.col + area.cols; ++col) {
      if (!f32::is_finite(bits_of(to_float(in(row, col))))) nonfinite = true;
      see(in(row, col));
    }
  }
  if constexpr (Recipe::num.edge == edge_pad::last_element) {
    const bool ragged = area.rows < detail::block_extent(Recipe::block::rows, in.rows) ||
                        area.cols < detail::block_extent(Recipe::block::cols, in.cols);
    if (ragged) see(in(in.rows - 1, in.cols - 1));
  }
  return largest;
}

/// The scale of a block from its amax bits: the floor first, then the rule.
template <any_recipe Recipe, class In>
FP8WIRE_HD constexpr scale_pair<stored_t<Recipe>> block_scale(u32 amax_bits, float amax_floor) noexcept {
  // Magnitudes order as their bits do; a NaN stays above every floor.
  const u32 floor_bits = f32::magnitude(bits_of(amax_floor));
  const u32 floored = amax_bits < floor_bits ? floor_bits : amax_bits;
  return Recipe::rule::make(float_of(floored), limits_of<Recipe, In>());
}

/// The code of one weight under its block's operand.
template <any_recipe Recipe, class In> FP8WIRE_HD constexpr u8 encode(In weight, float operand) noexcept {
  float value = load<Recipe>(weight);
  if constexpr (!Recipe::num.keep_negative_zero) {
    if (bits_of(value) == f32::sign_mask) value = 0.0f;
  }
  return Recipe::element::encode(Recipe::rule::apply(value, operand));
}

/// The value of a code under its stored scale, rounded to FP32 once.
/// Source: every reader multiplies; the product of a 4-bit significand and a power of two is exact.
template <any_recipe Recipe> FP8WIRE_HD constexpr float decode(u8 code, stored_t<Recipe> scale) noexcept {
  return ieee::mul(Recipe::element::decode(code), to_float(scale));
}

/// Quantizes the blocks of one block row of a single matrix. Returns whether the row holds NaN or Inf.
/// codes: what is indexed by row and column.
template <any_recipe Recipe, class In, class Codes>
FP8WIRE_HD constexpr bool quantize_block_row(const matrix_view<const In>& in, i64 block_row, const Codes& codes,
                                             const matrix_view<stored_t<Recipe>>& scales, float amax_floor) noexcept {
  bool nonfinite = false;
  for (i64 block_col = 0; block_col < scales.cols; ++block_col) {
    const slice area = block_area<Recipe, In>(in, block_row, block_col);
    const u32 amax = block_amax<Recipe, In>(in, area, nonfinite);
    const auto scale = block_scale<Recipe, In>(amax, amax_floor);
    scales(block_row, block_col) = scale.stored;
    for (i64 row = area.row; row < area.row + area.rows; ++row)
      for (i64 col = area.col; col < area.col + area.cols; ++col)
        codes(row, col) = encode<Recipe, In>(in(row, col), scale.operand);
  }
  return nonfinite;
}

}  // namespace reference
FP8WIRE_ABI_END
#endif
