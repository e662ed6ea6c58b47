// SPDX-License-Identifier: Apache-2.0
// The quantize kernels' bodies, thread by thread on the CPU, against the library's definition.
#include <doctest/doctest.h>

#include <fp8wire/layout/swizzle.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/quant/kernel/quantize_both.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>
#include <fp8wire/quant/presets/nemo.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

#include "block_emulator.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;
using samples::buffer;

struct extents {
  i64 batch, rows, cols, padding;  // padding: elements between rows
};

/// A batch of weights and where its pair goes.
template <class Recipe, class In> struct job {
  extents shape;
  buffer<In> weights;
  buffer<u8> codes;
  buffer<stored_t<Recipe>> scales;
  buffer<u64> status;

  explicit job(extents e, unsigned seed = 5)
      : shape(e),
        weights(samples::weights<In>(e.batch * e.rows * (e.cols + e.padding), seed)),
        codes(static_cast<std::size_t>(e.batch * e.rows * e.cols)),
        scales(static_cast<std::size_t>(e.batch * grid_rows() * grid_cols())),
        status(1, kernel::no_index) {}
  i64 grid_rows() const { return scale_rows<typename Recipe::block>(shape.rows); }
  i64 grid_cols() const { return scale_cols<typename Recipe::block>(shape.cols); }
  matrix_view<const In> in() const {
    const i64 stride = shape.cols + shape.padding;
    return {weights.data(), shape.rows, shape.cols, stride, shape.batch, shape.rows * stride, 1};
  }
  kernel::quantize_task<Recipe, In> task(i64 index_base = 0) {
    kernel::quantize_task<Recipe, In> made{in(),
                                           dense(codes.data(), shape.rows, shape.cols, shape.batch),
                                           dense(scales.data(), grid_rows(), grid_cols(), shape.batch),
                                           status.data(),
                                           index_base,
                                           Recipe::num.amax_floor,
                                           0};
    made.vector = kernel::vector_of(made);
    return made;
  }
  void give(emulator::device_memory& memory) {
    memory.input(weights);
    memory.output(codes);
    memory.output(scales);
    memory.both(status);
  }
  void check() const {
    const samples::expected<Recipe, In> right(in());
    CHECK(codes == right.codes);
    CHECK((scales.empty() || std::memcmp(scales.data(), right.scales.data(), scales.size() * sizeof(scales[0])) == 0));
    CHECK(static_cast<i64>(status[0]) == right.first_nonfinite);
  }
};

template <class Task> using alone = kernel::quantize_body<kernel::one_task<Task>, Task>;
template <class Task> using grouped = kernel::quantize_body<kernel::task_table<Task>, Task>;

template <class Preset, class In, int Bytes = 16> emulator::counters quantize_and_check(extents shape, u32 spoil = 0) {
  using recipe = typename Preset::recipe;
  job<recipe, In> work(shape);
  if (spoil != 0) work.weights[work.weights.size() / 2] = from_float<In>(float_of(spoil));
  CAPTURE(shape.rows);
  CAPTURE(shape.cols);
  emulator::device_memory memory;
  work.give(memory);
  const auto task = work.task();
  const auto count = emulator::launch<alone<std::remove_const_t<decltype(task)>>, emulator::context<Bytes>>(
      kernel::tiles_of_task(task), {task}, memory);
  work.check();
  return count;
}

/// Whole tiles, ragged ones on every side, rows that no vector fits, batches, and one element.
constexpr extents shapes[] = {{1, 128, 256, 0}, {2, 128, 128, 16}, {1, 200, 160, 0}, {2, 130, 131, 1}, {1, 1, 1, 0}};

TEST_CASE("128x128 blocks have the bytes of the definition in every shape") {
  for (const extents& shape : shapes) {
    quantize_and_check<presets::te_block, bf16>(shape);
    quantize_and_check<presets::te_block, bf16, 32>(shape);
    quantize_and_check<presets::te_block_pow2, float>(shape);
    quantize_and_check<presets::te_block_e5m2, fp16>(shape);
    quantize_and_check<presets::nemo_block, bf16>(shape);
    quantize_and_check<presets::vllm_block, float>(shape);
  }
}

