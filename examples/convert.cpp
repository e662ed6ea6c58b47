// SPDX-License-Identifier: Apache-2.0
// fp8-convert: a BF16, FP16 or FP32 checkpoint becomes an FP8 checkpoint.
#include <chrono>

#include "common/options.hpp"
#include "common/report.hpp"
#include "common/target.hpp"
#include "convert/folder.hpp"
#include "convert/shard.hpp"

namespace {

using fp8wire::i64;
using fp8wire::u64;
using programs::action;
using programs::must;
namespace json = fp8wire::json;

struct settings {
  programs::format_options format;
  std::string input, output, report;
  int threads = programs::workers::available();
  bool force = false, dry_run = false, verify = false, list = false, list_layouts = false;
};

void add_options(CLI::App& app, settings& chosen) {
  app.add_option("INPUT", chosen.input, "file.safetensors, or a Hugging Face folder (shards, index, config.json)");
  app.add_option("OUTPUT", chosen.output, "The same kind of thing, in FP8");
  programs::add_format_options(app, chosen.format);
  app.add_option("--layout", chosen.format.layout)->group("");
  app.add_option("--threads", chosen.threads, "Threads (default: all processors)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--force", chosen.force, "Replace OUTPUT");
  app.add_flag("--dry-run", chosen.dry_run, "Say what would be done, and do nothing");
  app.add_flag("--verify", chosen.verify, "Read the output back and prove every byte against the scalar reference");
  app.add_option("--json", chosen.report, "Report with the error of every tensor; - is standard output")
      ->type_name("FILE");
  app.add_flag("--list", chosen.list, "Print the presets and end");
  app.add_flag("--list-layouts", chosen.list_layouts)->group("");
}

void list_presets() {
  constexpr std::string_view line = "{:<26} {:<5} {:<18} {:<7} {:<10} {:<18} {}\n";
  std::string text = fmt::format(line, "name", "scale", "element", "block", "amax-floor", "grid-id", "source");
  for (const programs::quantizer& row : programs::quantizers())
    text +=
        fmt::format(line, row.name, row.scale, row.element, row.block, programs::shortest(row.amax_floor),
                    fmt::format("0x{:016x}", row.grid_id(row.amax_floor, row.always_via_bf16)),
                    fmt::format("{}{}", row.source, row.modelled ? " (modelled: no GPU run has confirmed it)" : ""));
  programs::print(text);
}

json::value report_of(const programs::conversion_plan& plan, const programs::format& how, bool measured,
                      double seconds) {
  json::value report, tensors = json::value::array();
  report["recipe"] = how.preset->name;
  report["scale"] = how.preset->scale;
  report["amax_floor"] = must(json::parse(programs::shortest(how.amax_floor), "amax floor"));
  report["grid_id"] = fmt::format("0x{:016x}", how.grid_id());
  report["naming"] = programs::chosen_naming.id;
  report["layout"] = "canonical";
  report["model"] = plan.select.family_name();
  programs::deviation all;
  i64 counts[3] = {}, bytes_in = 0, bytes_out = 0;
  for (const programs::shard_plan& shard : plan.shards) {
    for (const programs::tensor_plan& tensor : shard.tensors) {
      json::value row;
      row["name"] = tensor.in.name;
      row["shape"] = programs::shape_json(tensor.in.shape);
      row["dtype_in"] = name_of(tensor.in.dtype);
      row["action"] = name_of(tensor.choice.what);
      row["why"] = tensor.choice.why;
      if (tensor.choice.what == action::quantized && measured) {
        add_deviation(row, tensor.measured);
        all.add(tensor.measured);
      }
      row["bytes_in"] = tensor.in_bytes;
      row["bytes_out"] = tensor.out_bytes + tensor.scales_bytes;
      ++counts[static_cast<int>(tensor.choice.what)];
      bytes_in += tensor.in_bytes;
      bytes_out += tensor.out_bytes + tensor.scales_bytes;
      tensors.push_back(std::move(row));
    }
  }
  json::value totals;
  totals["tensors"] = counts[0] + counts[1] + counts[2];
  totals["quantized"] = counts[static_cast<int>(action::quantized)];
  totals["kept"] = counts[static_cast<int>(action::kept)];
  totals["copied"] = counts[static_cast<int>(action::copied)];
  if (measured) add_deviation(totals, all);
  totals["bytes_in"] = bytes_in;
  totals["bytes_out"] = bytes_out;
  report["tensors"] = std::move(tensors);
  report["totals"] = std::move(totals);
  report["seconds"] = seconds;
  return report;
}

/// What a dry run says.
std::string table_of(const programs::conversion_plan& plan) {
  std::string text;
  for (const programs::shard_plan& shard : plan.shards)
    for (const programs::tensor_plan& tensor : shard.tensors)
      text += fmt::format("{:<9} {:<5} {:<18} {}  ({})\n", name_of(tensor.choice.what), name_of(tensor.in.dtype),
                          fmt::format("[{}]", fmt::join(tensor.in.shape, ", ")), tensor.in.name, tensor.choice.why);
  return text;
}

int convert(const settings& chosen) {
  if (chosen.list) return list_presets(), programs::done;
  if (chosen.list_layouts) programs::misuse("--list-layouts: not available yet; there is: canonical");
  if (chosen.input.empty() || chosen.output.empty())
    programs::misuse("INPUT and OUTPUT are required (try fp8-convert --help)");
  const programs::format how = programs::resolve(chosen.format);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };

  programs::conversion_plan plan = programs::plan_conversion(chosen.input, chosen.output, chosen.format, how);
  if (chosen.dry_run) {
    if (chosen.report != "-") programs::print(table_of(plan));
    programs::report_file(chosen.report, json::write(report_of(plan, how, false, seconds()))).commit();
    return programs::done;
  }
  programs::workers threads(chosen.threads);
  const programs::conversion work{how, !chosen.report.empty(), &threads};
  fp8wire::atomic_output output = programs::claim_output(chosen.output, plan.folder, chosen.force, plan.out_bytes());
  programs::run_conversion(plan, output.path(), work, chosen.verify);
  // The report is complete before the output appears, so that a report that cannot be written leaves no output behind.
  programs::report_file report;
  if (!chosen.report.empty())
    report = programs::report_file(chosen.report, json::write(report_of(plan, how, true, seconds())));
  must(output.commit());
  report.commit();
  fmt::print(stderr, "{}\n", programs::closing_line(plan, how, chosen.output, chosen.verify, seconds()));
  return programs::done;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Quantizes a BF16, FP16 or FP32 checkpoint to FP8.", "fp8-convert");
  settings chosen;
  add_options(app, chosen);
  return programs::run(app, count, arguments, [&] { return convert(chosen); });
}
