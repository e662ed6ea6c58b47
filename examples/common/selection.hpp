// SPDX-License-Identifier: Apache-2.0
/// Which tensors of a checkpoint become FP8, and the reason for each: the family's rules, then --keep, then --only.
#ifndef FP8WIRE_EXAMPLES_SELECTION_HPP
#define FP8WIRE_EXAMPLES_SELECTION_HPP
#include <fnmatch.h>

#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/io/json.hpp>
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
  selection(const format_options& options, const fp8wire::json::value& config)
      : only_(options.only), keep_(options.keep) {
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
  fp8wire::eligibility rules_;
  std::vector<std::string> only_, keep_;
};

}  // namespace programs
#endif
