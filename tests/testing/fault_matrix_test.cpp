// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdio>
#include <set>

#include <fp8wire/testing/faults.hpp>

namespace fw = fp8wire;
namespace testing = fp8wire::testing;
using fw::condition;

namespace {

constexpr condition conditions[] = {condition::c1_layer_set,    condition::c2_grid,     condition::c3_complete_pairs,
                                    condition::c4_atomic_pairs, condition::c5_geometry, condition::c6_derived_state,
                                    condition::c7_transport,    condition::c8_commit,   condition::c9_scale_sanity,
                                    condition::c10_other_state};

// "drop                  .   o   X ...": X where the condition that names the fault fired, o where another one did,
// ! where the one that names it was silent.
std::string line_of(const testing::fault_row& row, const testing::fault_report& report) {
  std::string line(row.name);
  line.resize(22, ' ');
  for (const condition one : conditions) {
    const bool fired = report.caught_by(one), names = row.caught_by == one;
    line.append(names ? (fired ? "X" : "!") : fired ? "o" : ".").append("   ");
  }
  return line.append(row.what);
}

}  // namespace

TEST_CASE("nothing fires where nothing is wrong, staged and in place") {
  for (const fw::commit_mode mode : {fw::commit_mode::staged, fw::commit_mode::in_place}) {
    const testing::fault_report report = testing::toy_world(mode).run(testing::fault::none);
    for (const fw::error& one : report.found) MESSAGE(one.message());
    CHECK(report.found.empty());
    CHECK(report.receiver_serves == 2);
    CHECK(report.receiver_is_whole);
  }
}

TEST_CASE("every fault is caught by the condition that names it: the matrix") {
  const testing::toy_world world;
  std::string matrix = "fault                 ";
  for (const condition one : conditions)
    (matrix += fw::name_of(one)).append(one == condition::c10_other_state ? " " : "  ");
  matrix.append("(X: by the condition that names it, o: another one fires too)\n");
  for (const testing::fault_row& row : testing::faults) {
    const testing::fault_report report = world.run(row.kind);
    matrix.append(line_of(row, report)).append("\n");
    CAPTURE(row.name);
    for (const fw::error& one : report.found) {
      INFO(one.message());
      CHECK(one.broken != condition::none);
      CHECK(!one.what.empty());
      CHECK(!one.tensor.empty());
    }
    CHECK(report.caught_by(row.caught_by));
    CHECK(report.receiver_is_whole);
    CHECK((report.receiver_serves == 1 || report.receiver_serves == 2));
  }
  std::fputs(matrix.c_str(), stdout);
}

TEST_CASE("an engine that is updated in place serves one whole version after a fault, or none") {
  const testing::toy_world world(fw::commit_mode::in_place);
  for (const testing::fault_row& row : testing::faults) {
    CAPTURE(row.name);
    const testing::fault_report report = world.run(row.kind);
    CHECK(report.caught_by(row.caught_by));
    CHECK(report.receiver_is_whole);
  }
}

TEST_CASE("every condition has a fault, names of faults are words of their own, and there are twenty-five at least") {
  std::set<std::string_view> names;
  for (const testing::fault_row& row : testing::faults) {
    CHECK(names.insert(row.name).second);
    CHECK(testing::find_fault(row.name) == &row);
    CHECK(testing::row_of(row.kind) == &row);
    CHECK(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos);
  }
  CHECK(names.size() >= 25);
  for (const condition one : conditions) {
    bool has = false;
    for (const testing::fault_row& row : testing::faults) has = has || row.caught_by == one;
    CAPTURE(fw::name_of(one));
    CHECK(has);
  }
  CHECK(testing::find_fault("none") == nullptr);
}
