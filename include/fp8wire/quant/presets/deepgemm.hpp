// SPDX-License-Identifier: Apache-2.0
/// The grids that DeepGEMM's Python helpers compute.
#ifndef FP8WIRE_QUANT_PRESETS_DEEPGEMM_HPP
#define FP8WIRE_QUANT_PRESETS_DEEPGEMM_HPP
#include <fp8wire/quant/presets/preset.hpp>
#include <fp8wire/quant/rules/power_of_two.hpp>
#include <fp8wire/quant/rules/product.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// per_block_cast_to_fp8 on a CUDA tensor, where torch divides by 448 as a product; amax floor 1e-4.
struct deepgemm_block
    : entry<recipe<e4m3, block<128, 128>, rules::nan_poisons<rules::product_reciprocal>, numerics{.amax_floor = 1e-4f}>,
            true> {
  static constexpr std::string_view name = "deepgemm-block", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = "DeepGEMM deep_gemm/utils/math.py:13-66 at 54e2261";
};

/// The same with use_ue8m0: scales are powers of two, stored as FP32. Equal on CPU and CUDA.
struct deepgemm_block_pow2
    : entry<recipe<e4m3, block<128, 128>, rules::deepgemm_ue8m0<float>, numerics{.amax_floor = 1e-4f}>> {
  static constexpr std::string_view name = "deepgemm-block", scale = "pow2", naming = "vllm";
  static constexpr std::string_view source = deepgemm_block::source;
};

/// The same scales stored as E8M0.
struct deepgemm_block_e8m0
    : entry<recipe<e4m3, block<128, 128>, rules::deepgemm_ue8m0<e8m0>, numerics{.amax_floor = 1e-4f}>> {
  static constexpr std::string_view name = "deepgemm-block", scale = "e8m0", naming = "vllm";
  static constexpr std::string_view source = deepgemm_block::source;
};

/// per_block_cast_to_fp8 on a CPU tensor: a true division.
/// Exact: every finite input.
struct deepgemm_block_cpu : entry<recipe<e4m3, block<128, 128>, rules::nan_poisons<rules::quotient_reciprocal>,
                                         numerics{.amax_floor = 1e-4f}>> {
  static constexpr std::string_view name = "deepgemm-block-cpu", scale = "fp32", naming = "vllm";
  static constexpr std::string_view source = deepgemm_block::source;
};

/// On the CPU the power-of-two scales are the same grid.
struct deepgemm_block_cpu_pow2 : deepgemm_block_pow2 {
  static constexpr std::string_view name = "deepgemm-block-cpu";
};

/// On the CPU the E8M0 scales are the same grid.
struct deepgemm_block_cpu_e8m0 : deepgemm_block_e8m0 {
  static constexpr std::string_view name = "deepgemm-block-cpu";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
