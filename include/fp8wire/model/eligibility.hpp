// SPDX-License-Identifier: Apache-2.0
/// Which tensors of a checkpoint become FP8 and why: the user's rules, the layers kept in BF16, the family's rules.
///
/// The same decision drives conversion, synchronisation and the engine's ignore list; two lists that were written apart
/// are the most common reason for an engine that serves garbage.
#ifndef FP8WIRE_MODEL_ELIGIBILITY_HPP
#define FP8WIRE_MODEL_ELIGIBILITY_HPP
#include <fp8wire/model/families.hpp>
#include <fp8wire/model/tensor_spec.hpp>

FP8WIRE_ABI_BEGIN

struct decision {
  verdict what = verdict::copied;
  std::string why;  // "qwen3_5: router"
  bool operator==(const decision&) const = default;
};

/// "a.b" of "a.b.weight", and the name itself where it has no ".weight".
constexpr std::string_view module_of(std::string_view tensor) noexcept {
  constexpr std::string_view suffix = ".weight";
  return tensor.ends_with(suffix) ? tensor.substr(0, tensor.size() - suffix.size()) : tensor;
}

/// The number behind the first segment "layers" or "layer", -1 where there is none. Drafting layers ("mtp.") and vision
/// towers have numbers of their own and count as none.
constexpr i64 layer_of(std::string_view name) noexcept {
  if (name.starts_with("mtp.") || matches("**.visual|vision_tower|vision_model.**", name)) return -1;
  for (bool more = true; more;) {
    const std::string_view segment = detail::cut(name, '.', more);
    if (segment != "layers" && segment != "layer") continue;
    const std::string_view number = detail::cut(name, '.', more);
    if (!detail::is_number(number) || number.size() > 9) return -1;
    i64 layer = 0;
    for (const char c : number) layer = 10 * layer + (c - '0');
    return layer;
  }
  return -1;
}

/// Decides one tensor after the other; no tensor's data is looked at. Threads: `decide` may run concurrently.
class eligibility {
 public:
  explicit eligibility(const family& rules = families::all_2d) noexcept : family_(&rules) {}
  const fp8wire::family& family() const noexcept { return *family_; }

  /// Keeps the first and the last layers of `layers` in their own dtype, as trainers do that leave them in BF16.
  /// Errors: bad_argument for negative numbers and for more than there are.
  error keep_layers(i64 first, i64 last, i64 layers) {
    if (first < 0 || last < 0 || first > layers || last > layers - first)
      return make_error(errc::bad_argument, "layers", "first and last layers in BF16", first + last, layers);
    first_ = first, last_ = last, layers_ = layers;
    return {};
  }

  /// Rules that come before all others, one a line: `keep PATTERN [why]` or `quantize PATTERN [why]`, the pattern as in
  /// name_pattern.hpp and of the module, without ".weight"; `#` behind white space begins a comment, as does a whole
  /// line. Errors: bad_argument with source and line; then no rule of the text is taken.
  error add_rules(std::string_view text, std::string_view source) {
    std::vector<user_rule> added;
    i64 number = 0;
    for (bool more = true; more;) {
      std::string_view line = detail::cut(text, '\n', more);
      ++number;
      if (const std::size_t comment = comment_in(line); comment != line.npos) line = line.substr(0, comment);
      const std::string_view verb = word(line);
      if (verb.empty()) continue;
      const std::string_view pattern = word(line);
      const bool quantize = verb == "quantize";
      if ((!quantize && verb != "keep") || pattern.empty() || pattern.ends_with(".weight"))
        return make_error(errc::bad_argument, std::string(source).append(":").append(std::to_string(number)),
                          pattern.ends_with(".weight") ? "a pattern names the module: leave .weight off"
                                                       : "a rule is: keep PATTERN [why], or quantize PATTERN [why]");
      while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
      while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
      added.push_back({std::string(pattern), quantize ? verdict::quantized : verdict::kept,
                       std::string(source).append(": ").append(line.empty() ? pattern : line)});
    }
    for (user_rule& one : added) user_.push_back(std::move(one));
    return {};
  }

  /// The patterns of add_rules that name no module of `tensors`: mistyped, more often than not.
  template <class Tensors> std::vector<std::string> useless_rules(const Tensors& tensors) const {
    std::vector<std::string> found;
    for (const user_rule& one : user_) {
      bool used = false;
      for (const auto& tensor : tensors) used = used || matches(one.pattern, module_of(tensor.name));
      if (!used) found.push_back(one.pattern);
    }
    return found;
  }

  /// FP8 or not. copied: no floating dtype, not 2-D or 3-D, or no weight by its name; else the first rule decides.
  decision decide(const tensor_spec& tensor) const {
    if (tensor.dtype != dtype::bf16 && tensor.dtype != dtype::f16 && tensor.dtype != dtype::f32)
      return {verdict::copied, std::string(name_of(tensor.dtype)).append(" is not quantized")};
    const std::string_view module = module_of(tensor.name);
    const bool bare = module.size() == tensor.name.size();
    const family_rule* const rule = find(module, bare ? tensor_form::bare : tensor_form::weight);
    if (bare && rule == nullptr) return {verdict::copied, "not named *.weight"};
    if (tensor.shape.size() != 3 && (bare || tensor.shape.size() != 2))
      return {verdict::copied, std::to_string(tensor.shape.size()).append(" dimensions")};
    for (const user_rule& one : user_)
      if (matches(one.pattern, module)) return {one.what, one.reason};
    if (rule != nullptr && rule->what != verdict::quantized) return says(verdict::kept, rule->reason);
    if (const i64 layer = layer_of(tensor.name);
        layer >= 0 && (layer < first_ || (layer < layers_ && layer >= layers_ - last_)))
      return {verdict::kept, layer < first_ ? "one of the first " + std::to_string(first_) + " layers"
                                            : "one of the last " + std::to_string(last_) + " layers"};
    if (rule == nullptr) return says(verdict::kept, "no rule names it");
    return says(verdict::quantized, rule->reason);
  }

 private:
  struct user_rule {
    std::string pattern;
    verdict what;
    std::string reason;
  };

  static bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }
  static std::string_view word(std::string_view& line) noexcept {
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    std::size_t end = 0;
    while (end < line.size() && !is_blank(line[end])) ++end;
    const std::string_view first = line.substr(0, end);
    line.remove_prefix(end);
    return first;
  }
  /// Patterns hold `#` themselves, behind a dot.
  static std::size_t comment_in(std::string_view line) noexcept {
    for (std::size_t at = 0; at < line.size(); ++at)
      if (line[at] == '#' && (at == 0 || is_blank(line[at - 1]))) return at;
    return line.npos;
  }

  decision says(verdict what, std::string_view reason) const {
    return {what, std::string(family_->name).append(": ").append(reason)};
  }
  const family_rule* find(std::string_view module, tensor_form form) const noexcept {
    if (form == tensor_form::weight)
      for (const family_rule& one : common_rules)
        if (matches(one.pattern, module)) return &one;
    for (const family_rule& one : family_->rules)
      if (one.form == form && matches(one.pattern, module)) return &one;
    return nullptr;
  }

  const fp8wire::family* family_;
  i64 first_ = 0, last_ = 0, layers_ = 0;
  std::vector<user_rule> user_;
};

FP8WIRE_ABI_END
#endif
