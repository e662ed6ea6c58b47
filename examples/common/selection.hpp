// SPDX-License-Identifier: Apache-2.0
/// Which tensors of a checkpoint become FP8, and the reason for each.
#ifndef FP8WIRE_EXAMPLES_SELECTION_HPP
#define FP8WIRE_EXAMPLES_SELECTION_HPP
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/io/json.hpp>
#include <fp8wire/model/tensor_spec.hpp>

#include "options.hpp"

namespace programs {

/// kept: could be FP8, stays in its own dtype. copied: no weight matrix at all.
enum class action { quantized, kept, copied };

constexpr std::string_view name_of(action what) noexcept {
  return what == action::quantized ? "quantized" : what == action::kept ? "kept" : "copied";
}

struct decision {
  action what = action::copied;
  std::string why;
};

/// Shell patterns; `*` matches dots and slashes too.
inline const std::string* first_match(const std::vector<std::string>& patterns, const std::string& name) {
  for (const std::string& pattern : patterns)
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return &pattern;
  return nullptr;
}

/// A family: what its checkpoints call themselves, and the parts of names whose weights stay as they are.
/// Source: spec of the frameworks' own lists, in docs/numerics.md and the engines' loaders; whole dotted segments only.
struct family {
  std::string_view name;
  std::vector<std::string_view> model_types, kept_segments;
};

inline const std::vector<family>& families() {
  static const std::vector<family> all = {
      {"all-2d", {}, {}},
      {"qwen3_5",
       {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"},
       {"visual", "in_proj_a", "in_proj_b", "conv1d", "shared_expert_gate"}},
      {"qwen3", {"qwen3", "qwen2"}, {}},
      {"qwen3-moe", {"qwen3_moe", "qwen2_moe"}, {"shared_expert_gate"}},
      {"deepseek-v3", {"deepseek_v3", "deepseek_v32"}, {"weights_proj", "eh_proj"}},
      {"nemotron-h", {"nemotron_h"}, {"conv1d"}},
      {"llama", {"llama", "mistral"}, {}},
      {"bert", {"bert"}, {"pooler"}},
  };
  return all;
}

/// The family's rules first, then --keep, then --only.
class selection {
 public:
  selection() = default;
  /// `config` is config.json, null for a bare file. Unknown model types are refused: a guess would serve garbage.
  selection(const format_options& options, const fp8wire::json::value& config)
      : only_(options.only), keep_(options.keep) {
    std::string wanted = options.model;
    if (wanted == "auto") {
      const fp8wire::json::value* type = config.find("model_type");
      wanted = "all-2d";
      if (type != nullptr) {
        for (const family& one : families())
          for (const std::string_view known : one.model_types)
            if (known == type->text()) family_ = &one;
        if (family_ == nullptr) {
          std::vector<std::string_view> known;
          for (const family& one : families())
            for (const std::string_view each : one.model_types) known.push_back(each);
          refuse("config.json: model_type {} is not known; known are: {}; --model all-2d takes every matrix",
                 type->text(), fmt::join(known, ", "));
        }
        return;
      }
    }
    std::vector<std::string_view> names{"auto"};
    for (const family& one : families()) {
      names.push_back(one.name);
      if (one.name == wanted) family_ = &one;
    }
    if (family_ == nullptr) misuse("--model {}: no such family; there are: {}", wanted, fmt::join(names, ", "));
  }

  std::string_view family_name() const { return family_ == nullptr ? "" : family_->name; }

  decision decide(const fp8wire::tensor_spec& tensor) const {
    const std::string& name = tensor.name;
    if (!is_weight_dtype(tensor.dtype))
      return {action::copied, fmt::format("{} is not quantized", name_of(tensor.dtype))};
    if (tensor.shape.size() != 2 && tensor.shape.size() != 3)
      return {action::copied, fmt::format("{} dimensions", tensor.shape.size())};
    if (!name.ends_with(".weight") && !name.ends_with(".experts.gate_up_proj") && !name.ends_with(".experts.down_proj"))
      return {action::copied, "not named *.weight"};
    if (const std::string reason = kept_by_family(name); !reason.empty()) return {action::kept, reason};
    if (const std::string* pattern = first_match(keep_, name))
      return {action::kept, fmt::format("--keep '{}'", *pattern)};
    if (!only_.empty() && first_match(only_, name) == nullptr) return {action::kept, "no --only pattern matches"};
    return {action::quantized, std::string(family_name())};
  }

 private:
  std::string kept_by_family(std::string_view name) const {
    const auto says = [&](std::string_view what) { return fmt::format("{}: {}", family_name(), what); };
    const std::string_view module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    for (std::size_t at = 0; at <= module.size();) {
      const std::size_t end = (std::min)(module.find('.', at), module.size());
      const std::string_view segment = module.substr(at, end - at);
      const bool last = end == module.size();
      if (segment.find("embed") != segment.npos || segment == "wte" || segment == "wpe") return says("embedding");
      if (segment == "lm_head" || (segment == "output" && module == segment)) return says("output head");
      if (last && (segment.ends_with("norm") || segment.ends_with("Norm") ||
                   segment.find("layernorm") != segment.npos || segment.starts_with("norm")))
        return says("norm");
      if (last && (segment == "gate" || segment == "router")) return says("router");
      for (const std::string_view kept : family_->kept_segments)
        if (segment == kept) return says(kept);
      at = end + 1;
    }
    return {};
  }

  const family* family_ = nullptr;
  std::vector<std::string> only_, keep_;
};

/// config.json of a folder, or null where it has none.
inline fp8wire::json::value read_config(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return must(fp8wire::json::parse(text, path.string()));
}

}  // namespace programs
#endif
