// SPDX-License-Identifier: Apache-2.0
/// The modules that an engine must not build in FP8, in every spelling that engines match.
#ifndef FP8WIRE_MODEL_IGNORED_MODULES_HPP
#define FP8WIRE_MODEL_IGNORED_MODULES_HPP
#include <algorithm>

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
  };
  std::vector<part> parts;
  std::vector<std::string> names;
  const auto list = [&](std::string_view module) {
    names.emplace_back(module);
    constexpr std::string_view text = "model.language_model.", vision = "model.visual.";
    if (module.starts_with(text)) {
      const std::string_view rest = module.substr(text.size());
      names.push_back(std::string("model.").append(rest));
      names.push_back(std::string("language_model.model.").append(rest));
    } else if (module.starts_with(vision)) {
      names.emplace_back(module.substr(std::string_view("model.").size()));
    }
  };
  for (const decided_weight& one : weights) {
    if (!one.quantized) list(module_of(one.name));
    if (std::string fused = fused_with(one.name); !fused.empty())
      parts.push_back({std::move(fused), one.name, one.quantized});
  }
  std::sort(parts.begin(), parts.end(), [](const part& a, const part& b) {
    const int order = a.whole.compare(b.whole);
    return order != 0 ? order < 0 : a.name < b.name;
  });
  for (std::size_t first = 0; first < parts.size();) {
    std::size_t end = first;
    while (end < parts.size() && parts[end].whole == parts[first].whole) ++end;
    for (std::size_t i = first; i < end; ++i)
      if (parts[i].quantized != parts[first].quantized)
        return make_error(errc::format_mismatch, parts[first].whole,
                          std::string("is one parameter in the engine, but ")
                              .append(parts[parts[i].quantized ? first : i].name)
                              .append(" is kept and ")
                              .append(parts[parts[i].quantized ? i : first].name)
                              .append(" is not"),
                          condition::c1_layer_set);
    if (!parts[first].quantized) list(module_of(parts[first].whole));
    first = end;
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

FP8WIRE_ABI_END
#endif
