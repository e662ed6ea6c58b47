// SPDX-License-Identifier: Apache-2.0
// Tables of pairs with a scale for each matrix, row or column, step by step on the emulator.
#include <doctest/doctest.h>

#include <fp8wire/quant/kernel/spanning.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

#include "block_emulator.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;
using samples::buffer;

struct extents {
  i64 batch, rows, cols;
  u32 spoil = 0;
};

template <class Recipe, class In> struct job {
  extents of;
  buffer<In> weights;
  buffer<u8> codes;
  buffer<float> scales;
  buffer<u64> status;

  explicit job(extents e)
      : of(e),
        weights(samples::weights<In>(e.batch * e.rows * e.cols, 5)),
        codes(weights.size()),
        scales(static_cast<std::size_t>(e.batch * grid_rows() * grid_cols()), -3.0f),
        status(1, kernel::no_index) {
    if (e.spoil != 0) weights[weights.size() / 2] = from_float<In>(float_of(e.spoil));
  }
  i64 grid_rows() const { return scale_rows<typename Recipe::block>(of.rows); }
  i64 grid_cols() const { return scale_cols<typename Recipe::block>(of.cols); }
  kernel::spanning_task<Recipe, In> task() {
    kernel::spanning_task<Recipe, In> made{dense(static_cast<const In*>(weights.data()), of.rows, of.cols, of.batch),
                                           dense(codes.data(), of.rows, of.cols, of.batch),
                                           dense(scales.data(), grid_rows(), grid_cols(), of.batch),
                                           status.data(),
                                           1000,
                                           Recipe::num.amax_floor,
                                           0};
    made.vector = kernel::vector_of(made);
    return made;
  }
};

template <template <class> class Step, class Job> void launch(std::vector<Job>& jobs, emulator::device_memory& memory) {
  using step = Step<decltype(jobs[0].task())>;
  using body = typename kernel::body_of<step>::template from<kernel::task_table<step>>;
  buffer<step> steps;
  for (Job& one : jobs) steps.push_back({one.task()});
  buffer<i64> sums(steps.size());
  const i64 count = static_cast<i64>(steps.size());
  const i64 blocks =
      kernel::sum_tiles(steps.data(), count, sums.data(), [](const step& one) { return tiles_of_task(one); });
  memory.input(sums);
  memory.input(steps);
  emulator::launch<body>(blocks, {sums.data(), steps.data(), count}, memory);
}

template <class Recipe, class In> void check(const std::vector<extents>& shapes) {
  std::vector<job<Recipe, In>> jobs;
  for (const extents& e : shapes) jobs.emplace_back(e);
  emulator::device_memory memory;
  for (auto& one : jobs) {
    memory.input(one.weights);
    memory.output(one.codes);
    memory.output(one.scales);
    memory.both(one.status);
  }
  launch<kernel::clear_step>(jobs, memory);
  launch<kernel::amax_step>(jobs, memory);
  launch<kernel::cast_step>(jobs, memory);
  launch<kernel::scale_step>(jobs, memory);
  for (auto& one : jobs) {
    const samples::expected<Recipe, In> right(one.task().in);
    CHECK(one.codes == right.codes);
    CHECK((one.scales.empty() || std::memcmp(one.scales.data(), right.scales.data(), 4 * one.scales.size()) == 0));
    CHECK(static_cast<i64>(one.status[0]) == (right.first_nonfinite < 0 ? -1 : 1000 + right.first_nonfinite));
  }
}

const std::vector<extents> shapes = {
    {1, 128, 256}, {3, 130, 131}, {1, 0, 64}, {2, 140, 128, f32::infinity}, {1, 5, 300, 0x7FC00000u}, {1, 1, 1}};

TEST_CASE("a scale for each matrix of a batch") {
  check<recipe<e4m3, block<whole, whole>, rules::quotient>, bf16>(shapes);
  check<recipe<e4m3, block<whole, whole>, rules::quotient_reciprocal>, float>(shapes);
}
TEST_CASE("a scale for each row") {
  check<recipe<e4m3_as<casts::torch_saturating>, block<1, whole>, rules::quotient_reciprocal>, bf16>(shapes);
  check<recipe<e4m3, block<1, whole>, rules::quotient>, fp16>(shapes);
}
TEST_CASE("a scale for each column, and for bands of rows") {
  check<recipe<e4m3, block<whole, 1>, rules::quotient>, bf16>(shapes);
  check<recipe<e4m3, block<64, whole>, rules::quotient>, bf16>(shapes);
}

}  // namespace
