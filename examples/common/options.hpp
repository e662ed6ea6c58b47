// SPDX-License-Identifier: Apache-2.0
/// The options that fp8-convert and fp8-refit share, and what they resolve to.
#ifndef FP8WIRE_EXAMPLES_OPTIONS_HPP
#define FP8WIRE_EXAMPLES_OPTIONS_HPP
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fp8wire/format/fp32.hpp>
#include <fp8wire/layout/named_layouts.hpp>
#include <fp8wire/model/naming.hpp>

#include "program.hpp"
#include "quantizer.hpp"

namespace programs {

/// As they stand on the command line.
struct format_options {
  std::string recipe = "vllm-block", amax_floor, scale, block, element, naming, layout = "canonical", model = "auto",
              nonfinite = "refuse";
  std::string rules;
  std::vector<std::string> only, keep;
  fp8wire::i64 first_layers = 0, last_layers = 0;
  bool via_bf16 = false;
};

inline void add_format_options(CLI::App& app, format_options& options) {
  app.add_option("--recipe", options.recipe, "Preset that decides the bytes (fp8-convert --list)")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--amax-floor", options.amax_floor,
                 "Smallest amax of a block, finite and >= 0 (default: the preset's)")
      ->type_name("X");
  app.add_option("--scale", options.scale, "fp32, pow2 or e8m0, where the preset leaves a choice")->type_name("S");
  app.add_option("--block", options.block, "RxC, where the preset leaves a choice (128x128, 1x128, 1x32, row, tensor)")
      ->type_name("RxC");
  app.add_option("--element", options.element, "e4m3 or e5m2, where the preset leaves a choice")->type_name("E");
  std::vector<std::string_view> namings;
  for (const fp8wire::naming& one : fp8wire::namings::all) namings.push_back(one.id);
  app.add_option("--naming", options.naming,
                 fmt::format("Names of the scales: {} (default: the preset's)", fmt::join(namings, ", ")))
      ->type_name("N");
  app.add_option("--model", options.model, "Family whose rules say which tensors become FP8")
      ->type_name("M")
      ->capture_default_str();
  app.add_option("--rules", options.rules,
                 "Rules that come before the family's, one a line: keep PATTERN [why], or quantize PATTERN [why];\n"
                 "PATTERN is of whole segments of a name without .weight (* one, ** any number, # a number, a|b)")
      ->type_name("FILE");
  const CLI::Range layers(0, 1 << 20);
  app.add_option("--bf16-first-layers", options.first_layers, "Leave the first N layers in their own dtype")
      ->type_name("N")
      ->check(layers);
  app.add_option("--bf16-last-layers", options.last_layers, "Leave the last N layers in their own dtype")
      ->type_name("N")
      ->check(layers);
  app.add_option("--only", options.only, "Quantize only tensors that match; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app.add_option("--keep", options.keep, "Leave tensors that match in their own dtype; repeatable")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app.add_option("--nonfinite", options.nonfinite,
                 "NaN and Inf in a weight: refuse, or tool (the preset's own rule decides)")
      ->type_name("refuse|tool")
      ->capture_default_str();
  app.add_flag("--via-bf16", options.via_bf16, "Round FP32 weights to BF16 first, as trainers that export BF16 do");
}

/// What the options mean.
struct format {
  const quantizer* preset = nullptr;
  float amax_floor = 0;
  bool via_bf16 = false, refuse_nonfinite = true;
  std::string layout = "canonical";
  fp8wire::u64 grid_id() const { return preset->grid_id(amax_floor, via_bf16); }
};

/// The shortest decimal text that reads back as the same float.
inline std::string shortest(float value) { return fmt::format("{}", value); }

/// A finite float >= 0 and nothing after it.
inline float parse_floor(const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  const fp8wire::u32 bits = fp8wire::bits_of(value);
  if (text.empty() || end != text.c_str() + text.size() || !fp8wire::f32::is_finite(bits) || value < 0)
    misuse("--amax-floor {}: a finite number >= 0 is wanted", text);
  return fp8wire::f32::is_zero(bits) ? 0.0f : value;
}

/// Wrong names exit with 2 and list what there is. Sets chosen_naming.
inline format resolve(const format_options& options) {
  std::vector<std::string> names, choices;
  for (const quantizer& row : quantizers()) {
    if (names.empty() || names.back() != row.name) names.emplace_back(row.name);
    if (row.name == options.recipe)
      choices.push_back(fmt::format("{} {} {}", row.scale, row.element.substr(0, row.element.find('/')), row.block));
  }
  if (choices.empty()) misuse("--recipe {}: no such preset; there are: {}", options.recipe, fmt::join(names, ", "));
  format chosen;
  chosen.preset = find_quantizer(options.recipe, options.scale, options.element, options.block);
  if (chosen.preset == nullptr)
    misuse("{} leaves no choice{}{}{}{}{}{}; there are (scale element block): {}", options.recipe,
           options.scale.empty() ? "" : " --scale ", options.scale, options.element.empty() ? "" : " --element ",
           options.element, options.block.empty() ? "" : " --block ", options.block, fmt::join(choices, ", "));
  const quantizer& preset = *chosen.preset;
  const std::string_view naming = options.naming.empty() ? preset.naming : std::string_view(options.naming);
  const fp8wire::naming* known = fp8wire::namings::find(naming);
  if (known == nullptr) {
    std::vector<std::string_view> all;
    for (const fp8wire::naming& one : fp8wire::namings::all) all.push_back(one.id);
    misuse("--naming {}: no such naming; there are: {}", naming, fmt::join(all, ", "));
  }
  chosen_naming = *known;
  if (!fp8wire::layouts::is_known(options.layout))
    misuse("--layout {}: no such layout; fp8-convert --list-layouts prints them", options.layout);
  chosen.layout = options.layout;
  chosen.amax_floor = options.amax_floor.empty() ? preset.amax_floor : parse_floor(options.amax_floor);
  chosen.via_bf16 = options.via_bf16 || preset.always_via_bf16;
  if (options.nonfinite != "refuse" && options.nonfinite != "tool")
    misuse("--nonfinite {}: refuse or tool", options.nonfinite);
  chosen.refuse_nonfinite = options.nonfinite == "refuse";
  return chosen;
}

}  // namespace programs
#endif
