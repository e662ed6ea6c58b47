// SPDX-License-Identifier: Apache-2.0
/// The grids that compressed-tensors (llm-compressor) computes.
#ifndef FP8WIRE_QUANT_PRESETS_COMPRESSED_TENSORS_HPP
#define FP8WIRE_QUANT_PRESETS_COMPRESSED_TENSORS_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// FP8_BLOCK on BF16 weights: scale and quotient are rounded to BF16, and the scale is stored so.
/// Exact: every BF16 input, NaN signs aside.
struct compressed_tensors_block : entry<recipe<e4m3, block<128, 128>, rules::bf16_quotient>> {
  static constexpr std::string_view name = "compressed-tensors-block", scale = "bf16", naming = "vllm";
  static constexpr std::string_view source =
      "compressed-tensors quantization/utils/helpers.py, mxfp_utils.py of 0.20.1";
};

/// FP8_BLOCK on FP32 weights. Exact: every FP32 input, NaN signs aside.
struct compressed_tensors_block_fp32 : entry<recipe<e4m3, block<128, 128>, rules::quotient_or_epsilon>> {
  static constexpr std::string_view name = "compressed-tensors-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = compressed_tensors_block::source;
};

/// MXFP8: the exponent goes up from a mantissa of 1.75 on, so that amax 448 has byte 128.
/// Exact: every finite BF16 and FP32 input.
struct compressed_tensors_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::compressed_tensors_mx>> {
  static constexpr std::string_view name = "compressed-tensors-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = compressed_tensors_block::source;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
