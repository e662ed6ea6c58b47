// SPDX-License-Identifier: Apache-2.0
/// DeepSeek V2, V3 and V3.2: latent attention, the sparse attention's indexer, and the layer that drafts.
///
/// As the published FP8 checkpoints have it: the indexer's weights_proj, the drafting layer's eh_proj and its own
/// output head stay BF16. Sources: slime quantizer_fp8.py:36-87 and tools/convert_hf_to_fp8.py:135-148 at 624b824a.
#ifndef FP8WIRE_MODEL_FAMILIES_DEEPSEEK_V3_HPP
#define FP8WIRE_MODEL_FAMILIES_DEEPSEEK_V3_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view deepseek_v3_types[] = {"deepseek_v3", "deepseek_v32", "deepseek_v2"};
inline constexpr family_rule deepseek_v3_rules[] = {
    {"**.self_attn.q_proj|q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj", verdict::quantized, "attention"},
    {"**.self_attn.indexer.wq_b|wk", verdict::quantized, "indexer"},
    {"**.self_attn.indexer.weights_proj", verdict::kept, "indexer, narrower than a block"},
    {"**.mlp.gate_proj|up_proj|down_proj", verdict::quantized, "MLP"},
    {"**.mlp.experts.#.gate_proj|up_proj|down_proj", verdict::quantized, "routed expert"},
    {"**.mlp.experts.gate_up_proj|down_proj", verdict::quantized, "routed experts", tensor_form::bare},
    {"**.mlp.shared_experts.gate_proj|up_proj|down_proj", verdict::quantized, "shared expert"},
    {"**.eh_proj", verdict::kept, "joins the draft head to the model"},
    {"**.shared_head.head", verdict::kept, "output head"},
};
inline constexpr family deepseek_v3{"deepseek-v3", deepseek_v3_types, deepseek_v3_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
