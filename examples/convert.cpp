// SPDX-License-Identifier: Apache-2.0
// fp8-convert: a BF16, FP16 or FP32 checkpoint becomes an FP8 checkpoint.
#include <chrono>
#include <filesystem>

#include "common/options.hpp"
#include "common/report.hpp"
#include "common/target.hpp"
#include "convert/conversion.hpp"
#include "convert/layout.hpp"

namespace {

using fp8wire::i64;
using fp8wire::u64;
using fp8wire::verdict;
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
  app.add_option("--layout", chosen.format.layout, "How codes and scales lie, by engine (--list-layouts)")
      ->type_name("L")
      ->capture_default_str();
  app.add_option("--threads", chosen.threads, "Threads (default: all processors)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--force", chosen.force, "Replace OUTPUT");
  app.add_flag("--dry-run", chosen.dry_run, "Say what would be done, and do nothing");
  app.add_flag("--verify", chosen.verify, "Read the output back and prove every byte against the scalar reference");
  app.add_option("--json", chosen.report, "Report with the error of every tensor; - is standard output")
      ->type_name("FILE");
  app.add_flag("--list", chosen.list, "Print the presets and end");
  app.add_flag("--list-layouts", chosen.list_layouts, "Print the layouts and end");
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

json::value report_of(const programs::conversion_plan& plan, bool measured, double seconds) {
  json::value report, tensors = json::value::array(), totals;
  report["recipe"] = plan.how.preset->name;
  report["scale"] = plan.how.preset->scale;
  report["amax_floor"] = must(json::parse(programs::shortest(plan.how.amax_floor), "amax floor"));
  report["grid_id"] = fmt::format("0x{:016x}", plan.how.grid_id());
  report["naming"] = programs::chosen_naming.id;
  report["layout"] = plan.how.layout;
  report["model"] = plan.select.family_name();
  programs::deviation all;
  i64 counts[3] = {};
  for (const programs::tensor_plan& tensor : plan.tensors) {
    json::value row;
    row["name"] = tensor.in->name;
    row["shape"] = programs::shape_json(tensor.in->shape);
    row["dtype_in"] = name_of(tensor.in->dtype);
    row["action"] = name_of(tensor.choice.what);
    row["why"] = tensor.choice.why;
    if (tensor.choice.what == verdict::quantized && measured) {
      add_deviation(row, tensor.measured);
      all.add(tensor.measured);
    }
    row["bytes_in"] = tensor.in->bytes.size();
    row["bytes_out"] = tensor.bytes_out;
    ++counts[static_cast<int>(tensor.choice.what)];
    tensors.push_back(std::move(row));
  }
  totals["tensors"] = plan.tensors.size();
  for (const verdict what : {verdict::quantized, verdict::kept, verdict::copied})
    totals[name_of(what)] = counts[static_cast<int>(what)];
  if (measured) add_deviation(totals, all);
  totals["bytes_in"] = plan.bytes_in;
  totals["bytes_out"] = plan.bytes_out;
  report["tensors"] = std::move(tensors);
  report["totals"] = std::move(totals);
  report["seconds"] = seconds;
  return report;
}

/// What a dry run says.
std::string table_of(const programs::conversion_plan& plan) {
  std::string text;
  for (const programs::tensor_plan& tensor : plan.tensors)
    text += fmt::format("{:<9} {:<5} {:<18} {}  ({})\n", name_of(tensor.choice.what), name_of(tensor.in->dtype),
                        fmt::format("[{}]", fmt::join(tensor.in->shape, ", ")), programs::plain(tensor.in->name),
                        programs::plain(tensor.choice.why));
  return text;
}

fp8wire::checkpoint_writer open_output(programs::conversion_plan& plan, const settings& chosen) {
  std::error_code unknown;
  if (!plan.input.is_folder() &&
      (chosen.output.ends_with('/') || std::filesystem::is_directory(chosen.output, unknown)))
    programs::refuse("{}: is a folder, and INPUT {} is a file: OUTPUT must be one too", chosen.output, chosen.input);
  const auto what = chosen.force ? fp8wire::existing::replace : fp8wire::existing::refuse;
  auto opened = plan.input.is_folder()
                    ? fp8wire::checkpoint_writer::folder(chosen.output, what, plan.shards, plan.input)
                    : fp8wire::checkpoint_writer::file(chosen.output, what, plan.shards.front().tensors,
                                                       plan.shards.front().metadata);
  if (!opened && opened.error().code == fp8wire::errc::unexpected && !chosen.force)
    programs::refuse("{}; --force replaces it", opened.error().message());
  return must(std::move(opened));
}

/// Codes that were copied must not get the name of a recipe that did not make them, and no tensor is left out unsaid.
void expect_weights(const programs::conversion_plan& plan, const settings& chosen) {
  bool quantized = false;
  const fp8wire::checkpoint_tensor* codes = nullptr;
  for (const programs::tensor_plan& tensor : plan.tensors) {
    quantized = quantized || tensor.choice.what == verdict::quantized;
    const fp8wire::dtype type = tensor.in->dtype;
    if (codes == nullptr && (type == fp8wire::dtype::f8_e4m3 || type == fp8wire::dtype::f8_e5m2)) codes = tensor.in;
  }
  const auto warn = [](const std::string& text) { programs::complain("fp8-convert", "warning", text); };
  for (const std::string& useless : plan.select.useless_patterns(plan.input.tensors())) warn(useless);
  if (!quantized) plan.select.expect_only_matches();
  if (!quantized && codes != nullptr)
    programs::refuse("{}: is {} already, and nothing else becomes FP8: convert the checkpoint that it was made of",
                     codes->name, name_of(codes->dtype));
  if (!quantized && !chosen.format.keep.empty())
    warn(fmt::format("no tensor becomes FP8: --keep '{}' leaves none", fmt::join(chosen.format.keep, "', '")));
  for (const auto& [shard, name] : plan.input.ignored())
    if (plan.input.find(name) == nullptr)
      warn(fmt::format("{}: lies in {} and not in the index: it is left out", name, shard));
  if (!plan.input.is_folder()) return;
  namespace fs = std::filesystem;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(chosen.input, failed); !failed && at != fs::recursive_directory_iterator();
       at.increment(failed)) {
    std::error_code unknown;
    if (!at->is_directory(unknown)) continue;
    if (at->path().filename().string().starts_with('.')) at.disable_recursion_pending();
    else if (at->is_symlink(unknown))
      warn(fmt::format("{}: is a link to a folder: it is left out", at->path().string()));
  }
}

