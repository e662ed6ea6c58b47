// SPDX-License-Identifier: Apache-2.0
/// The grids that SGLang's kernels and the Triton kernels of the RL frameworks compute.
#ifndef FP8WIRE_QUANT_PRESETS_SGLANG_HPP
#define FP8WIRE_QUANT_PRESETS_SGLANG_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/product.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// blockwise_cast_to_fp8_triton and its copies: scale amax/448 by Triton's approximate division, code of x * (1/scale),
/// amax floor 1e-10. Modelled as a product and IEEE reciprocals; NaN becomes 448 as the clamp of SM90 makes it.
struct triton_block : entry<recipe<e4m3_as<casts::clamp_nan_to_signed_largest>, block<128, 128>,
                                   rules::product_reciprocal, numerics{.amax_floor = 1e-10f}>,
                            true> {
  static constexpr std::string_view name = "triton-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source =
      "slime slime/backends/megatron_utils/kernels/fp8_kernel.py:51-58 at 624b824; miles, verl and SGLang have copies";
};

/// sgl-kernel's per_token_group_quant_8bit and DeepEP: scale amax * fl(1/448), code of x * (448/amax); floor 1e-10.
/// Exact: every finite input by the source; NaN becomes FE, -448, in the v2 kernel.
struct sgl_kernel_block : entry<recipe<e4m3_as<casts::clamp_nan_to_lowest>, block<128, 128>, rules::product_quotient,
                                       numerics{.amax_floor = 1e-10f}>> {
  static constexpr std::string_view name = "sgl-kernel-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "SGLang sgl-kernel/csrc/gemm/per_token_group_quant_8bit_v2.cu at 037cd6e";
};

/// The same with the multiplier from an approximate division, as SGLang's newer Triton kernels form it.
struct sglang_approximate_block : entry<recipe<e4m3_as<casts::clamp_nan_to_lowest>, block<128, 128>,
                                               rules::product_approximate, numerics{.amax_floor = 1e-10f}>,
                                        true> {
  static constexpr std::string_view name = "sglang-approx-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "SGLang Triton kernels with div_approx_ftz_f32";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