TEST_CASE("1x128 blocks have the bytes of the definition in every shape") {
  for (const extents& shape : shapes) {
    quantize_and_check<presets::te_row_block, bf16>(shape);
    quantize_and_check<presets::te_row_block, float, 32>(shape);
  }
}

TEST_CASE("1x32 blocks have the bytes of the definition in every shape") {
  for (const extents& shape : shapes) {
    quantize_and_check<presets::te_mxfp8, bf16>(shape);
    quantize_and_check<presets::te_mxfp8, bf16, 32>(shape);
    quantize_and_check<presets::te_mxfp8_fma, fp16>(shape);
    quantize_and_check<presets::te_mxfp8, float>(shape);
  }
}

TEST_CASE("32x1 blocks have the bytes of the definition in every shape") {
  for (const extents& shape : shapes) {
    quantize_and_check<presets::te_mxfp8_columnwise, bf16>(shape);
    quantize_and_check<presets::te_mxfp8_columnwise, float, 32>(shape);
  }
}

TEST_CASE("NaN and Inf get the definition's bytes and the status word tells the first of them") {
  for (const u32 spoil : {f32::infinity, f32::infinity | f32::sign_mask, 0x7FC00000u, 0xFFC00000u}) {
    quantize_and_check<presets::te_block, bf16>({1, 128, 256, 0}, spoil);
    quantize_and_check<presets::nemo_block, bf16>({1, 128, 256, 0}, spoil);
    quantize_and_check<presets::vllm_block, float>({2, 128, 128, 0}, spoil);
    quantize_and_check<presets::te_mxfp8, fp16>({1, 256, 128, 0}, spoil);
    quantize_and_check<presets::te_mxfp8_columnwise, bf16>({1, 256, 128, 0}, spoil);
  }
}

TEST_CASE("every weight is read once and every code written once") {
  const auto count = quantize_and_check<presets::te_block, bf16>({1, 256, 256, 0});
  CHECK(count.load_bytes == 256 * 256 * 2);
  CHECK(count.store_bytes == 256 * 256 + 4 * 4);
  CHECK(count.loads == 256 * 256 / 8);
}

TEST_CASE("transposed weights are a view like any other") {
  using recipe = presets::te_block::recipe;
  job<recipe, bf16> work({1, 128, 128, 0});
  auto task = work.task();
  task.in = {work.weights.data(), 128, 128, 1, 1, 0, 128};
  task.vector = kernel::vector_of(task);
  CHECK(task.vector == 1);
  emulator::device_memory memory;
  work.give(memory);
  emulator::launch<alone<decltype(task)>>(1, {task}, memory);
  CHECK(work.codes == samples::expected<recipe, bf16>(task.in).codes);
}

TEST_CASE("pairs go straight into the records of a slot, whose strides are multiples of 128 bytes") {
  // Codes of one expert, then its scales, then the next expert's.
  using recipe = presets::te_mxfp8::recipe;
  constexpr i64 experts = 3, rows = 130, cols = 256, codes_bytes = rows * cols, scales_bytes = rows * cols / 32;
  constexpr i64 scales_at = (codes_bytes + 127) / 128 * 128, record = scales_at + (scales_bytes + 127) / 128 * 128;
  job<recipe, bf16> work({experts, rows, cols, 0});
  buffer<u8> slot(static_cast<std::size_t>(experts * record), u8{0xA5});
  auto task = work.task();
  task.codes = {slot.data(), rows, cols, cols, experts, record, 1};
  task.scales = {reinterpret_cast<e8m0*>(slot.data() + scales_at), rows, cols / 32, cols / 32, experts, record, 1};
  task.vector = kernel::vector_of(task);
  CHECK(task.vector == 32);
  emulator::device_memory memory;
  memory.input(work.weights);
  memory.output(slot);
  memory.both(work.status);
  const auto count = emulator::launch<alone<decltype(task)>>(kernel::tiles_of_task(task), {task}, memory);
  CHECK(count.store_bytes == static_cast<u64>(experts * (codes_bytes + scales_bytes)));
  const samples::expected<recipe, bf16> right(work.in());
  for (i64 at = 0; at < experts * record; ++at) {
    const i64 expert = at / record, inside = at % record;
    u8 expected = 0xA5;
    if (inside < codes_bytes) expected = right.codes[static_cast<std::size_t>(expert * codes_bytes + inside)];
    else if (inside >= scales_at && inside < scales_at + scales_bytes)
      expected = right.scales[static_cast<std::size_t>(expert * scales_bytes + inside - scales_at)].bits;
    REQUIRE(slot[static_cast<std::size_t>(at)] == expected);
  }
}

