// SPDX-License-Identifier: Apache-2.0
/// The grids that SkyRL computes.
#ifndef FP8WIRE_QUANT_PRESETS_SKYRL_HPP
#define FP8WIRE_QUANT_PRESETS_SKYRL_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/mx_tools.hpp>
#include <fp8wire/quant/rules/power_of_two.hpp>
#include <fp8wire/quant/rules/product.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// blockwise_cast_to_fp8 on a CUDA tensor, where torch divides by 448 as a product; amax floor 1e-10.
struct skyrl_block
    : entry<recipe<e4m3, block<128, 128>, rules::nan_poisons<rules::product>, numerics{.amax_floor = 1e-10f}>, true> {
  static constexpr std::string_view name = "skyrl-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "SkyRL weight_sync/fp8/quantize.py:54-93, 158-170 at 4580e91";
};

/// The same with power-of-two scales; equal on CPU and CUDA.
/// Exact: BF16 and FP16 inputs; FP32 ones but for an amax / 448 within ulps above a power of two, where log2f rounds
/// down.
struct skyrl_block_pow2 : entry<recipe<e4m3, block<128, 128>, rules::skyrl_pow2, numerics{.amax_floor = 1e-10f}>> {
  static constexpr std::string_view name = "skyrl-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = skyrl_block::source;
};

/// blockwise_cast_to_fp8 on a CPU tensor: a true division. Exact: every input, NaN signs aside.
struct skyrl_block_cpu
    : entry<recipe<e4m3, block<128, 128>, rules::nan_poisons<rules::quotient>, numerics{.amax_floor = 1e-10f}>> {
  static constexpr std::string_view name = "skyrl-block-cpu", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = skyrl_block::source;
};

/// On the CPU the power-of-two scales are the same grid.
struct skyrl_block_cpu_pow2 : skyrl_block_pow2 {
  static constexpr std::string_view name = "skyrl-block-cpu";
};

/// MXFP8: ceil(log2(amax / 448)), zero is byte 0. The released wire has an amax floor of 1e-10 instead (zero is byte
/// 85):
/// the same rule with that floor. Exact: BF16 inputs.
struct skyrl_mxfp8 : entry<recipe<e4m3, block<1, 32>, rules::quotient_mx>> {
  static constexpr std::string_view name = "skyrl-mxfp8", scale = "e8m0", naming = "modelopt";
  static constexpr std::string_view source = skyrl_block::source;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
