// SPDX-License-Identifier: Apache-2.0
/// The modules that an engine must not build in FP8, in every spelling that engines match.
#ifndef FP8WIRE_MODEL_IGNORED_MODULES_HPP
#define FP8WIRE_MODEL_IGNORED_MODULES_HPP
#include <set>

#include <fp8wire/model/eligibility.hpp>
#include <fp8wire/model/fusion.hpp>

FP8WIRE_ABI_BEGIN

/// One weight and what became of it.
struct decided_weight {
  std::string name;
  bool quantized = false;
};

/// Sorted, each once: every module that is kept, part by part and, where engines fuse parts, the whole as well.
///
/// Engines look modules up under names of their own: the text model of a vision model with or without its prefix, the
/// vision tower at the top. A checkpoint's name, that name as the text model alone has it and that name as vLLM's and
/// SGLang's multimodal classes have it are all listed; a name too many does no harm.
/// Errors: format_mismatch (C1) for a fused parameter of which only some parts are kept: no engine can serve it.
inline result<std::vector<std::string>> ignored_modules(std::span<const decided_weight> weights) {
  struct part {
    std::string whole;
    std::string_view name;
    bool quantized;
    bool operator<(const part& other) const noexcept {
      const int order = whole.compare(other.whole);
      return order != 0 ? order < 0 : name < other.name;
    }
  };
  std::set<part> parts;  // those of one whole stand together
  std::set<std::string> names;
  const auto list = [&](std::string_view module) {
    names.emplace(module);
    constexpr std::string_view text = "model.language_model.", vision = "model.visual.";
    if (module.starts_with(text)) {
      const std::string_view rest = module.substr(text.size());
      names.insert(std::string("model.").append(rest));
      names.insert(std::string("language_model.model.").append(rest));
    } else if (module.starts_with(vision)) {
      names.emplace(module.substr(std::string_view("model.").size()));
    }
  };
  for (const decided_weight& one : weights) {
    if (!one.quantized) list(module_of(one.name));
    if (std::string fused = fused_with(one.name); !fused.empty())
      parts.insert({std::move(fused), one.name, one.quantized});
  }
  const part* first = nullptr;
  for (const part& one : parts) {
    if (first == nullptr || first->whole != one.whole) {
      first = &one;
      if (!one.quantized) list(module_of(one.whole));
    }
    if (one.quantized != first->quantized)
      return make_error(errc::format_mismatch, one.whole,
                        std::string("is one parameter in the engine, but ")
                            .append((one.quantized ? *first : one).name)
                            .append(" is kept and ")
                            .append((one.quantized ? one : *first).name)
                            .append(" is not"),
                        condition::c1_layer_set);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

FP8WIRE_ABI_END
#endif
