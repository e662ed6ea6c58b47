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
#include <fp8wire/model/naming.hpp>

#include "program.hpp"
#include "quantizer.hpp"

namespace programs {

/// As they stand on the command line.
struct format_options {
  std::string recipe = "vllm-block", amax_floor, scale, block, element, naming, layout = "canonical", model = "auto", nonfinite = "refuse";
  std::vector<std::string> only, keep;
  bool via_bf16 = false;
};

inline void add_format_options(CLI::App& app, format_options& options) {
  app.add_option("--recipe", options.recipe, "Preset that decides the bytes (fp8-convert --list)")->type_name("NAME")->capture_default_str();
  app.add_option("--amax-floor", options.amax_floor, "Smallest amax of a block, finite and >= 0 (default: the preset's)")->type_name("X");
  app.add_option("--scale", options.scale, "fp32, pow2 or e8m0, where the preset leaves a choice")->type_name("S");
  app.add_option("--naming", options.naming, "Names of the scales: vllm, sglang, nemo, skyrl, modelopt, compressed-tensors (default: the preset's)")->type_name("N");
  app.add_option("--model", options.model, "Family whose rules say which tensors become FP8")->type_name("M")->capture_default_str();
  app.add_option("--only", options.only, "Quantize only tensors that match; repeatable")->type_name("GLOB")->allow_extra_args(false);
  app.add_option("--keep", options.keep, "Leave tensors that match in their own dtype; repeatable")->type_name("GLOB")->allow_extra_args(false);
  app.add_option("--nonfinite", options.nonfinite, "NaN and Inf in a weight: refuse, or tool (the preset's own rule decides)")->type_name("refuse|tool")->capture_default_str();
  app.add_flag("--via-bf16", options.via_bf16, "Round FP32 weights to BF16 first, as trainers that export BF16 do");
}

/// What the options mean.
struct format {
  const quantizer* preset = nullptr;
  const fp8wire::naming* names = nullptr;
  float amax_floor = 0;
  bool refuse_nonfinite = true;
  fp8wire::u64 grid_id() const { return preset->grid_id(amax_floor); }
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

inline std::string block_text(const quantizer& row) {
  if (row.block_rows == fp8wire::whole && row.block_cols == fp8wire::whole) return "tensor";
  if (row.block_rows == 1 && row.block_cols == fp8wire::whole) return "row";
  return fmt::format("{}x{}", row.block_rows, row.block_cols);
}

/// Wrong names exit with 2 and list what there is.
inline format resolve(const format_options& options) {
  std::vector<std::string_view> names, scales;
  for (const quantizer& row : quantizers()) {
    if (row.via_bf16) continue;
    if (names.empty() || names.back() != row.name) names.push_back(row.name);
    if (row.name == options.recipe) scales.push_back(row.scale);
  }
  if (scales.empty()) misuse("--recipe {}: no such preset; there are: {}", options.recipe, fmt::join(names, ", "));
  format chosen;
  chosen.preset = find_quantizer(options.recipe, options.scale, options.via_bf16);
  // A preset that always rounds through BF16 has one row only.
  if (chosen.preset == nullptr) chosen.preset = find_quantizer(options.recipe, options.scale, !options.via_bf16);
  if (chosen.preset == nullptr)
    misuse("--scale {}: {} leaves no such choice; there are: {}", options.scale, options.recipe, fmt::join(scales, ", "));
  const quantizer& preset = *chosen.preset;
  if (!options.block.empty() && options.block != block_text(preset))
    misuse("--block {}: not available yet for {}; there is: {}", options.block, preset.name, block_text(preset));
  if (!options.element.empty() && !preset.element.starts_with(options.element))
    misuse("--element {}: not available yet for {}; there is: e4m3", options.element, preset.name);
  const std::string_view naming = options.naming.empty() ? preset.naming : std::string_view(options.naming);
  chosen.names = fp8wire::namings::find(naming);
  if (chosen.names == nullptr) {
    std::vector<std::string_view> known;
    for (const fp8wire::naming& one : fp8wire::namings::all) known.push_back(one.id);
    misuse("--naming {}: no such naming; there are: {}", naming, fmt::join(known, ", "));
  }
  if (options.layout != "canonical") misuse("--layout {}: not available yet; there is: canonical", options.layout);
  chosen.amax_floor = options.amax_floor.empty() ? preset.amax_floor : parse_floor(options.amax_floor);
  if (options.nonfinite != "refuse" && options.nonfinite != "tool") misuse("--nonfinite {}: refuse or tool", options.nonfinite);
  chosen.refuse_nonfinite = options.nonfinite == "refuse";
  return chosen;
}

}  // namespace programs
#endif
