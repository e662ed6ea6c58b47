// SPDX-License-Identifier: Apache-2.0
/// The layer audit: learner, wire and engine must have the same parameters in FP8, judged by fused parameter (C1).
#ifndef FP8WIRE_MODEL_AUDIT_HPP
#define FP8WIRE_MODEL_AUDIT_HPP
#include <set>
#include <vector>

#include <fp8wire/core/error.hpp>
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
    row counted{std::move(parameter), is_fp8 ? 1u : 0u, 1u};
    if (const auto known = rows_.find(counted); known != rows_.end()) {
      counted.fp8 += known->fp8;
      counted.parts += known->parts;
      rows_.erase(known);
    }
    rows_.insert(std::move(counted));
  }

  /// One fused parameter: how many of its parts are there, and how many of them in FP8.
  struct row {
    std::string parameter;
    u32 fp8 = 0, parts = 0;
  };
  /// Sorted by name, one row a parameter.
  std::vector<row> rows() const { return {rows_.begin(), rows_.end()}; }

 private:
  struct by_parameter {
    bool operator()(const row& a, const row& b) const noexcept { return a.parameter < b.parameter; }
  };
  std::string side_;
  std::set<row, by_parameter> rows_;
};

/// Every disagreement, by parameter: one side FP8 and another not, one side does not have it, or the parts of one
/// parameter differ on one side. Empty when all agree. Each error is wrong_dtype or missing, and C1.
inline std::vector<error> audit(const layer_set& learner, const layer_set& wire, const layer_set& engine) {
  const layer_set* const sides[] = {&learner, &wire, &engine};
  std::vector<layer_set::row> rows[3];
  std::set<std::string> names;
  for (int s = 0; s < 3; ++s) {
    rows[s] = sides[s]->rows();
    for (const layer_set::row& one : rows[s]) names.insert(one.parameter);
  }

  std::vector<error> found;
  std::size_t at[3] = {};
  for (const std::string& name : names) {
    std::string in_fp8, not_fp8, absent;
    for (int s = 0; s < 3; ++s) {
      const auto list = [&](std::string& text) { text.append(text.empty() ? "" : " and ").append(sides[s]->side()); };
      if (at[s] == rows[s].size() || rows[s][at[s]].parameter != name) {
        list(absent);
        continue;
      }
      const layer_set::row& one = rows[s][at[s]++];
      if (one.fp8 != 0 && one.fp8 != one.parts)
        found.push_back(make_error(errc::wrong_dtype, name,
                                   "its parts differ in " + sides[s]->side() + "; those in FP8", one.fp8, one.parts,
                                   condition::c1_layer_set));
      else
        list(one.fp8 != 0 ? in_fp8 : not_fp8);
    }
    if (!absent.empty())
      found.push_back(make_error(errc::missing, name, "is not known to " + absent, condition::c1_layer_set));
    if (!in_fp8.empty() && !not_fp8.empty())
      found.push_back(make_error(errc::wrong_dtype, name, "is FP8 in " + in_fp8 + " and not in " + not_fp8,
                                 condition::c1_layer_set));
  }
  return found;
}

FP8WIRE_ABI_END
#endif
