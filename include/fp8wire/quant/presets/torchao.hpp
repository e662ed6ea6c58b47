// SPDX-License-Identifier: Apache-2.0
/// The grids that torchao computes.
#ifndef FP8WIRE_QUANT_PRESETS_TORCHAO_HPP
#define FP8WIRE_QUANT_PRESETS_TORCHAO_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>
#include <fp8wire/quant/rules/multiplier.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// blockwise FP8 training: multiplier 448/amax in FP64, stored as its reciprocal; amax floor 1e-12.
/// Exact: every input of the torch reference, NaN signs aside.
struct torchao_block : entry<recipe<e4m3, block<128, 128>, rules::torchao, numerics{.amax_floor = 1e-12f}>> {
  static constexpr std::string_view name = "torchao-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source =
      "torchao float8/float8_utils.py:45-48, prototype/blockwise_fp8_training/kernels.py of 0.18.0";
};

/// MXFP8, ScaleCalculationMode.FLOOR: the exponent of amax less 8; the largest elements saturate.
/// Exact: every input, NaN signs aside.
struct torchao_mxfp8_floor : entry<recipe<e4m3, block<1, 32>, rules::torchao_mx_floor>> {
  static constexpr std::string_view name = "torchao-mxfp8-floor", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "torchao prototype/mx_formats/mx_tensor.py to_mx of 0.18.0";
};

/// MXFP8, ScaleCalculationMode.RCEIL: ceil(log2(amax / 448)); a byte of 0 leaves its elements unscaled.
/// Exact: BF16 inputs; FP32 ones but for an amax / 448 within ulps above a power of two.
struct torchao_mxfp8_rceil : entry<recipe<e4m3, block<1, 32>, rules::torchao_mx_rceil>> {
  static constexpr std::string_view name = "torchao-mxfp8-rceil", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = torchao_mxfp8_floor::source;
};

/// MXFP8, ScaleCalculationMode.CEIL: the exponent of amax rounded up, less 8.
/// Exact: every input, NaN signs aside.
struct torchao_mxfp8_ceil : entry<recipe<e4m3, block<1, 32>, rules::torchao_mx_ceil>> {
  static constexpr std::string_view name = "torchao-mxfp8-ceil", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = torchao_mxfp8_floor::source;
};

/// MXFP8, ScaleCalculationMode.EVEN: amax rounded to the element's mantissa first.
/// Exact: every input, NaN signs aside.
struct torchao_mxfp8_even : entry<recipe<e4m3, block<1, 32>, rules::torchao_mx_even>> {
  static constexpr std::string_view name = "torchao-mxfp8-even", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = torchao_mxfp8_floor::source;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