int convert(const settings& chosen) {
  if (chosen.list) return list_presets(), programs::done;
  if (chosen.list_layouts) return programs::print(programs::list_layouts()), programs::done;
  if (chosen.input.empty() || chosen.output.empty())
    programs::misuse("INPUT and OUTPUT are required (try fp8-convert --help)");
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };

  programs::expect_apart_from("--json", chosen.report, chosen.input);
  programs::conversion_plan plan = programs::plan_conversion(chosen.input, chosen.output, chosen.format);
  expect_weights(plan, chosen);
  if (chosen.dry_run) {
    if (chosen.report != "-") programs::print(table_of(plan));
    programs::report_file(chosen.report, json::write(report_of(plan, false, seconds()))).commit();
    return programs::done;
  }
  programs::expect_no_interruption();  // before there are threads that a signal could end the program through
  programs::workers threads(chosen.threads);
  fp8wire::checkpoint_writer output = open_output(plan, chosen);
  programs::fill(plan, output, !chosen.report.empty(), threads);
  const bool has_config = !plan.config.is(json::kind::null);
  must(output.finish(has_config ? json::write(plan.config) : std::string()));
  if (!plan.modelopt_file.is(json::kind::null))
    programs::write_text(output.path() + "/hf_quant_config.json", json::write(plan.modelopt_file));
  if (chosen.verify) programs::verify(plan, output.path(), threads);
  // The report is complete before the output appears, so that a report that cannot be written leaves no output behind.
  programs::report_file report;
  if (!chosen.report.empty())
    report = programs::report_file(chosen.report, json::write(report_of(plan, true, seconds())));
  programs::expect_no_interruption();
  fp8wire::error late = output.commit();
  std::error_code unknown;
  if (late && !chosen.force && std::filesystem::exists(chosen.output, unknown))
    programs::refuse("{}; --force replaces it", late.message());
  must(late);
  report.commit();
  programs::say(programs::closing_line(plan, chosen.output, chosen.verify, seconds()) + "\n");
  return programs::done;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Quantizes a BF16, FP16 or FP32 checkpoint to FP8.", "fp8-convert");
  settings chosen;
  add_options(app, chosen);
  return programs::run(app, count, arguments, [&] { return convert(chosen); });
}
