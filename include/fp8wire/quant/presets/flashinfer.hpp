// SPDX-License-Identifier: Apache-2.0
/// The grid that FlashInfer computes.
#ifndef FP8WIRE_QUANT_PRESETS_FLASHINFER_HPP
#define FP8WIRE_QUANT_PRESETS_FLASHINFER_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// mxfp8_quantize on SM100: fl(amax * fl(1/448)) rounded up, all arithmetic with flush-to-zero.
/// A block below 2^-126 * 448 has byte 0 and zero codes. Modelled: rcp.approx.ftz(448) is taken to be fl(1/448).
struct flashinfer_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::flashinfer_mx>, true> {
  static constexpr std::string_view name = "flashinfer-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source =
      "FlashInfer csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh cvt_warp_fp16_to_mxfp8 at fb28d72";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
