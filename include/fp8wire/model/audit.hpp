// SPDX-License-Identifier: Apache-2.0
/// The layer audit: learner, wire and engine must have the same parameters in FP8, judged by fused parameter (C1).
#ifndef FP8WIRE_MODEL_AUDIT_HPP
#define FP8WIRE_MODEL_AUDIT_HPP
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/detail/name_index.hpp>
#include <fp8wire/model/fusion.hpp>

FP8WIRE_ABI_BEGIN

/// Which weights one side has in FP8 and which not.
class layer_set {
 public:
  /// `side` is how reports call it: "the engine".
  explicit layer_set(std::string side) : side_(std::move(side)) {}
  const std::string& side() const noexcept { return side_; }

  /// A weight by its name in the checkpoint, or a fused parameter by its engine name.
  void add(std::string_view weight, bool is_fp8) {
    std::string parameter = fused_with(weight);
    if (parameter.empty()) parameter = weight;
    i64 at = find(parameter);
    if (at < 0) {
      at = static_cast<i64>(rows_.size());
      rows_.push_back({std::move(parameter)});
      by_name_.insert(static_cast<u32>(at), [&](u32 i) { return std::string_view(rows_[i].parameter); });
    }
    row& counted = rows_[static_cast<std::size_t>(at)];
    counted.fp8 += is_fp8 ? 1 : 0;
    ++counted.parts;
  }

  /// One fused parameter: how many of its parts are there, and how many of them in FP8.
  struct row {
    std::string parameter;
    u32 fp8 = 0, parts = 0;
  };
  /// One row a parameter, in the order in which they were first added.
  const std::vector<row>& rows() const noexcept { return rows_; }
  /// The row of that parameter, or -1. Constant time.
  i64 find(std::string_view parameter) const noexcept {
    return by_name_.find(parameter, [&](u32 i) { return std::string_view(rows_[i].parameter); });
  }

 private:
  std::string side_;
  std::vector<row> rows_;
  detail::name_index by_name_;
};

/// Every disagreement, by parameter: one side FP8 and another not, one side does not have it, or the parts of one
/// parameter differ on one side. Empty when all agree. In the learner's order, then what only the others have.
/// Each error is wrong_dtype or missing, and C1.
inline std::vector<error> audit(const layer_set& learner, const layer_set& wire, const layer_set& engine) {
  const layer_set* const sides[] = {&learner, &wire, &engine};
  std::vector<error> found;
  const auto judge = [&](const std::string& name) {
    std::string in_fp8, not_fp8, absent;
    for (const layer_set* side : sides) {
      const auto list = [&](std::string& text) { text.append(text.empty() ? "" : " and ").append(side->side()); };
      const i64 at = side->find(name);
      if (at < 0) {
        list(absent);
        continue;
      }
      const layer_set::row& one = side->rows()[static_cast<std::size_t>(at)];
      if (one.fp8 != 0 && one.fp8 != one.parts)
        found.push_back(make_error(errc::wrong_dtype, name, "its parts differ in " + side->side() + "; those in FP8",
                                   one.fp8, one.parts, condition::c1_layer_set));
      else list(one.fp8 != 0 ? in_fp8 : not_fp8);
    }
    if (!absent.empty())
      found.push_back(make_error(errc::missing, name, "is not known to " + absent, condition::c1_layer_set));
    if (!in_fp8.empty() && !not_fp8.empty())
      found.push_back(make_error(errc::wrong_dtype, name, "is FP8 in " + in_fp8 + " and not in " + not_fp8,
                                 condition::c1_layer_set));
  };
  for (const layer_set::row& one : learner.rows()) judge(one.parameter);
  for (const layer_set::row& one : wire.rows())
    if (learner.find(one.parameter) < 0) judge(one.parameter);
  for (const layer_set::row& one : engine.rows())
    if (learner.find(one.parameter) < 0 && wire.find(one.parameter) < 0) judge(one.parameter);
  return found;
}

FP8WIRE_ABI_END
#endif
