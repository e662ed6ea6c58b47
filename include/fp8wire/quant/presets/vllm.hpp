// SPDX-License-Identifier: Apache-2.0
/// The grids that vLLM computes.
#ifndef FP8WIRE_QUANT_PRESETS_VLLM_HPP
#define FP8WIRE_QUANT_PRESETS_VLLM_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>
#include <fp8wire/quant/rules/power_of_two.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// E4M3 in 128x128 blocks, FP32 scale amax/448, code of x/scale, amax floor 1e-10.
/// Exact: every input of the CUDA kernels; with floor 0 a zero block has scale 1.0 (the tool would divide by zero).
/// NaN becomes FE, -448: the kernel's clamp does that.
struct vllm_block : entry<recipe<e4m3_as<casts::clamp_nan_to_lowest>, block<128, 128>, rules::quotient,
                                 numerics{.amax_floor = 1e-10f}>> {
  static constexpr std::string_view name = "vllm-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "vLLM csrc/quantization/w8a8/fp8/per_token_group_quant.cu at 0f5257e";
};

/// The same with scales rounded up to a power of two (scale_ue8m0), stored as FP32.
/// Exact: BF16 and FP16 inputs of every kernel; FP32 inputs of the register path (the other one uses log2f).
struct vllm_block_pow2 : entry<recipe<e4m3_as<casts::clamp_nan_to_lowest>, block<128, 128>, rules::vllm_ue8m0,
                                      numerics{.amax_floor = 1e-10f}>> {
  static constexpr std::string_view name = "vllm-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = vllm_block::source;
};

/// MXFP8 of the torch fallback of early 2026: the floor exponent without the 8, smallest byte 1, values in [1, 2).
/// Exact: BF16 inputs; FP32 ones but for an amax within ulps below a power of two, where torch's log2 rounds up.
struct vllm_mxfp8_fallback : entry<recipe<e4m3, block<1, 32>, rules::vllm_mx_fallback>> {
  static constexpr std::string_view name = "vllm-mxfp8-fallback", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source =
      "vLLM model_executor/layers/quantization/utils/mxfp8_utils.py _mxfp8_e4m3_quantize_torch, copied by NeMo-RL "
      "f8cc4a4";
};

/// MXFP8 of the later torch fallback: ceil(log2(amax / 448)).
/// Exact: as above.
struct vllm_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::vllm_mx>> {
  static constexpr std::string_view name = "vllm-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source =
      "vLLM mxfp8_utils.py _mxfp8_e4m3_quantize_torch of mid 2026, copied by NeMo-RL fp8_train_utils.py";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
