// SPDX-License-Identifier: Apache-2.0
/// Qwen3 and Qwen2, dense and MoE.
///
/// Sources: slime slime/backends/megatron_utils/megatron_to_hf/processors/quantizer_fp8.py:36-87 at 624b824a.
#ifndef FP8WIRE_MODEL_FAMILIES_QWEN3_HPP
#define FP8WIRE_MODEL_FAMILIES_QWEN3_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view qwen3_types[] = {"qwen3", "qwen2"};
inline constexpr family_rule qwen3_rules[] = {
    {"**.self_attn.q_proj|k_proj|v_proj|o_proj", verdict::quantized, "attention"},
    {"**.mlp.gate_proj|up_proj|down_proj", verdict::quantized, "MLP"},
};
inline constexpr family qwen3{"qwen3", qwen3_types, qwen3_rules};

inline constexpr std::string_view qwen3_moe_types[] = {"qwen3_moe", "qwen2_moe"};
inline constexpr family_rule qwen3_moe_rules[] = {
    {"**.self_attn.q_proj|k_proj|v_proj|o_proj", verdict::quantized, "attention"},
    {"**.mlp.gate_proj|up_proj|down_proj", verdict::quantized, "MLP"},
    {"**.mlp.experts.#.gate_proj|up_proj|down_proj", verdict::quantized, "routed expert"},
    {"**.mlp.experts.gate_up_proj|down_proj", verdict::quantized, "routed experts", tensor_form::bare},
    {"**.mlp.shared_expert.gate_proj|up_proj|down_proj", verdict::quantized, "shared expert"},
};
inline constexpr family qwen3_moe{"qwen3-moe", qwen3_moe_types, qwen3_moe_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