TEST_CASE("one launch quantizes a table of tensors, empty ones among them") {
  using recipe = presets::te_mxfp8::recipe;
  using task = kernel::quantize_task<recipe, bf16>;
  std::vector<job<recipe, bf16>> works;
  for (int i = 0; i < 70; ++i)
    works.emplace_back(extents{1 + i % 2, i % 7 == 3 ? 0 : 1 + i * 5 % 140, 32 * (1 + i % 5), 0},
                       static_cast<unsigned>(i));
  works[40].weights[17] = bf16{0x7F80};
  buffer<task> tasks;
  buffer<i64> sums(works.size());
  emulator::device_memory memory;
  for (auto& work : works) {
    tasks.push_back(work.task());
    work.give(memory);
  }
  const i64 blocks = kernel::sum_tiles(tasks.data(), static_cast<i64>(tasks.size()), sums.data(),
                                       [](const task& one) { return kernel::tiles_of_task(one); });
  memory.input(sums);
  emulator::launch<grouped<task>>(blocks, {sums.data(), tasks.data(), static_cast<i64>(tasks.size())}, memory);
  for (const auto& work : works) work.check();
  CHECK(works[40].status[0] == 17);
}

TEST_CASE("status words count from the piece's place in its tensor and keep the first index") {
  using recipe = presets::te_block::recipe;
  job<recipe, bf16> work({1, 8, 128, 0});
  work.weights[300] = bf16{0x7FC0};
  const auto task = work.task(1000);
  for (const u64 before : {u64{1200}, u64{1400}}) {
    work.status[0] = before;
    emulator::device_memory memory;
    work.give(memory);
    emulator::launch<alone<std::remove_const_t<decltype(task)>>>(1, {task}, memory);
    CHECK(work.status[0] == (before < 1300 ? before : 1300));
  }
}

/// Quantizes with the scales at a layout's offsets, padding and all.
template <class Layout, class Preset> void check_fused(extents shape) {
  using recipe = typename Preset::recipe;
  using stored = stored_t<recipe>;
  using scales = laid_out<Layout, stored>;
  job<recipe, bf16> work(shape);
  scales target{nullptr, shape.batch, work.grid_rows(), work.grid_cols()};
  buffer<stored> memory_of_scales(static_cast<std::size_t>(target.size()));
  target.data = memory_of_scales.data();
  const auto plain = work.task();
  const kernel::quantize_task<recipe, bf16, matrix_view<u8>, scales> task{
      plain.in, plain.codes, target, plain.status, 0, plain.amax_floor, plain.vector};
  emulator::device_memory memory;
  work.give(memory);
  memory.output(memory_of_scales);
  emulator::launch<kernel::padding_body<Layout, stored>>(ceil_div(target.size(), 256), target, memory);
  emulator::launch<alone<std::remove_const_t<decltype(task)>>>(kernel::tiles_of_task(task), {task}, memory);
  const samples::expected<recipe, bf16> right(plain.in);
  CHECK(work.codes == right.codes);
  for (i64 offset = 0; offset < target.size(); ++offset) {
    const index3 at = target.mapping().index(offset);
    const stored expected = at.batch < 0 ? kernel::padding_of<Layout, stored>()
                                         : right.scales[static_cast<std::size_t>(
                                               (at.batch * target.rows + at.row) * target.cols + at.col)];
    CHECK(std::memcmp(target.data + offset, &expected, sizeof(stored)) == 0);
  }
}

