// SPDX-License-Identifier: Apache-2.0
/// FP32 scale amax/max, element divided by it: the rule of vLLM's CUDA kernels and of SkyRL's CPU path.
#ifndef FP8WIRE_QUANT_RULES_QUOTIENT_HPP
#define FP8WIRE_QUANT_RULES_QUOTIENT_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V1 of docs/numerics.md: s = RN(amax / max), code = cast(RN(x / s)).
/// Zero: s = 1. A quotient that underflows to zero: s = 1 as well, so that no code becomes NaN. Inf: s = Inf, finite
/// elements become 0 and Inf becomes NaN. NaN elements leave amax alone.
/// Source: vLLM csrc/quantization/w8a8/fp8/per_token_group_quant.cu at 0f5257e.
struct quotient {
  using stored = float;
  static constexpr std::string_view id = "s=amax/max;x/s";
  static constexpr bool nan_poisons_amax = false;
  static constexpr element_op op = element_op::divide;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    float scale = ieee::div(amax, bounds.element_max);
    if (f32::is_zero(bits_of(scale))) scale = 1.0f;
    return {scale, scale};
  }
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::div(element, operand); }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
