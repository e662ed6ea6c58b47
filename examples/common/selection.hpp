// SPDX-License-Identifier: Apache-2.0
/// Which tensors of a checkpoint become FP8, and the reason for each: --rules, the layers that stay in BF16, the
/// family's rules, then --keep, then --only.
#ifndef FP8WIRE_EXAMPLES_SELECTION_HPP
#define FP8WIRE_EXAMPLES_SELECTION_HPP
#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/io/json.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/model/eligibility.hpp>

#include "options.hpp"

namespace programs {

using action = fp8wire::verdict;  // as reports call it

/// Shell patterns; `*` matches dots and slashes too.
inline const std::string* first_match(const std::vector<std::string>& patterns, const std::string& name) {
  for (const std::string& pattern : patterns)
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return &pattern;
  return nullptr;
}

class selection {
 public:
  selection() = default;
  /// `config` is config.json, null where there is none: then auto is all-2d. Unknown model types are refused.
  template <class Tensors>
  selection(const format_options& options, const fp8wire::json::value& config, const Tensors& tensors)
      : only_(options.only), keep_(options.keep), rules_file_(options.rules) {
    if (!config.is(fp8wire::json::kind::null) && !config.is(fp8wire::json::kind::object))
      refuse("config.json: is no JSON object");
    if (options.model != "auto") {
      const auto named = fp8wire::families::find(options.model);
      if (!named) misuse("--model {}", named.error().message());
      rules_ = fp8wire::eligibility(**named);
    } else if (const fp8wire::json::value* type = config.find("model_type")) {
      const auto known = fp8wire::families::of_model_type(type->text());
      if (!known) refuse("config.json: {}; --model says which rules to use", known.error().message());
      rules_ = fp8wire::eligibility(**known);
    }
    if (!options.rules.empty()) {
      const fp8wire::mapped_file file = must(fp8wire::mapped_file::open(options.rules));
      const auto bytes = file.bytes();
      must(rules_.add_rules({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options.rules));
    }
    if (options.first_layers == 0 && options.last_layers == 0) return;
    const fp8wire::i64 layers = layers_of(config, tensors);
    if (layers == 0) refuse("--bf16-first-layers, --bf16-last-layers: no tensor's name has a layer's number");
    if (rules_.keep_layers(options.first_layers, options.last_layers, layers))
      refuse("--bf16-first-layers {} and --bf16-last-layers {} are more than the model's {} layers",
             options.first_layers, options.last_layers, layers);
  }

  std::string_view family_name() const { return rules_.family().name; }

  /// What a checkpoint of which nothing becomes FP8 is refused for, where it is --only that leaves nothing.
  void expect_only_matches() const {
    if (!only_.empty()) refuse("--only '{}': no tensor that becomes FP8 matches", fmt::join(only_, "', '"));
  }
  /// The patterns of --only and --keep that match no tensor at all: mistyped, more often than not.
  template <class Tensors> std::vector<std::string> useless_patterns(const Tensors& tensors) const {
    std::vector<std::string> found;
    const auto look = [&](std::string_view option, const std::vector<std::string>& patterns) {
      for (const std::string& pattern : patterns) {
        bool used = false;
        for (const auto& one : tensors) used = used || fnmatch(pattern.c_str(), one.name.c_str(), 0) == 0;
        if (!used) found.push_back(fmt::format("{} '{}': no tensor matches", option, pattern));
      }
    };
    look("--only", only_);
    look("--keep", keep_);
    for (const std::string& pattern : rules_.useless_rules(tensors))
      found.push_back(plain(fmt::format("--rules {}: no module matches '{}'", rules_file_, pattern)));
    return found;
  }

  fp8wire::decision decide(const fp8wire::tensor_spec& tensor) const {
    fp8wire::decision choice = rules_.decide(tensor);
    if (choice.what != fp8wire::verdict::quantized) return choice;
    if (const std::string* pattern = first_match(keep_, tensor.name))
      return {fp8wire::verdict::kept, fmt::format("--keep '{}'", *pattern)};
    if (!only_.empty() && first_match(only_, tensor.name) == nullptr)
      return {fp8wire::verdict::kept, "no --only pattern matches"};
    return choice;
  }

 private:
  /// As config.json counts them, since a drafting layer may follow the last one; without it as names do.
  template <class Tensors> static fp8wire::i64 layers_of(const fp8wire::json::value& config, const Tensors& tensors) {
    fp8wire::i64 layers = 0;
    const fp8wire::json::value* const text = config.find("text_config");
    for (const fp8wire::json::value* section : {&config, text})
      if (const auto* count = section == nullptr ? nullptr : section->find("num_hidden_layers");
          count != nullptr && count->to_integer(layers) && layers > 0)
        return layers;
    for (const auto& one : tensors) layers = (std::max)(layers, fp8wire::layer_of(one.name) + 1);
    return layers;
  }

  fp8wire::eligibility rules_;
  std::vector<std::string> only_, keep_;
  std::string rules_file_;
};

}  // namespace programs
#endif
