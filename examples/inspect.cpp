// SPDX-License-Identifier: Apache-2.0
// fp8-inspect: what is in an FP8 checkpoint, how two of them differ, and how far one is from the original.
#include <fnmatch.h>

#include "common/options.hpp"
#include "common/report.hpp"
#include "common/target.hpp"
#include "inspect/audit.hpp"
#include "inspect/compare.hpp"
#include "inspect/config.hpp"
#include "inspect/pairs.hpp"
#include "inspect/report.hpp"

namespace {

namespace json = fp8wire::json;

struct settings {
  std::string first, second, original, html, report, pattern, config;
  std::vector<std::string> align;
  int threads = programs::workers::available();
};

/// A page or a report over what it tells of would destroy that.
void expect_apart(const settings& chosen) {
  programs::expect_two_places("--json", chosen.report, "--html", chosen.html);
  for (const std::string* input : {&chosen.first, &chosen.second, &chosen.original, &chosen.config}) {
    if (input->empty()) continue;
    programs::expect_apart_from("--json", chosen.report, *input);
    programs::expect_apart_from("--html", chosen.html, *input);
  }
}

/// What compared nothing must not look like what found no difference.
void expect_match(const std::string& pattern, const fp8wire::checkpoint& a, const fp8wire::checkpoint* b) {
  if (pattern.empty()) return;
  for (const fp8wire::checkpoint* one : {&a, b})
    if (one != nullptr)
      for (const fp8wire::checkpoint_tensor& tensor : one->tensors())
        if (::fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0) return;
  programs::refuse("--tensor '{}': no tensor matches", pattern);
}

void expect_measured(const std::string& original, const std::vector<programs::pair_error>& errors) {
  if (errors.empty()) programs::refuse("--against {}: there are no codes with scales to compare with it", original);
  for (const programs::pair_error& one : errors)
    if (one.problem.empty()) return;
  programs::refuse("--against {}: nothing could be compared; {}: {}", original, errors.front().name,
                   errors.front().problem);
}

int inspect(const settings& chosen) {
  expect_apart(chosen);
  if (!chosen.config.empty()) return programs::check_config(chosen.config, chosen.report);
  if (!chosen.align.empty()) return programs::align(chosen.align, chosen.report);
  if (chosen.first.empty()) programs::misuse("a checkpoint is required (try fp8-inspect --help)");
  if (!chosen.second.empty() && !chosen.original.empty())
    programs::misuse("--against compares one checkpoint with its original, not two");
  programs::workers threads(chosen.threads);
  const fp8wire::checkpoint a = programs::must(fp8wire::checkpoint::open(chosen.first));
  json::value report;
  std::string text;
  bool sound = true;
  if (chosen.second.empty()) {
    expect_match(chosen.pattern, a, nullptr);
    programs::inspection found = programs::inspect_checkpoint(a, chosen.pattern, threads);
    std::vector<programs::pair_error> errors;
    if (!chosen.original.empty()) {
      const fp8wire::checkpoint original = programs::must(fp8wire::checkpoint::open(chosen.original));
      errors = programs::measure_against(found, original, a, threads);
      expect_measured(chosen.original, errors);
    }
    // Of a part of the tensors nothing could be said about fused parameters.
    if (chosen.pattern.empty()) found.audit = programs::audit_checkpoint(a);
    else found.audit.skipped = "--tensor leaves tensors out";
    report = programs::report_of(chosen.first, chosen.original, a, found, errors);
    text = programs::text_of(found, errors);
    sound = found.broken() == 0 && found.audit.disagreements.empty();
  } else {
    const fp8wire::checkpoint b = programs::must(fp8wire::checkpoint::open(chosen.second));
    expect_match(chosen.pattern, a, &b);
    const programs::comparison found = programs::compare_checkpoints(a, b, chosen.pattern, threads);
    report = programs::report_of(chosen.first, chosen.second, found);
    text = programs::text_of(found);
    sound = found.equal();
  }
  programs::report_file page(chosen.html, chosen.html.empty() ? "" : programs::page_of(report));
  programs::report_file file(chosen.report, json::write(report));
  page.commit();
  file.commit();
  if (chosen.report != "-" && chosen.html != "-") programs::print(text);
  return sound ? programs::done : programs::refused;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Looks at an FP8 checkpoint: pairs, encodings, scales, errors. With two, compares them.", "fp8-inspect");
  settings chosen;
  app.add_option("A", chosen.first, "file.safetensors or folder");
  app.add_option("B", chosen.second, "Another one, to compare; exit 1 when they differ");
  app.add_option("--against", chosen.original, "The checkpoint that A was made of: error of every tensor")
      ->type_name("ORIGINAL");
  app.add_option("--html", chosen.html, "One self-contained page")->type_name("FILE");
  app.add_option("--json", chosen.report, "Everything that was found; - is standard output")->type_name("FILE");
  app.add_option("--tensor", chosen.pattern, "Only tensors that match")->type_name("GLOB");
  app.add_option("--threads", chosen.threads, "Threads (default: all processors)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_option("--check-config", chosen.config,
                 "Every rule that a training run's configuration breaks; exit 1 if any")
      ->type_name("FILE.json");
  app.add_option("--align", chosen.align, "TOOL,RECIPE,TP,CP LENGTH...: padded lengths by that tool's rule")
      ->type_name("RULE LENGTH")
      ->expected(1, 1 << 20);
  return programs::run(app, count, arguments, [&] { return inspect(chosen); });
}
