// SPDX-License-Identifier: Apache-2.0
/// The grids that NeMo-RL computes.
#ifndef FP8WIRE_QUANT_PRESETS_NEMO_HPP
#define FP8WIRE_QUANT_PRESETS_NEMO_HPP
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/rules/multiplier.hpp>
#include <fp8wire/quant/rules/power_of_two.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// cast_tensor_to_fp8_blockwise: multiplier 448 * (1/amax), stored as its reciprocal; ragged edges padded with the
/// matrix's last element; zero and Inf blocks have scale 1.0. Exact: every input, CPU and CUDA, NaN signs aside.
/// An amax below 1.32e-36 makes the tool store a scale of 0.
struct nemo_block : entry<recipe<e4m3, block<128, 128>, rules::nemo, numerics{.edge = edge_pad::last_element}>> {
  static constexpr std::string_view name = "nemo-block", scale = "fp32", naming = "nemo";
  static constexpr std::string_view source =
      "NeMo-RL nemo_rl/models/generation/vllm/quantization/fp8.py:533-620 at 7ea279a";
};

/// The same with use_weight_pow2_scale; a byte of 0 means scale 1.0.
/// Exact: BF16 and FP16 inputs; FP32 ones but for an amax / 448 within ulps above a power of two, where log2f rounds
/// down.
struct nemo_block_pow2
    : entry<recipe<e4m3, block<128, 128>, rules::nemo_pow2, numerics{.edge = edge_pad::last_element}>> {
  static constexpr std::string_view name = "nemo-block", scale = "pow2", naming = "nemo";
  static constexpr std::string_view source = nemo_block::source;
};

/// MXFP8 where no FlashInfer is found: a copy of vLLM's torch fallback, one grid under two names.
struct nemo_mxfp8 : vllm_mxfp8_fallback {
  static constexpr std::string_view name = "nemo-mxfp8", naming = "nemo";
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
