// SPDX-License-Identifier: Apache-2.0
/// Rules that store amax * fl(1 / max): V3, V4 and V9 of docs/numerics.md.
///
/// A compiler or CUDA torch that divides by a constant multiplies by its rounded reciprocal instead, and the stored
/// scale differs from the true quotient by an ulp in more than half of all blocks.
#ifndef FP8WIRE_QUANT_RULES_PRODUCT_HPP
#define FP8WIRE_QUANT_RULES_PRODUCT_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V9: s = RN(amax * RN(1 / max)), code = cast(RN(x / s)). A scale of zero becomes 1. Inf as V1.
/// Source: SkyRL quantize.py on a CUDA tensor (torch BinaryDivTrueKernel.cu); DeepSeek-V3.2 act_quant.
struct product : divides {
  using stored = float;
  static constexpr std::string_view id = "s=amax*rcp(max);x/s";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    float scale = ieee::mul(amax, bounds.element_max_reciprocal);
    if (f32::is_zero(bits_of(scale))) scale = 1.0f;
    return {scale, scale};
  }
};

/// V3: s as V9, code = cast(RN(x * RN(1 / s))).
/// Source: DeepGEMM deep_gemm/utils/math.py:57-60 at 54e2261 on a CUDA tensor; model of Triton's `/`.
struct product_reciprocal : multiplies {
  using stored = float;
  static constexpr std::string_view id = "s=amax*rcp(max);x*(1/s)";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = product::make(amax, bounds).stored;
    return {scale, ieee::div(1.0f, scale)};
  }
};

/// V4: s as V9, code = cast(RN(x * RN(max / amax))); scale and multiplier are not reciprocals of each other.
/// A scale of zero becomes 1, and its multiplier too.
/// Source: SGLang sgl-kernel per_token_group_quant_8bit; DeepEP calculate_fp8_scales.
struct product_quotient : multiplies {
  using stored = float;
  static constexpr std::string_view id = "s=amax*rcp(max);x*(max/amax)";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = ieee::mul(amax, bounds.element_max_reciprocal);
    if (f32::is_zero(bits_of(scale))) return {1.0f, 1.0f};
    return {scale, ieee::div(bounds.element_max, amax)};
  }
};

/// V4f: V4 with the multiplier formed as RN(max * RN(1 / amax)), the model of an approximate division.
/// Source: SGLang's newer Triton kernels (div_approx_ftz_f32).
struct product_approximate : multiplies {
  using stored = float;
  static constexpr std::string_view id = "s=amax*rcp(max);x*(max*rcp(amax))";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = ieee::mul(amax, bounds.element_max_reciprocal);
    if (f32::is_zero(bits_of(scale))) return {1.0f, 1.0f};
    return {scale, ieee::mul(bounds.element_max, ieee::div(1.0f, amax))};
  }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
