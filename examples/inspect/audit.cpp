// SPDX-License-Identifier: Apache-2.0
#include "audit.hpp"

#include <fnmatch.h>

#include <regex>
#include <set>

#include <fmt/format.h>

#include <fp8wire/io/engine_config.hpp>
#include <fp8wire/model/audit.hpp>
#include <fp8wire/model/eligibility.hpp>

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::verdict;
namespace json = fp8wire::json;

/// What engines take out of their FP8 modules: names, with or without "model." before them, `*` as ModelOpt writes it
/// and "re:" with a regular expression as compressed-tensors does.
class ignore_list {
 public:
  explicit ignore_list(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      if (entry.starts_with("re:")) expressions_.emplace_back(entry.substr(3));
      else if (entry.find('*') != std::string::npos) globs_.push_back(entry);
      else names_.insert(entry);
    }
  }
  bool holds(std::string_view module) const {
    const std::string name(module), prefix = "model.";
    if (names_.contains(name) || names_.contains(prefix + name)) return true;
    if (name.starts_with(prefix) && names_.contains(name.substr(prefix.size()))) return true;
    for (const std::string& glob : globs_)
      if (fnmatch(glob.c_str(), name.c_str(), 0) == 0) return true;
    for (const std::regex& expression : expressions_)
      if (std::regex_search(name, expression, std::regex_constants::match_continuous)) return true;
    return false;
  }

 private:
  std::set<std::string> names_;
  std::vector<std::string> globs_;
  std::vector<std::regex> expressions_;
};

bool is_code(dtype type) {
  return type == dtype::f8_e4m3 || type == dtype::f8_e5m2 || type == dtype::f8_e4m3fnuz || type == dtype::f8_e5m2fnuz;
}

audit_report skip(std::string why) {
  audit_report none;
  none.skipped = std::move(why);
  return none;
}

audit_report compare(const fp8wire::checkpoint& from, const fp8wire::family& family, const ignore_list& ignored) {
  const fp8wire::eligibility rules(family);
  fp8wire::layer_set learner(fmt::format("the rules of {}", family.name)), wire("the tensors"), engine("config.json");
  for (const fp8wire::checkpoint_tensor& tensor : from.tensors()) {
    // The rules speak of the weight before it was quantized.
    fp8wire::tensor_spec before{tensor.name, is_code(tensor.dtype) ? dtype::bf16 : tensor.dtype, tensor.shape};
    const fp8wire::decision choice = rules.decide(before);
    if (choice.what == verdict::copied) continue;
    const std::string fused = fp8wire::fused_with(tensor.name);
    const bool left_out = ignored.holds(fp8wire::module_of(tensor.name)) ||
                          (!fused.empty() && ignored.holds(fp8wire::module_of(fused)));
    const bool by_rule = choice.what == verdict::quantized, is_fp8 = is_code(tensor.dtype);
    learner.add(tensor.name, by_rule && (is_fp8 || !left_out));
    wire.add(tensor.name, is_fp8);
    engine.add(tensor.name, by_rule && !left_out);
  }
  audit_report found;
  found.family = family.name;
  for (const fp8wire::layer_set::row& row : wire.rows()) {
    ++found.parameters;
    if (row.fp8 != 0) ++found.in_fp8;
  }
  found.disagreements = fp8wire::audit(learner, wire, engine);
  return found;
}

}  // namespace

audit_report audit_checkpoint(const fp8wire::checkpoint& from) {
  if (from.config().empty()) return skip("there is no config.json");
  const auto config = json::parse(from.config(), "config.json");
  if (!config) return skip(config.error().message());
  const json::value* const told = config->find("quantization_config");
  if (told == nullptr || told->is(json::kind::null)) return skip("config.json has no quantization_config");
  const auto engine = fp8wire::read_engine_config(*told, "quantization_config");
  if (!engine) return skip(engine.error().message());
  const json::value* const type = config->find("model_type");
  if (type == nullptr || !type->is(json::kind::string)) return skip("config.json has no model_type");
  const auto family = fp8wire::families::of_model_type(type->text());
  if (!family) return skip(fmt::format("config.json: no rules are known for model_type {}", type->text()));
  try {
    return compare(from, **family, ignore_list(engine->ignored));
  } catch (const std::regex_error&) {
    return skip("the ignore list has a regular expression that cannot be read here");
  }
}

}  // namespace programs
