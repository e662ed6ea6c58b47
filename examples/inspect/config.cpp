// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>

#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/model/alignment.hpp>
#include <fp8wire/model/environment.hpp>

#include "../common/options.hpp"
#include "../common/report.hpp"
#include "../common/target.hpp"

namespace programs {
namespace {

using fp8wire::i64;

struct finding {
  std::string path, what, remedy;
  std::string text() const { return path + ": " + what + (remedy.empty() ? "" : ": " + remedy); }
};

/// Reads one section and takes note of everything that it cannot be.
class section_reader {
 public:
  section_reader(const json::value& section, std::string prefix, std::vector<finding>& findings)
      : section_(section), prefix_(std::move(prefix)), findings_(findings) {}
  section_reader(const section_reader&) = delete;
  section_reader& operator=(const section_reader&) = delete;
  /// What nobody asked for has a wrong name.
  ~section_reader() {
    for (const std::string& key : section_.keys())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        wrong(key, fmt::format("no such option; there are: {}", fmt::join(known_, ", ")));
  }

  void truth(const char* key, bool& out) {
    const json::value* found = find(key);
    if (found == nullptr) return;
    if (!found->is(json::kind::boolean)) return wrong(key, "must be true or false");
    out = found->is_true();
  }
  template <class Enum> void choice(const char* key, std::initializer_list<std::string_view> names, Enum& out) {
    const json::value* found = find(key);
    if (found == nullptr) return;
    const auto at = std::find(names.begin(), names.end(), found->text());
    if (!found->is(json::kind::string) || at == names.end())
      return wrong(key, fmt::format("must be one of {}: '{}'", fmt::join(names, ", "), found->text()));
    out = static_cast<Enum>(at - names.begin());
  }
  /// 90, or "sm90".
  void arch(const char* key, int& out) {
    const json::value* found = find(key);
    if (found == nullptr) return;
    std::string_view digits = found->text();
    if (digits.starts_with("sm")) digits.remove_prefix(2);
    int number = 0;
    const auto [stopped, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (fault != std::errc{} || stopped != digits.data() + digits.size() || number < 10 || number > 999)
      return wrong(key, fmt::format("must be a compute capability such as 90 or \"sm100\": '{}'", found->text()));
    out = number;
  }
  const json::value* section(const char* key) {
    const json::value* found = find(key);
    if (found == nullptr || found->is(json::kind::object)) return found;
    wrong(key, "must be an object");
    return nullptr;
  }
  /// Text or number as it stands.
  const char* variable(const char* key) {
    const json::value* found = find(key);
    return found == nullptr ? nullptr : found->text().c_str();
  }

 private:
  const json::value* find(const char* key) {
    known_.emplace_back(key);
    const json::value* found = section_.find(key);
    return found == nullptr || found->is(json::kind::null) ? nullptr : found;
  }
  void wrong(std::string_view key, std::string what) {
    findings_.push_back({prefix_ + std::string(key), std::move(what), {}});
  }
  const json::value& section_;
  std::string prefix_;
  std::vector<std::string> known_;
  std::vector<finding>& findings_;
};

void read_role(const json::value* from, std::string prefix, fp8wire::role_configuration& out,
               std::vector<finding>& findings) {
  if (from == nullptr) return;
  out.present = true;
  section_reader reader(*from, std::move(prefix), findings);
  enum class strategy { megatron, fsdp, fsdp2 } with = strategy::megatron;
  reader.choice("strategy", {"megatron", "fsdp", "fsdp2"}, with);
  out.megatron = with == strategy::megatron;
  reader.choice("fp8_recipe", {"off", "auto", "tensorwise", "blockwise", "mxfp8"}, out.recipe);
  reader.choice("scale", {"unset", "fp32", "pow2", "e8m0"}, out.scale);
  reader.truth("fp8_param", out.persistent);
  reader.truth("fp8_param_gather", out.gather);
  reader.choice("lora", {"none", "merged", "adapter-only"}, out.lora);
}

fp8wire::configuration read_configuration(const json::value& file, std::vector<finding>& findings) {
  fp8wire::configuration out;
  section_reader top(file, "", findings);
  top.arch("arch", out.arch);
  read_role(top.section("policy"), "policy.", out.policy, findings);
  read_role(top.section("reference"), "reference.", out.reference, findings);
  if (const json::value* sync = top.section("sync"); sync != nullptr) {
    section_reader reader(*sync, "sync.", findings);
    reader.choice("mode", {"bf16", "auto", "blockwise", "mxfp8"}, out.sync);
    reader.truth("prequantize", out.prequantize);
    reader.truth("nccl_reshard", out.reshard);
  }
  if (const json::value* engine = top.section("engine"); engine != nullptr) {
    section_reader reader(*engine, "engine.", findings);
    reader.truth("fake_quant", out.fake_quant);
  }
  if (const json::value* environment = top.section("environment"); environment != nullptr) {
    section_reader reader(*environment, "environment.", findings);
    for (const fp8wire::error& refusal :
         fp8wire::read_environment([&](const char* name) { return reader.variable(name); }, out))
      findings.push_back({refusal.tensor, refusal.what, {}});
  }
  return out;
}

i64 parse_count(std::string_view text, std::string_view what, i64 least, i64 most) {
  i64 number = 0;
  const auto [stopped, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc{} || stopped != text.data() + text.size() || number < least || number > most)
    misuse("--align: {} '{}' is no number in {} .. {}", what, text, least, most);
  return number;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

int check_config(const std::string& path, const std::string& report) {
  const fp8wire::mapped_file file = must(fp8wire::mapped_file::open(path));
  const auto bytes = file.bytes();
  const json::value parsed = must(json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
  if (!parsed.is(json::kind::object)) refuse("{}: a configuration is a JSON object", path);

  std::vector<finding> findings;
  const fp8wire::configuration read = read_configuration(parsed, findings);
  for (const fp8wire::violation& one : fp8wire::check(read)) findings.push_back({one.path, one.what, one.remedy});

  json::value made, violations = json::value::array(), environment = json::value::object();
  std::string text;
  for (const finding& one : findings) {
    json::value row;
    row["path"] = one.path;
    row["what"] = one.what;
    row["remedy"] = one.remedy;
    violations.push_back(std::move(row));
    text += one.text() + "\n";
  }
  for (const auto& [name, value] : fp8wire::environment_of(read)) {
    environment[name] = value;
    if (findings.empty()) text += name + "=" + value + "\n";
  }
  made["violations"] = std::move(violations);
  made["environment"] = std::move(environment);
  report_file output(report, json::write(made) + "\n");
  output.commit();
  if (report != "-") print(findings.empty() ? path + ": no violation\n" + text : text);
  if (findings.empty()) return done;
  refuse("{}: {} {}", path, findings.size(), findings.size() == 1 ? "violation" : "violations");
}

int align(const std::vector<std::string>& words, const std::string& report) {
  const std::vector<std::string_view> parts = split(words.front());
  if (parts.size() != 4) misuse("--align {}: TOOL,RECIPE,TP,CP is wanted", words.front());
  const fp8wire::alignments::named* tool = fp8wire::alignments::find(parts[0]);
  if (tool == nullptr) {
    std::vector<std::string_view> names;
    for (const fp8wire::alignments::named& one : fp8wire::alignments::all) names.push_back(one.name);
    misuse("--align: no such tool '{}'; there are: {}", parts[0], fmt::join(names, ", "));
  }
  fp8wire::token_layout layout;
  bool known = false;
  for (const auto recipe :
       {fp8wire::fp8_training::tensorwise, fp8wire::fp8_training::blockwise, fp8wire::fp8_training::mxfp8})
    if (name_of(recipe) == parts[1]) layout.recipe = recipe, known = true;
  if (!known) misuse("--align: no such recipe '{}'; there are: tensorwise, blockwise, mxfp8", parts[1]);
  layout.tp = parse_count(parts[2], "tp", 1, 65536);
  layout.cp = parse_count(parts[3], "cp", 1, 65536);
  std::vector<i64> lengths;
  for (std::size_t i = 1; i < words.size(); ++i) lengths.push_back(parse_count(words[i], "length", 0, i64{1} << 40));
  if (lengths.empty()) misuse("--align: lengths are wanted behind {}", words.front());
  layout.sequences = static_cast<i64>(lengths.size());

  const fp8wire::token_alignment by = tool->rule(layout);
  std::vector<i64> starts(lengths.size() + 1);
  fp8wire::pack(lengths, by, starts);
  json::value made, rows = json::value::array();
  made["tool"] = tool->name;
  made["recipe"] = parts[1];
  made["tp"] = layout.tp;
  made["cp"] = layout.cp;
  made["sequence_multiple"] = by.sequence;
  made["total_multiple"] = by.total;
  std::string text = fmt::format(
      "{}, {}, tp {}, cp {}: sequences to a multiple of {}, a pack to a multiple of {}\n{:>12} {:>12} {:>12}\n",
      tool->name, parts[1], layout.tp, layout.cp, by.sequence, by.total, "tokens", "padded", "begins at");
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    json::value row;
    row["tokens"] = lengths[i];
    row["padded"] = by.padded(lengths[i]);
    row["begins"] = starts[i];
    rows.push_back(std::move(row));
    text += fmt::format("{:>12} {:>12} {:>12}\n", lengths[i], by.padded(lengths[i]), starts[i]);
  }
  made["sequences"] = std::move(rows);
  made["total"] = starts.back();
  text += fmt::format("{:>12} {:>12}\n", "a pack", starts.back());
  report_file output(report, json::write(made) + "\n");
  output.commit();
  if (report != "-") print(text);
  return done;
}

}  // namespace programs
