// SPDX-License-Identifier: Apache-2.0
/// Which engine parameter a checkpoint's weight is a part of.
#ifndef FP8WIRE_MODEL_FUSION_HPP
#define FP8WIRE_MODEL_FUSION_HPP
#include <string>
#include <string_view>

#include <fp8wire/config.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {
struct fused_part {
  std::string_view part, whole;
};
/// Module names as Hugging Face checkpoints have them, and the engines' packed module that holds them.
/// Source: packed_modules_mapping of vLLM's and SGLang's model classes.
inline constexpr fused_part fused_parts[] = {
    {"q_proj", "qkv_proj"},         {"k_proj", "qkv_proj"},         {"v_proj", "qkv_proj"},
    {"gate_proj", "gate_up_proj"},  {"up_proj", "gate_up_proj"},    {"w1", "w13"},
    {"w3", "w13"},                  {"in_proj_qkv", "in_proj_qkvz"}, {"in_proj_z", "in_proj_qkvz"},
    {"q_a_proj", "fused_qkv_a_proj"}, {"kv_a_proj_with_mqa", "fused_qkv_a_proj"},
    {"query", "qkv_proj"},          {"key", "qkv_proj"},            {"value", "qkv_proj"}};
}  // namespace detail

/// The name of the engine parameter that holds `weight` together with its siblings, or an empty text where it stands alone:
/// model.layers.0.mlp.experts.3.up_proj.weight -> model.layers.0.mlp.experts.3.gate_up_proj.weight. The expert's index is a
/// part of the name, so experts never fuse: an update may send one after the other.
/// Whole dotted segments decide, never substrings.
inline std::string fused_with(std::string_view weight) {
  constexpr std::string_view suffix = ".weight";
  if (!weight.ends_with(suffix)) return {};
  const std::string_view module = weight.substr(0, weight.size() - suffix.size());
  const std::size_t dot = module.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? module : module.substr(dot + 1);
  for (const detail::fused_part& one : detail::fused_parts)
    if (one.part == last) return std::string(module.substr(0, module.size() - last.size())).append(one.whole).append(suffix);
  return {};
}

FP8WIRE_ABI_END
#endif
