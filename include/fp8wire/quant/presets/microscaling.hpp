// SPDX-License-Identifier: Apache-2.0
/// The OCP rule and the research libraries' forms of it.
#ifndef FP8WIRE_QUANT_PRESETS_MICROSCALING_HPP
#define FP8WIRE_QUANT_PRESETS_MICROSCALING_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// The OCP Microscaling v1.0 rule: the exponent of amax less 8, saturating elements; Inf and NaN blocks are NaN.
struct ocp_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::ocp_mx>> {
  static constexpr std::string_view name = "ocp-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "OCP Microscaling Formats (MX) Specification v1.0, sections 5.2 and 6.3";
};

/// FBGEMM's even mode: as torchao's, but a mantissa of exactly 1.9375 stays below.
struct fbgemm_mxfp8_even : entry<recipe<e4m3, block<1, 32>, rules::fbgemm_mx_even>, true> {
  static constexpr std::string_view name = "fbgemm-mxfp8-even", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "FBGEMM fbgemm_gpu/triton/quantize.py:61 at 71d6f8b";
};

/// microxcaling's _quantize_mx: the OCP exponent, elements rounded to nearest with ties away from zero.
struct microxcaling_mxfp8 : entry<recipe<e4m3_as<casts::ties_away>, block<1, 32>, rules::ocp_mx>, true> {
  static constexpr std::string_view name = "microxcaling-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = "microxcaling mx/mx_ops.py, mx/elemwise_ops.py:52 at 7bc4195";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
