// SPDX-License-Identifier: Apache-2.0
/// Llama, Mistral and Mixtral.
///
/// Source: the linear modules that vLLM builds for LlamaForCausalLM and MixtralForCausalLM.
#ifndef FP8WIRE_MODEL_FAMILIES_LLAMA_HPP
#define FP8WIRE_MODEL_FAMILIES_LLAMA_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view llama_types[] = {"llama", "mistral", "mixtral"};
inline constexpr family_rule llama_rules[] = {
    {"**.self_attn.q_proj|k_proj|v_proj|o_proj", verdict::quantized, "attention"},
    {"**.mlp.gate_proj|up_proj|down_proj", verdict::quantized, "MLP"},
    {"**.block_sparse_moe.experts.#.w1|w2|w3", verdict::quantized, "routed expert"},
    {"**.mlp.experts.gate_up_proj|down_proj", verdict::quantized, "routed experts", tensor_form::bare},
};
inline constexpr family llama{"llama", llama_types, llama_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
