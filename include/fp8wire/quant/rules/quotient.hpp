// SPDX-License-Identifier: Apache-2.0
/// Rules that store amax / max, a true division: V1, V2 and V8 of docs/numerics.md.
#ifndef FP8WIRE_QUANT_RULES_QUOTIENT_HPP
#define FP8WIRE_QUANT_RULES_QUOTIENT_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V1: s = RN(amax / max), code = cast(RN(x / s)).
/// Zero: s = 1. A quotient that underflows to zero: s = 1 as well, so that no code becomes NaN. Inf: s = Inf, finite
/// elements become 0 and Inf becomes NaN. NaN elements leave amax alone.
/// Source: vLLM csrc/quantization/w8a8/fp8/per_token_group_quant.cu at 0f5257e.
struct quotient : divides {
  using stored = float;
  static constexpr std::string_view id = "s=amax/max;x/s";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    float scale = ieee::div(amax, bounds.element_max);
    if (f32::is_zero(bits_of(scale))) scale = 1.0f;
    return {scale, scale};
  }
};

/// V2: s as V1, code = cast(RN(x * RN(1 / s))). Zero as V1. Inf: s = Inf, finite elements become 0, Inf becomes NaN.
/// Source: DeepGEMM deep_gemm/utils/math.py:57-60 at 54e2261 on a CPU tensor.
struct quotient_reciprocal : multiplies {
  using stored = float;
  static constexpr std::string_view id = "s=amax/max;x*(1/s)";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = quotient::make(amax, bounds).stored;
    return {scale, ieee::div(1.0f, scale)};
  }
};

/// s = RN(amax / max), zero becomes the machine epsilon 2^-23; code = cast(RN(x / s)).
/// Source: compressed-tensors quantization/utils/helpers.py calculate_qparams of 0.20.1, FP32 weights.
struct quotient_or_epsilon : divides {
  using stored = float;
  static constexpr std::string_view id = "s=amax/max|2^-23;x/s";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    float scale = ieee::div(amax, bounds.element_max);
    if (f32::is_zero(bits_of(scale))) scale = float_of(0x34000000u);
    return {scale, scale};
  }
};

/// V8: s = BF16(amax / max), zero becomes the machine epsilon 2^-7; code = cast(BF16(x / s)).
/// Source: compressed-tensors quantization/utils/helpers.py, lifecycle/forward_helpers.py of 0.20.1, BF16 weights.
struct bf16_quotient : divides_in_bf16 {
  using stored = bf16;
  static constexpr std::string_view id = "s=bf16(amax/max)|2^-7;bf16(x/s)";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<bf16> make(float amax, limits bounds) noexcept {
    bf16 scale = to_bf16(ieee::div(amax, bounds.element_max));
    if (scale.bits == 0) scale.bits = 0x3C00;
    return {scale, to_float(scale)};
  }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
