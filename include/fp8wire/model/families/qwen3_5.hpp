// SPDX-License-Identifier: Apache-2.0
/// Qwen3.5, dense, MoE and vision, and Qwen3-Next: gated delta nets beside full attention.
///
/// The narrow projections of a delta net stay BF16: a tensor-parallel shard of theirs has fewer rows than a block, and
/// the MXFP8 kernels want 128 outputs. So does vision, whose 4304 columns are no multiple of 32.
/// Sources: SkyRL models/qwen35.py:17-62 at 4580e91e; slime tools/convert_hf_to_fp8.py:135-148 at 624b824a.
#ifndef FP8WIRE_MODEL_FAMILIES_QWEN3_5_HPP
#define FP8WIRE_MODEL_FAMILIES_QWEN3_5_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view qwen3_5_types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
                                                     "qwen3_next"};
inline constexpr family_rule qwen3_5_rules[] = {
    {"model.visual|vision_tower.**", verdict::kept, "vision"},
    {"visual.**", verdict::kept, "vision"},
    {"**.self_attn.q_proj|k_proj|v_proj|o_proj", verdict::quantized, "attention"},
    {"**.linear_attn.in_proj_qkv|in_proj_z|in_proj_qkvz|out_proj", verdict::quantized, "delta net"},
    {"**.linear_attn.in_proj_a|in_proj_b|in_proj_ba", verdict::kept, "delta net, narrower than a block"},
    {"**.linear_attn.conv1d", verdict::kept, "convolution"},
    {"**.mlp.gate_proj|up_proj|down_proj", verdict::quantized, "MLP"},
    {"**.mlp.experts.#.gate_proj|up_proj|down_proj", verdict::quantized, "routed expert"},
    {"**.mlp.experts.gate_up_proj|down_proj", verdict::quantized, "routed experts", tensor_form::bare},
    {"**.mlp.shared_expert.gate_proj|up_proj|down_proj", verdict::quantized, "shared expert"},
    {"mtp.fc", verdict::kept, "joins the draft head to the model"},
};
inline constexpr family qwen3_5{"qwen3_5", qwen3_5_types, qwen3_5_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
