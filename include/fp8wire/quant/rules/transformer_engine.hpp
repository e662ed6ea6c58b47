// SPDX-License-Identifier: Apache-2.0
/// Transformer Engine's scale rules: FP32 and power-of-two block scales, and MXFP8.
#ifndef FP8WIRE_QUANT_RULES_TRANSFORMER_ENGINE_HPP
#define FP8WIRE_QUANT_RULES_TRANSFORMER_ENGINE_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V5 of docs/numerics.md: m = RN(max / amax), s = RN(1 / m), code = cast(RN(x * m)).
/// Zero, Inf: m = s = 1. m beyond FP32: the input type's largest. NaN elements leave amax alone.
/// Source: Transformer Engine common/recipe/recipe_common.cuh:14-49 at d0067d0 (direct kernels).
struct te_fp32 {
  using stored = float;
  static constexpr std::string_view id = "m=max/amax;s=1/m;x*m";
  static constexpr bool nan_poisons_amax = false;
  static constexpr element_op op = element_op::multiply;
  FP8WIRE_HD static constexpr float multiplier(float amax, limits bounds) noexcept {
    const u32 bits = bits_of(amax);
    if (!f32::is_finite(bits) || f32::is_zero(bits)) return 1.0f;
    const float scale = ieee::div(bounds.element_max, amax);
    return f32::is_inf(bits_of(scale)) ? bounds.input_max : scale;
  }
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = multiplier(amax, bounds);
    return {ieee::div(1.0f, scale), scale};
  }
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::mul(element, operand); }
};

/// The same with m rounded down to a power of two, so that s = 1/m is one too (2^-127 at the least, a subnormal).
/// Source: the same lines, `force_pow_2_scales`.
struct te_pow2 {
  using stored = float;
  static constexpr std::string_view id = "m=pow2_floor(max/amax);s=1/m;x*m";
  static constexpr bool nan_poisons_amax = false;
  static constexpr element_op op = element_op::multiply;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = float_of(bits_of(te_fp32::multiplier(amax, bounds)) & 0xFF800000u);
    return {ieee::div(1.0f, scale), scale};
  }
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::mul(element, operand); }
};

/// MXFP8: byte = round_up(RN(amax * RN(1/max))), code = cast(RN(x * 2^(127 - byte))).
/// Zero: byte 0. Inf: byte 254. NaN elements leave amax alone.
/// The product, not the quotient, is rounded up: they differ for one FP32 amax (04600001 for E4M3).
/// Source: Transformer Engine common/cast/mxfp8/quantize_mxfp8.cuh:440-461, common/utils.cuh:1040 at d0067d0.
struct te_mx {
  using stored = e8m0;
  static constexpr std::string_view id = "b=up(amax*rcp(max));x*2^(127-b)";
  static constexpr bool nan_poisons_amax = false;
  static constexpr element_op op = element_op::multiply;
  FP8WIRE_HD static constexpr scale_pair<e8m0> make(float amax, limits bounds) noexcept {
    const e8m0 byte = e8m0_round_up(ieee::mul(amax, ieee::div(1.0f, bounds.element_max)));
    return {byte, reciprocal(byte)};
  }
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::mul(element, operand); }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
