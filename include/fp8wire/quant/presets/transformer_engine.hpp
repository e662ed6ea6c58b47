// SPDX-License-Identifier: Apache-2.0
/// The grids that Transformer Engine computes.
#ifndef FP8WIRE_QUANT_PRESETS_TRANSFORMER_ENGINE_HPP
#define FP8WIRE_QUANT_PRESETS_TRANSFORMER_ENGINE_HPP
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/transformer_engine.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// Float8BlockScaling, direct kernels, FP32 scales; amax floor 0.
/// Exact: every finite input; NaN elements too (the scale ignores them, the code is 7F).
struct te_block : entry<recipe<e4m3, block<128, 128>, rules::te_fp32>> {
  static constexpr std::string_view name = "te-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source =
      "Transformer Engine common/transpose/quantize_transpose_square_blockwise.cu at d0067d0";
};

/// The same with power-of-two scales, stored as FP32.
struct te_block_pow2 : entry<recipe<e4m3, block<128, 128>, rules::te_pow2>> {
  static constexpr std::string_view name = "te-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = te_block::source;
};

/// E5M2 elements.
struct te_block_e5m2 : entry<recipe<e5m2, block<128, 128>, rules::te_fp32>> {
  static constexpr std::string_view name = "te-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = te_block::source;
};

/// E5M2 elements, power-of-two scales.
struct te_block_e5m2_pow2 : entry<recipe<e5m2, block<128, 128>, rules::te_pow2>> {
  static constexpr std::string_view name = "te-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = te_block::source;
};

/// One-dimensional blocks along a row; transposed, the columnwise ones (a view with swapped strides).
struct te_row_block : entry<recipe<e4m3, block<1, 128>, rules::te_fp32>> {
  static constexpr std::string_view name = "te-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source =
      "Transformer Engine common/transpose/quantize_transpose_vector_blockwise.cu at d0067d0";
};

/// The same with power-of-two scales.
struct te_row_block_pow2 : entry<recipe<e4m3, block<1, 128>, rules::te_pow2>> {
  static constexpr std::string_view name = "te-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = te_row_block::source;
};

/// Float8BlockScaling of sharded FP32 master weights, through the flush-to-zero scale path.
/// Differs from te-block only for an amax below 2^-118; TE rounds the masters to the model's dtype first (--via-bf16).
struct te_sharded : entry<recipe<e4m3, block<128, 128>, rules::te_sharded<rules::te_fp32>>> {
  static constexpr std::string_view name = "te-sharded", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source =
      "Transformer Engine common/multi_tensor/compute_scale.cu, common/recipe/fp8_block_scaling.cu at d0067d0";
};

/// The same with power-of-two scales.
struct te_sharded_pow2 : entry<recipe<e4m3, block<128, 128>, rules::te_sharded<rules::te_pow2>>> {
  static constexpr std::string_view name = "te-sharded", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = te_sharded::source;
};

/// MXFP8, generic kernels (-0 kept).
/// Exact: every finite input; NaN elements by the normal rule (Blackwell's columnwise exceptions are not reproduced).
struct te_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::te_mx>> {
  static constexpr std::string_view name = "te-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "Transformer Engine common/cast/mxfp8/quantize_mxfp8.cuh at d0067d0";
};

/// E5M2 elements.
struct te_mxfp8_e5m2 : entry<recipe<e5m2, block<1, 32>, rules::te_mx>> {
  static constexpr std::string_view name = "te-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = te_mxfp8::source;
};

/// Columnwise: one scale over 32 rows of a column.
struct te_mxfp8_columnwise : entry<recipe<e4m3, block<32, 1>, rules::te_mx>> {
  static constexpr std::string_view name = "te-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = te_mxfp8::source;
};

/// MXFP8, specialized kernels, whose fma with +0 turns -0 elements into +0 (BF16 and FP16 inputs, whole tiles).
struct te_mxfp8_fma : entry<recipe<e4m3, block<1, 32>, rules::te_mx, numerics{.keep_negative_zero = false}>> {
  static constexpr std::string_view name = "te-mxfp8-fma", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source =
      "Transformer Engine common/cast/mxfp8/specialized/quantize_mxfp8.cuh at d0067d0";
};

/// MXFP8 of sharded master weights: the flush-to-zero product.
/// Differs from te-mxfp8 only for an amax between 1.75 * 2^-119 and 1.75 * 2^-118.
struct te_mxfp8_sharded : entry<recipe<e4m3, block<1, 32>, rules::te_mx_sharded>> {
  static constexpr std::string_view name = "te-mxfp8-sharded", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "Transformer Engine common/recipe/mxfp8_scaling.cu at d0067d0";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
