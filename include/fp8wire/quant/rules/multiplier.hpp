// SPDX-License-Identifier: Apache-2.0
/// Rules that form the multiplier first and store its inverse: V6 and V7 of docs/numerics.md.
#ifndef FP8WIRE_QUANT_RULES_MULTIPLIER_HPP
#define FP8WIRE_QUANT_RULES_MULTIPLIER_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V6: m = RN(max * RN(1 / amax)), s = RN(1 / m), code = cast(RN(x * m)).
/// Zero, Inf: m = s = 1. 0 < amax < 1.32e-36: m = Inf and s = 0, so that zeros become NaN, as the tool has it. NaN: all
/// NaN.
/// Source: NeMo-RL nemo_rl/models/generation/vllm/quantization/fp8.py:596-601 at 7ea279a; torch evaluates
/// `448.0 / tensor` as tensor.reciprocal() * 448.
struct nemo : multiplies {
  using stored = float;
  static constexpr std::string_view id = "m=max*rcp(amax)|1;s=1/m;x*m";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const u32 bits = bits_of(amax);
    if (f32::is_zero(bits) || f32::is_inf(bits)) return {1.0f, 1.0f};
    const float scale = ieee::mul(bounds.element_max, ieee::div(1.0f, amax));
    return {ieee::div(1.0f, scale), scale};
  }
};

/// V7: m = RN(max / amax), s = RN(1 / m), code = cast(RN(x * m)); the tool's FP64 division rounds to the same FP32.
/// Zero: m = s = 1 (unreachable under the tool's floor of 1e-12). Inf: m = 0, s = Inf. NaN: all NaN.
/// Source: torchao float8/float8_utils.py:45-48, prototype/blockwise_fp8_training/kernels.py of 0.18.0.
struct torchao : multiplies {
  using stored = float;
  static constexpr std::string_view id = "m=max/amax;s=1/m;x*m;inf=0";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    if (f32::is_zero(bits_of(amax))) return {1.0f, 1.0f};
    const float scale = ieee::div(bounds.element_max, amax);
    return {ieee::div(1.0f, scale), scale};
  }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