TEST_CASE("scales are written at a layout's offsets in the same pass") {
  check_fused<swizzle_128x4, presets::te_mxfp8>({1, 128, 256, 0});
  check_fused<swizzle_128x4, presets::te_mxfp8>({2, 140, 160, 0});
  check_fused<te_block_rowwise, presets::te_block>({1, 256, 384, 0});
  check_fused<te_vector_rowwise, presets::te_row_block>({1, 131, 256, 0});
}

template <class In> void check_both(u32 spoil = 0) {
  using row = presets::te_mxfp8::recipe;
  using column = presets::te_mxfp8_columnwise::recipe;
  using task = kernel::both_task<row, column, In>;
  using body = kernel::both_body<kernel::one_task<task>, task>;
  for (const extents& shape : shapes) {
    job<row, In> rows(shape);
    job<column, In> columns(shape);
    if (spoil != 0) {
      rows.weights[rows.weights.size() / 2] = from_float<In>(float_of(spoil));
      columns.weights = rows.weights;
    }
    const auto a = rows.task();
    const auto b = columns.task();
    task both{a.in, a.codes, b.codes, a.scales, b.scales, a.status, 0, 0.0f, 0};
    both.vector = kernel::vector_of(both);
    emulator::device_memory memory;
    rows.give(memory);
    columns.give(memory);
    const auto count = emulator::launch<body>(kernel::tiles_of_task(both), {both}, memory);
    rows.check();
    columns.status = rows.status;
    columns.check();
    if (&shape == shapes && spoil == 0) CHECK(count.load_bytes == 128 * 256 * sizeof(In));
  }
}

TEST_CASE("rowwise and columnwise pairs come from one read") {
  check_both<bf16>();
  check_both<fp16>();
  check_both<float>();
  check_both<float>(f32::infinity);
}

/// A device whose barriers do nothing: the emulator must see it.
struct no_barriers : emulator::context<16> {
  void sync() {}
  bool sync_or(bool yes) { return yes; }
};
/// One that forgets the second barrier only.
struct no_second_barrier : emulator::context<16> {
  void sync() {}
};
/// One whose warps do not wait for each other, in half of the threads: they never meet.
struct half_a_barrier : emulator::context<16> {
  void sync() {
    if (rank % 2 == 0) emulator::any_context::sync();
  }
};

template <class Context> void run_faulty() {
  job<presets::te_block::recipe, bf16> work({1, 128, 128, 0});
  emulator::device_memory memory;
  work.give(memory);
  const auto task = work.task();
  emulator::launch<alone<std::remove_const_t<decltype(task)>>, Context>(1, {task}, memory);
}

TEST_CASE("the emulator finds missing barriers") {
  CHECK_NOTHROW(run_faulty<emulator::context<16>>());
  CHECK_THROWS_AS(run_faulty<no_barriers>(), emulator::fault);
  CHECK_THROWS_AS(run_faulty<no_second_barrier>(), emulator::fault);
  CHECK_THROWS_AS(run_faulty<half_a_barrier>(), emulator::fault);
}

TEST_CASE("the emulator finds accesses outside of a tensor") {
  job<presets::te_block::recipe, bf16> work({1, 128, 128, 0});
  emulator::device_memory memory;
  work.give(memory);
  auto task = work.task();
  task.in.rows = 129;
  CHECK_THROWS_AS((emulator::launch<alone<decltype(task)>>(2, {task}, memory)), emulator::fault);
}

}  // namespace
