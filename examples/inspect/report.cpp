// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../common/program.hpp"
#include "../common/report.hpp"

namespace programs {
namespace {

std::string name_of_fit(const preset_fit& fit) {
  return fmt::format("{} {}{}", fit.row->name, fit.row->scale, fit.from_bf16 ? "" : " from FP32");
}

json::value fits_json(const std::vector<preset_fit>& fits) {
  json::value list = json::value::array();
  for (const preset_fit& fit : fits) {
    json::value one;
    one["name"] = fit.row->name;
    one["scale"] = fit.row->scale;
    json::value& from = one["from"] = json::value::array();
    if (fit.from_bf16) from.push_back("BF16");
    if (fit.from_fp32) from.push_back("F32");
    list.push_back(std::move(one));
  }
  return list;
}

std::string fits_text(const std::vector<preset_fit>& fits) {
  std::vector<std::string> names;
  for (const preset_fit& fit : fits) names.push_back(name_of_fit(fit));
  return names.empty() ? "none known" : fmt::format("{}", fmt::join(names, ", "));
}

std::string decibel_text(const deviation& measured) {
  if (measured.elements == 0) return "nothing measured";
  return measured.squared_error == 0.0 ? "nothing lost" : fmt::format("{:.2f} dB", measured.sqnr_db());
}

json::value strings_json(const std::vector<std::string>& strings) {
  json::value list = json::value::array();
  for (const std::string& one : strings) list.push_back(one);
  return list;
}

json::value error_json(const pair_error& error) {
  json::value one;
  if (!error.problem.empty()) {
    one["problem"] = error.problem;
    return one;
  }
  add_deviation(one, error.all);
  json::value& worst = one["worst"] = json::value::array();
  for (const block_error& block : error.worst) {
    json::value entry;
    entry["batch"] = block.batch;
    entry["block_row"] = block.row;
    entry["block_col"] = block.col;
    entry["sqnr_db"] = block.error.sqnr_db();
    entry["max_abs_error"] = block.error.largest;
    worst.push_back(std::move(entry));
  }
  one["made_by"] = strings_json(error.made_by);
  json::value heat;
  heat["rows"] = error.heat_rows;
  heat["cols"] = error.heat_cols;
  json::value& cells = heat["lowest_sqnr_db"] = json::value::array();
  // Tenths are plenty for a colour; nothing was lost: null.
  for (const float cell : error.heat)
    cells.push_back(cell >= 1000.0f ? json::value() : json::value(std::round(static_cast<double>(cell) * 10) / 10));
  one["heat"] = std::move(heat);
  return one;
}

json::value pair_json(const pair_report& pair) {
  json::value one;
  one["name"] = pair.name;
  one["dtype"] = name_of(pair.codes);
  one["shape"] = shape_json(pair.shape);
  one["scale_name"] = pair.scale_name;
  one["scale_dtype"] = name_of(pair.scale_dtype);
  one["scale_shape"] = shape_json(pair.scale_shape);
  one["encoding"] = pair.encoding;
  one["block"] = pair.block;
  if (pair.canonical) {
    one["blocks"] = pair.blocks;
    one["zero_blocks"] = pair.zero_blocks;
    one["nan_codes"] = pair.nan_codes;
    one["scale_min"] = pair.smallest;
    one["scale_max"] = pair.largest;
    json::value suspicious;
    suspicious["zero"] = pair.faults.zero;
    suspicious["negative"] = pair.faults.negative;
    suspicious["inf"] = pair.faults.infinite;
    suspicious["nan"] = pair.faults.nan;
    suspicious["first"] = pair.faults.first < 0 ? json::value() : json::value(pair.faults.first);
    one["suspicious"] = std::move(suspicious);
    json::value& exponents = one["exponents"] = json::value::object();
    for (const auto& [exponent, count] : pair.exponents) exponents[std::to_string(exponent)] = count;
    one["blocks_checked"] = pair.blocks_checked;
    one["presets"] = fits_json(pair.presets);
  }
  one["note"] = pair.note;
  one["problem"] = pair.problem.empty() ? json::value() : json::value(pair.problem);
  return one;
}

json::value audit_json(const audit_report& audit) {
  json::value one;
  if (!audit.skipped.empty()) {
    one["skipped"] = audit.skipped;
    return one;
  }
  one["family"] = audit.family;
  one["parameters"] = audit.parameters;
  one["in_fp8"] = audit.in_fp8;
  json::value& list = one["disagreements"] = json::value::array();
  for (const fp8wire::error& problem : audit.disagreements) {
    json::value entry;
    entry["name"] = problem.tensor;
    entry["what"] = problem.what;
    list.push_back(std::move(entry));
  }
  return one;
}

std::string audit_text(const audit_report& audit) {
  if (!audit.skipped.empty()) return fmt::format("\nno layer audit: {}", audit.skipped);
  std::string text = fmt::format("\nlayer audit by the rules of {}: {} of {} parameters in FP8, {} disagreements",
                                 audit.family, audit.in_fp8, audit.parameters, audit.disagreements.size());
  for (const fp8wire::error& problem : audit.disagreements) text += fmt::format("\n  {}", plain(problem.message()));
  return text;
}

}  // namespace

json::value report_of(const std::string& path, const std::string& original, const fp8wire::checkpoint& from,
                      const inspection& found, const std::vector<pair_error>& errors) {
  json::value report, pairs = json::value::array(), orphans = json::value::array(), summary,
                      metadata = json::value::object();
  report["checkpoint"] = path;
  report["against"] = original.empty() ? json::value() : json::value(original);
  for (const fp8wire::checkpoint_shard& shard : from.shards())
    for (const auto& [key, value] : shard.metadata) metadata[key] = value;
  report["metadata"] = std::move(metadata);
  fp8wire::u64 blocks = 0, zero_blocks = 0, suspicious = 0;
  deviation all;
  for (std::size_t i = 0; i < found.pairs.size(); ++i) {
    const pair_report& pair = found.pairs[i];
    blocks += pair.blocks;
    zero_blocks += pair.zero_blocks;
    suspicious += pair.faults.all();
    json::value one = pair_json(pair);
    if (!errors.empty()) {
      one["error"] = error_json(errors[i]);
      all.add(errors[i].all);
    }
    pairs.push_back(std::move(one));
  }
  for (const orphan& one : found.orphans) {
    json::value entry;
    entry["name"] = one.name;
    entry["what"] = one.what;
    orphans.push_back(std::move(entry));
  }
  summary["pairs"] = found.pairs.size();
  summary["broken"] = found.broken();
  summary["orphans"] = found.orphans.size();
  summary["blocks"] = blocks;
  summary["zero_blocks"] = zero_blocks;
  summary["suspicious_scales"] = suspicious;
  summary["presets"] = fits_json(found.presets);
  json::value& other = summary["other_tensors"] = json::value::object();
  for (const auto& [type, count] : found.other) other[type] = count;
  if (!errors.empty()) add_deviation(summary["error"], all);
  report["summary"] = std::move(summary);
  report["pairs"] = std::move(pairs);
  report["orphans"] = std::move(orphans);
  report["audit"] = audit_json(found.audit);
  return report;
}

json::value report_of(const std::string& a, const std::string& b, const comparison& found) {
  json::value report, differences = json::value::array();
  report["a"] = a;
  report["b"] = b;
  report["equal"] = found.equal();
  report["same_tensors"] = found.same;
  report["only_in_a"] = strings_json(found.only_a);
  report["only_in_b"] = strings_json(found.only_b);
  report["grid_a"] = found.grid_a.empty() ? json::value() : json::value(found.grid_a);
  report["grid_b"] = found.grid_b.empty() ? json::value() : json::value(found.grid_b);
  report["layout_a"] = found.layout_a;
  report["layout_b"] = found.layout_b;
  report["presets_of_both"] = fits_json(found.presets);
  for (const difference& one : found.differences) {
    json::value entry;
    entry["name"] = one.name;
    entry["what"] = one.what;
    entry["differ"] = one.differ;
    entry["of"] = one.of;
    entry["largest"] = one.largest;
    entry["first"] = one.first < 0 ? json::value() : json::value(one.first);
    differences.push_back(std::move(entry));
  }
  report["differences"] = std::move(differences);
  return report;
}

std::string text_of(const inspection& found, const std::vector<pair_error>& errors) {
  std::string text;
  for (std::size_t i = 0; i < found.pairs.size(); ++i) {
    const pair_report& pair = found.pairs[i];
    text += fmt::format("{}  {} [{}] + {} ({}, {})", plain(pair.name), name_of(pair.codes), fmt::join(pair.shape, ", "),
                        plain(std::string_view(pair.scale_name).substr(pair.scale_name.rfind('.') + 1)),
                        pair.encoding.empty() ? std::string(name_of(pair.scale_dtype)) : pair.encoding,
                        pair.block.empty() ? "?" : pair.block);
    if (!errors.empty())
      text += errors[i].problem.empty()
                  ? fmt::format("  {}, max {:.3g}", decibel_text(errors[i].all), errors[i].all.largest)
                  : fmt::format("  not measured: {}", plain(errors[i].problem));
    if (!pair.note.empty()) text += fmt::format("\n  note: {}", plain(pair.note));
    if (pair.faults.all() > 0)
      text +=
          fmt::format("\n  suspicious scales: {} zero, {} negative, {} Inf, {} NaN, the first at {}", pair.faults.zero,
                      pair.faults.negative, pair.faults.infinite, pair.faults.nan, pair.faults.first);
    if (!pair.problem.empty()) text += fmt::format("\n  BROKEN: {}", plain(pair.problem));
    text += "\n";
  }
  for (const orphan& one : found.orphans) text += fmt::format("{}\n  BROKEN: {}\n", plain(one.name), plain(one.what));
  std::map<std::string, int> kinds;
  for (const pair_report& pair : found.pairs)
    ++kinds[fmt::format("{} + {} {}", name_of(pair.codes),
                        pair.encoding.empty() ? std::string(name_of(pair.scale_dtype)) : pair.encoding, pair.block)];
  text += fmt::format("\n{} pairs, {} broken", found.pairs.size(), found.broken());
  for (const auto& [kind, count] : kinds) text += fmt::format("; {} x {}", count, kind);
  for (const auto& [type, count] : found.other) text += fmt::format("; {} other {}", count, type);
  if (!found.pairs.empty())
    text += fmt::format("\nthese presets could have made all of them: {}", fits_text(found.presets));
  if (!errors.empty()) {
    deviation all;
    std::vector<std::string> proven;
    bool first = true;
    for (const pair_error& error : errors) {
      all.add(error.all);
      if (!error.problem.empty()) continue;
      if (first) proven = error.made_by;
      else
        std::erase_if(proven, [&](const std::string& name) {
          return std::find(error.made_by.begin(), error.made_by.end(), name) == error.made_by.end();
        });
      first = false;
    }
    text += fmt::format("\nagainst the original: {}, max error {:.3g}; byte for byte made by: {}", decibel_text(all),
                        all.largest, proven.empty() ? "none of these" : fmt::format("{}", fmt::join(proven, ", ")));
  }
  text += audit_text(found.audit);
  return text + "\n";
}

std::string text_of(const comparison& found) {
  std::string text;
  for (const std::string& name : found.only_a) text += fmt::format("{}: only in A\n", plain(name));
  for (const std::string& name : found.only_b) text += fmt::format("{}: only in B\n", plain(name));
  for (const difference& one : found.differences)
    text += one.differ == 0 ? fmt::format("{}: {}\n", plain(one.name), one.what)
                            : fmt::format("{}: {} of {} {} differ, the first at {}, by {:.3g} at most\n",
                                          plain(one.name), one.differ, one.of, one.what, one.first, one.largest);
  text += fmt::format("{} tensors are the same, {} differ, {} only in A, {} only in B\n", found.same,
                      found.differences.size(), found.only_a.size(), found.only_b.size());
  if (found.layout_a != found.layout_b)
    text += fmt::format("different layouts, compared as they are stored: {} and {}\n", plain(found.layout_a),
                        plain(found.layout_b));
  if (!found.grid_a.empty() && !found.grid_b.empty())
    text += found.grid_a == found.grid_b ? fmt::format("same grid: {}\n", found.grid_a)
                                         : fmt::format("different grids: {} and {}\n", found.grid_a, found.grid_b);
  else text += fmt::format("presets that could have made both: {}\n", fits_text(found.presets));
  return text;
}

}  // namespace programs
