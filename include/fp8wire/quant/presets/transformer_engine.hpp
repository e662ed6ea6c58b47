// SPDX-License-Identifier: Apache-2.0
/// The grids that Transformer Engine computes.
#ifndef FP8WIRE_QUANT_PRESETS_TRANSFORMER_ENGINE_HPP
#define FP8WIRE_QUANT_PRESETS_TRANSFORMER_ENGINE_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/transformer_engine.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// Float8BlockScaling, direct kernels, FP32 scales; amax floor 0.
struct te_block {
  using recipe = fp8wire::recipe<e4m3, block<128, 128>, rules::te_fp32>;
  static constexpr std::string_view name = "te-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "Transformer Engine common/transpose/quantize_transpose_square_blockwise.cu at d0067d0";
  static constexpr bool modelled = false;
};

/// The same with power-of-two scales, stored as FP32.
struct te_block_pow2 {
  using recipe = fp8wire::recipe<e4m3, block<128, 128>, rules::te_pow2>;
  static constexpr std::string_view name = "te-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = te_block::source;
  static constexpr bool modelled = false;
};

/// MXFP8, generic kernels (-0 kept).
struct te_mxfp8 {
  using recipe = fp8wire::recipe<e4m3, block<1, 32>, rules::te_mx>;
  static constexpr std::string_view name = "te-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "Transformer Engine common/cast/mxfp8/quantize_mxfp8.cuh at d0067d0";
  static constexpr bool modelled = false;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
