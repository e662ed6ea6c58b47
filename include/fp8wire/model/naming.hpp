// SPDX-License-Identifier: Apache-2.0
/// What each engine calls the scale of a weight. Names are made by suffix, never by substring, and decide no dtype.
#ifndef FP8WIRE_MODEL_NAMING_HPP
#define FP8WIRE_MODEL_NAMING_HPP
#include <string>
#include <string_view>

#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

/// Suffixes for the two kinds of scales. For `X.weight` the suffix replaces `.weight`; to any other name it is added
/// with an underscore in place of the dot and without "weight" (transformers' fused experts: gate_up_proj_scale_inv).
struct naming {
  std::string_view id;  // as --naming takes it
  std::string_view block_suffix;  // FP32 and BF16 block scales: ".weight_scale_inv"
  std::string_view mx_suffix;  // E8M0 scales of MXFP8
  dtype mx_dtype = dtype::uint8;  // how E8M0 bytes of MXFP8 are labelled; U8 is what every loader accepts

  /// The scale's name for a weight's name.
  std::string scale_of(std::string_view weight, bool microscaling) const {
    constexpr std::string_view dot_weight = ".weight";
    const std::string_view suffix = microscaling ? mx_suffix : block_suffix;
    if (weight.ends_with(dot_weight))
      return std::string(weight.substr(0, weight.size() - dot_weight.size())).append(suffix);
    return std::string(weight).append("_").append(suffix.substr(dot_weight.size() + 1));
  }
  /// Whether `name` could be a scale under this naming; `weight` becomes the weight's name.
  bool is_scale(std::string_view name, bool microscaling, std::string& weight) const {
    const std::string_view suffix = microscaling ? mx_suffix : block_suffix;
    if (name.ends_with(suffix)) {
      weight = std::string(name.substr(0, name.size() - suffix.size())).append(".weight");
      return true;
    }
    const std::string_view bare = suffix.substr(std::string_view(".weight").size());  // "_scale_inv"
    if (name.ends_with(bare) && name.size() > bare.size()) {
      weight = std::string(name.substr(0, name.size() - bare.size()));
      return true;
    }
    return false;
  }
};

/// Sources: docs of each engine's loader, listed in docs/wire.md.
namespace namings {
inline constexpr naming vllm{"vllm", ".weight_scale_inv", ".weight_scale"};
inline constexpr naming sglang{"sglang", ".weight_scale_inv", ".weight_scale_inv"};
inline constexpr naming nemo{"nemo", ".weight_scale_inv", ".weight_scale_from_checkpoint"};
inline constexpr naming skyrl{"skyrl", ".weight_scale_inv", ".weight_scale"};
inline constexpr naming modelopt{"modelopt", ".weight_scale", ".weight_scale"};
inline constexpr naming compressed_tensors{"compressed-tensors", ".weight_scale", ".weight_scale"};
// What these trainers send to SGLang; verl also to vLLM, under the same names.
inline constexpr naming verl{"verl", ".weight_scale_inv", ".weight_scale_inv"};
inline constexpr naming slime{"slime", ".weight_scale_inv", ".weight_scale_inv"};
inline constexpr naming miles{"miles", ".weight_scale_inv", ".weight_scale_inv"};

inline constexpr naming all[] = {vllm, sglang, nemo, skyrl, modelopt, compressed_tensors, verl, slime, miles};

/// The naming of that id, or nullptr.
constexpr const naming* find(std::string_view id) noexcept {
  for (const naming& one : all)
    if (one.id == id) return &one;
  return nullptr;
}
}  // namespace namings

FP8WIRE_ABI_END
#endif
