// SPDX-License-Identifier: Apache-2.0
/// Block scales rounded up to a power of two before anything is divided by them, and where the tools clamp them.
///
/// All correct formulas agree on the power; ceil(log2f(.)) does not, so the exponent is taken from the bits
/// (docs/numerics.md names the amax where a tool's log2 form differs: never one that comes from BF16).
#ifndef FP8WIRE_QUANT_RULES_POWER_OF_TWO_HPP
#define FP8WIRE_QUANT_RULES_POWER_OF_TWO_HPP
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// The biased exponent of |value| rounded up to a power of two: 0 for zero, 1 for subnormals, 255 for Inf, 256 for NaN.
FP8WIRE_HD constexpr int exponent_up(float value) noexcept {
  const u32 magnitude = f32::magnitude(bits_of(value));
  return static_cast<int>(magnitude >> 23) + ((magnitude & f32::mantissa_mask) != 0 ? 1 : 0);
}
FP8WIRE_HD constexpr float power_of_two(int exponent) noexcept { return float_of(static_cast<u32>(exponent) << 23); }

}  // namespace detail
namespace rules {

/// e = exponent of RN(amax / max) rounded up, clamped to 1..254; s = 2^(e - 127); code = cast(RN(x / s)).
/// Stored as FP32 or as the byte e. Inf and NaN amax: e = 254.
/// Source: DeepGEMM deep_gemm/utils/math.py:13-16, 57-60 at 54e2261.
template <stored_scale Stored> struct deepgemm_ue8m0 : multiplies {
  using stored = Stored;
  static constexpr std::string_view id = "e=up(amax/max)[1,254];s=2^e;x*(1/s)";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<Stored> make(float amax, limits bounds) noexcept {
    int exponent = detail::exponent_up(ieee::div(amax, bounds.element_max));
    exponent = exponent < 1 ? 1 : exponent > 254 ? 254 : exponent;
    const float operand = reciprocal(e8m0{static_cast<u8>(exponent)});
    if constexpr (std::same_as<Stored, e8m0>) return {{static_cast<u8>(exponent)}, operand};
    else return {detail::power_of_two(exponent), operand};
  }
};

/// s = RN(amax / max) raised to 1e-10, then rounded up to a power of two; code = cast(RN(x * (1 / s))).
/// Zero: 2^-33, byte 94. Inf: s = Inf. NaN elements leave amax alone.
/// Source: vLLM csrc/quantization/w8a8/fp8/per_token_group_quant.cu at 0f5257e, SCALE_UE8M0, register path.
struct vllm_ue8m0 : multiplies {
  using stored = float;
  static constexpr std::string_view id = "s=pow2_up(amax/max>1e-10);x*(1/s)";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    constexpr u32 least = bits_of(1e-10f);
    const u32 quotient = bits_of(ieee::div(amax, bounds.element_max));
    const float scale = detail::power_of_two(detail::exponent_up(float_of(quotient < least ? least : quotient)));
    return {scale, ieee::div(1.0f, scale)};
  }
};

/// s = RN(amax / max) rounded up to a power of two; code = cast(RN(x / s)). Zero: s = 1. Inf: s = Inf. NaN: all NaN.
/// Source: SkyRL blockwise_cast_to_fp8 with power_2_scale (pow(2, ceil(log2(scale)))).
struct skyrl_pow2 : divides {
  using stored = float;
  static constexpr std::string_view id = "s=pow2_up(amax/max);x/s";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float quotient = ieee::div(amax, bounds.element_max);
    if (f32::is_nan(bits_of(quotient))) return {quotient, quotient};
    if (f32::is_zero(bits_of(quotient))) return {1.0f, 1.0f};
    const float scale = detail::power_of_two(detail::exponent_up(quotient));
    return {scale, scale};
  }
};

/// byte = RN(amax / max) rounded up as E8M0; byte 0 means s = 1 (not 2^-127), so that tiny blocks flush; s = 2^(byte -
/// 127).
/// code = cast(RN(x / s)). Zero: s = 1. Inf: byte 254. NaN: s = 1, the NaN elements become NaN.
/// Source: NeMo-RL nemo_rl/models/generation/vllm/quantization/fp8.py:580-594 at 7ea279a.
struct nemo_pow2 : multiplies {
  using stored = float;
  static constexpr std::string_view id = "b=up(amax/max);b=0:s=1;s=2^b;x*(1/s)";
  static constexpr bool nan_poisons_amax = true;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const e8m0 byte = e8m0_round_up(ieee::div(amax, bounds.element_max));
    if (byte.bits == 0 || byte.bits == e8m0::nan_code) return {1.0f, 1.0f};
    return {to_float(byte), reciprocal(byte)};
  }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
