// SPDX-License-Identifier: Apache-2.0
/// Which engine parameter a checkpoint's tensor is a part of: what must arrive together.
#ifndef FP8WIRE_MODEL_FUSION_HPP
#define FP8WIRE_MODEL_FUSION_HPP
#include <string>

#include <fp8wire/model/name_pattern.hpp>

FP8WIRE_ABI_BEGIN

/// Modules beside each other that an engine keeps in one parameter.
struct fusion_rule {
  std::string_view parts;   // of the last segment: "q_proj|k_proj|v_proj"
  std::string_view fused;   // what the engine calls the whole
  std::string_view parent;  // the segment above, "*" for any
};

/// Names as Hugging Face checkpoints have them. Source: packed_modules_mapping of vLLM's and SGLang's model classes.
inline constexpr fusion_rule fusion_rules[] = {
    {"q_proj|k_proj|v_proj", "qkv_proj", "*"},
    {"query|key|value", "qkv_proj", "self"},
    {"gate_proj|up_proj", "gate_up_proj", "*"},
    {"w1|w3", "w13", "*"},
    {"in_proj_qkv|in_proj_z", "in_proj_qkvz", "linear_attn"},
    {"in_proj_b|in_proj_a", "in_proj_ba", "linear_attn"},
    {"q_a_proj|kv_a_proj_with_mqa", "fused_qkv_a_proj", "self_attn"},
};

/// Whether a weight is the fused gate and up of a layer's experts, [experts, 2I, H] with gate first.
constexpr bool is_gate_up(std::string_view weight) noexcept { return matches("**.experts.gate_up_proj", weight); }

/// The name of the engine parameter that holds `tensor` together with its siblings; empty where it stands alone.
///
/// model.layers.0.mlp.experts.3.up_proj.weight is a part of model.layers.0.mlp.experts.3.gate_up_proj.weight: the
/// expert's index stays in the name, so experts never fuse and an update may send one after the other. What
/// manifest::add takes as its own fused_with.
inline std::string fused_with(std::string_view tensor) {
  // parent.part.suffix
  const std::size_t suffix = tensor.rfind('.');
  if (suffix == tensor.npos || suffix == 0) return {};
  const std::size_t before = tensor.rfind('.', suffix - 1);
  const std::size_t part = before == tensor.npos ? 0 : before + 1;
  const std::string_view above = part == 0 ? std::string_view() : tensor.substr(0, part - 1);
  const std::string_view parent = above.substr(above.rfind('.') + 1);  // npos + 1 is 0
  for (const fusion_rule& rule : fusion_rules)
    if (detail::matches_segment(rule.parts, tensor.substr(part, suffix - part)) &&
        detail::matches_segment(rule.parent, parent))
      return std::string(tensor.substr(0, part)).append(rule.fused).append(tensor.substr(suffix));
  return {};
}

FP8WIRE_ABI_END
#endif
