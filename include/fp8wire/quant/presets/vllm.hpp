// SPDX-License-Identifier: Apache-2.0
/// The grids that vLLM computes.
#ifndef FP8WIRE_QUANT_PRESETS_VLLM_HPP
#define FP8WIRE_QUANT_PRESETS_VLLM_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// E4M3 in 128x128 blocks, FP32 scale amax/448, code of x/scale, amax floor 1e-10.
struct vllm_block {
  using recipe = fp8wire::recipe<e4m3, block<128, 128>, rules::quotient, numerics{.amax_floor = 1e-10f}>;
  static constexpr std::string_view name = "vllm-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "vLLM csrc/quantization/w8a8/fp8/per_token_group_quant.cu at 0f5257e";
  static constexpr bool modelled = false;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
