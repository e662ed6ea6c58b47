// SPDX-License-Identifier: Apache-2.0
/// Which tensors of a checkpoint become FP8, and the reason for each.
#ifndef FP8WIRE_EXAMPLES_SELECTION_HPP
#define FP8WIRE_EXAMPLES_SELECTION_HPP
#include <fnmatch.h>

#include <string>
#include <string_view>
#include <vector>

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

/// The family's rules first, then --keep, then --only.
struct selection {
  std::string family = "all-2d";
  std::vector<std::string> only, keep;

  decision decide(const fp8wire::tensor_spec& tensor) const {
    if (!is_weight_dtype(tensor.dtype))
      return {action::copied, fmt::format("{} is not quantized", name_of(tensor.dtype))};
    if (tensor.shape.size() != 2 && tensor.shape.size() != 3)
      return {action::copied, fmt::format("rank {}", tensor.shape.size())};
    if (const std::string* pattern = first_match(keep, tensor.name))
      return {action::kept, fmt::format("--keep '{}'", *pattern)};
    if (!tensor.name.ends_with(".weight")) return {action::kept, "all-2d: not named *.weight"};
    for (const char* word : {"embed", "lm_head", "norm", "router", ".gate.weight"})
      if (tensor.name.find(word) != std::string::npos) return {action::kept, fmt::format("all-2d: {}", word)};
    if (!only.empty() && first_match(only, tensor.name) == nullptr) return {action::kept, "no --only pattern matches"};
    return {action::quantized, family};
  }
};

}  // namespace programs
#endif
