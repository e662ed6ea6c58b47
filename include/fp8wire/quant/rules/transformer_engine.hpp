// SPDX-License-Identifier: Apache-2.0
/// Transformer Engine's scale rules: FP32 and power-of-two block scales, directly and through its flush-to-zero path.
#ifndef FP8WIRE_QUANT_RULES_TRANSFORMER_ENGINE_HPP
#define FP8WIRE_QUANT_RULES_TRANSFORMER_ENGINE_HPP
#include <fp8wire/quant/rules/microscaling.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// V5 of docs/numerics.md: m = RN(max / amax), s = RN(1 / m), code = cast(RN(x * m)).
/// Zero, Inf: m = s = 1. m beyond FP32: the input type's largest. NaN elements leave amax alone.
/// Source: Transformer Engine common/recipe/recipe_common.cuh:14-49 at d0067d0 (direct kernels).
struct te_fp32 : multiplies {
  using stored = float;
  static constexpr std::string_view id = "m=max/amax;s=1/m;x*m";
  static constexpr bool nan_poisons_amax = false;
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
};

/// The same with m rounded down to a power of two, so that s = 1/m is one too (2^-127 at the least, a subnormal).
/// Source: the same lines, `force_pow_2_scales`.
struct te_pow2 : multiplies {
  using stored = float;
  static constexpr std::string_view id = "m=pow2_floor(max/amax);s=1/m;x*m";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = float_of(bits_of(te_fp32::multiplier(amax, bounds)) & 0xFF800000u);
    return {ieee::div(1.0f, scale), scale};
  }
};

/// Either of them as the sharded path computes it, with flush-to-zero: a subnormal amax counts as zero, m beyond FP32
/// is FP32's largest whatever the input type, and an s below 2^-126 is stored as 0, which makes the block dequantize to
/// 0.
/// Differs from the direct rule only for amax below 2^-118.
/// Source: Transformer Engine common/multi_tensor/compute_scale.cu:24-57 at d0067d0, built with --use_fast_math.
template <class Direct>
  requires std::same_as<Direct, te_fp32> || std::same_as<Direct, te_pow2>
struct te_sharded : multiplies {
  using stored = float;
  static constexpr std::string_view id =
      std::same_as<Direct, te_fp32> ? "m=ftz(max/amax);s=ftz(1/m);x*m" : "m=pow2_floor(ftz(max/amax));s=ftz(1/m);x*m";
  static constexpr bool nan_poisons_amax = false;
  FP8WIRE_HD static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    bounds.input_max = float_of(f32::largest);
    scale_pair<float> scale = Direct::make(detail::flushed(amax), bounds);
    scale.stored = detail::flushed(scale.stored);
    return scale;
  }
};

/// MXFP8: byte = round_up(RN(amax * RN(1/max))), code = cast(RN(x * 2^(127 - byte))).
/// Zero: byte 0. Inf: byte 254. NaN elements leave amax alone.
/// The product, not the quotient, is rounded up: they differ for one FP32 amax (04600001 for E4M3).
/// Source: Transformer Engine common/cast/mxfp8/quantize_mxfp8.cuh:440-461, common/utils.cuh:1040 at d0067d0.
using te_mx = mx<mx_policy{}>;

/// The same through the sharded path, whose product is flushed to zero below 2^-126.
/// Source: Transformer Engine common/recipe/mxfp8_scaling.cu at d0067d0 (E4M3 only there).
using te_mx_sharded = mx<mx_policy{.flush_product = true}>;

}  // namespace rules
FP8WIRE_ABI_END
#endif
