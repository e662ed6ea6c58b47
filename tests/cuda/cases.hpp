// SPDX-License-Identifier: Apache-2.0
// What every kernel of the list must make of given memory. The machine that runs it is a parameter: the emulator, the
// PTX interpreter, a GPU. It has launch<Body>(name, blocks, params, memory), which returns when the kernel is done.
// A kernel's first launch is of whole tiles where it can be: sectors are counted there (sectors.txt).
#ifndef FP8WIRE_TESTS_CUDA_CASES_HPP
#define FP8WIRE_TESTS_CUDA_CASES_HPP
#include <cstring>
#include <string>

#include "kernel_list.hpp"
#include "memory_checks.hpp"
#include "samples.hpp"

namespace cases {

using namespace fp8wire;
using checks::device_memory;
using samples::buffer;

struct wrong_bytes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Compares what a kernel made; the message names the first difference.
template <class Value> void expect_same(const char* what, const Value* made, const Value* right, i64 count) {
  if (count == 0 || std::memcmp(made, right, static_cast<std::size_t>(count) * sizeof(Value)) == 0) return;
  i64 at = 0;
  while (std::memcmp(made + at, right + at, sizeof(Value)) == 0) ++at;
  throw wrong_bytes(std::string(what) + " differ first at " + std::to_string(at) + " of " + std::to_string(count));
}
template <class Value> void expect_same(const char* what, const buffer<Value>& made, const buffer<Value>& right) {
  expect_same(what, made.data(), right.data(), static_cast<i64>(made.size()));
}
template <class Value> buffer<Value> poisoned(i64 count) {
  buffer<Value> made(static_cast<std::size_t>(count));
  std::memset(static_cast<void*>(made.data()), 0xA5, made.size() * sizeof(Value));
  return made;
}

struct shape {
  i64 batch, rows, cols, padding;
  u32 spoil;  // FP32 bits of a weight that is not finite; 0: none
};

// ---- a place for scales: a dense view or a buffer in a layout
template <class Value> i64 size_of(const matrix_view<Value>& view) { return view.size(); }
template <class Layout, class Value> i64 size_of(const laid_out<Layout, Value>& place) { return place.size(); }
template <class Value>
matrix_view<Value> placed(const matrix_view<Value>*, Value* data, i64 batch, i64 rows, i64 cols) {
  return dense(data, rows, cols, batch);
}
template <class Layout, class Value>
laid_out<Layout, Value> placed(const laid_out<Layout, Value>*, Value* data, i64 batch, i64 rows, i64 cols) {
  return {data, batch, rows, cols};
}

/// A tensor and the pair that the library's definition makes of it.
template <class Recipe, class In, class Scales = matrix_view<stored_t<Recipe>>> struct tensor {
  using stored = stored_t<Recipe>;
  shape of;
  buffer<In> weights;
  matrix_view<const In> in;
  samples::expected<Recipe, In> right;
  Scales place;
  buffer<u8> codes;
  buffer<stored> scales;
  buffer<u64> status;

  tensor(shape s, unsigned seed) : tensor(s, spoilt(s, seed)) {}
  tensor(shape s, buffer<In> made)
      : of(s),
        weights(std::move(made)),
        in{weights.data(), s.rows, s.cols, s.cols + s.padding, s.batch, s.rows * (s.cols + s.padding), 1},
        right(in),
        place(placed(static_cast<const Scales*>(nullptr), static_cast<stored*>(nullptr), s.batch,
                     scale_rows<typename Recipe::block>(s.rows), scale_cols<typename Recipe::block>(s.cols))),
        codes(poisoned<u8>(s.batch * s.rows * s.cols)),
        scales(poisoned<stored>(size_of(place))),
        status(1, kernel::no_index) {
    place.data = scales.data();
  }
  static buffer<In> spoilt(shape s, unsigned seed) {
    buffer<In> made = samples::weights<In>(s.batch * s.rows * (s.cols + s.padding), seed);
    if (s.spoil != 0) made[made.size() / 2] = from_float<In>(float_of(s.spoil));
    return made;
  }
  kernel::quantize_task<Recipe, In, matrix_view<u8>, Scales> task(i64 index_base = 0) {
    kernel::quantize_task<Recipe, In, matrix_view<u8>, Scales> made{
        in, dense(codes.data(), of.rows, of.cols, of.batch), place, status.data(), index_base,
        Recipe::num.amax_floor, 0};
    made.vector = kernel::vector_of(made);
    return made;
  }
  void give(device_memory& memory) {
    memory.input(weights);
    memory.output(codes);
    memory.output(scales);
    memory.both(status);
  }
  void check(i64 index_base = 0) const {
    expect_same("codes", codes, right.codes);
    i64 at = 0;
    for (i64 b = 0; b < of.batch; ++b)
      for (i64 row = 0; row < place.rows; ++row)
        for (i64 col = 0; col < place.cols; ++col, ++at)
          expect_same("scales", &place(b, row, col), &right.scales[static_cast<std::size_t>(at)], 1);
    const i64 first = right.first_nonfinite < 0 ? -1 : right.first_nonfinite + index_base;
    if (static_cast<i64>(status[0]) != first)
      throw wrong_bytes("the status word is " + std::to_string(static_cast<i64>(status[0])) + ", not " +
                        std::to_string(first));
  }
};

/// A whole tile and a ragged one, a whole one with NaN or Inf, and edges on every side.
inline constexpr shape shapes[] = {
    {1, 128, 256, 0, 0}, {1, 128, 128, 0, 0x7F800000u}, {1, 128, 128, 32, 0xFFC00000u}, {2, 5, 140, 4, 0}};

template <class Machine, class Recipe, class In, class Scales,
          class Task = kernel::quantize_task<Recipe, In, matrix_view<u8>, Scales>>
void check(Machine& machine, const char* name,
           kernel::quantize_body<kernel::one_task<kernel::quantize_task<Recipe, In, matrix_view<u8>, Scales>>,
                                 kernel::quantize_task<Recipe, In, matrix_view<u8>, Scales>>*) {
  for (const shape& s : shapes) {
    tensor<Recipe, In, Scales> work(s, 5);
    device_memory memory;
    work.give(memory);
    const Task task = work.task();
    machine.template launch<kernel::quantize_body<kernel::one_task<Task>, Task>>(name, tiles_of_task(task), {task},
                                                                                 memory);
    work.check();
  }
}

template <class Machine, class Recipe, class In>
void check(Machine& machine, const char* name,
           kernel::quantize_body<kernel::task_table<kernel::quantize_task<Recipe, In>>,
                                 kernel::quantize_task<Recipe, In>>*) {
  using task = kernel::quantize_task<Recipe, In>;
  // 40 tensors: the search for a block's task takes two rounds.
  std::vector<tensor<Recipe, In>> works;
  for (unsigned i = 0; i < 40; ++i)
    works.emplace_back(i == 7 ? shape{1, 128, 128, 0, 0x7FC00000u} : i == 20 ? shape{1, 0, 64, 0, 0}
                       : i == 39 ? shape{1, 256, 128, 0, 0} : shape{1, 1 + i % 3, 32, 0, 0}, i);
  buffer<task> tasks;
  buffer<i64> sums(works.size());
  device_memory memory;
  i64 base = 0;
  for (auto& work : works) {
    tasks.push_back(work.task(base));
    work.give(memory);
    base += 1000;
  }
  const i64 count = static_cast<i64>(tasks.size());
  const auto tiles = [](const task& one_task) { return tiles_of_task(one_task); };
  const i64 blocks = kernel::sum_tiles(tasks.data(), count, sums.data(), tiles);
  memory.input(sums);
  memory.input(tasks);
  machine.template launch<kernel::quantize_body<kernel::task_table<task>, task>>(
      name, blocks, {sums.data(), tasks.data(), count}, memory);
  base = 0;
  for (const auto& work : works) {
    work.check(base);
    base += 1000;
  }
}

template <class Machine, class Row, class Column, class In, class Source>
void check(Machine& machine, const char* name, kernel::both_body<Source, kernel::both_task<Row, Column, In>>*) {
  using task = kernel::both_task<Row, Column, In>;
  for (const shape& s : shapes) {
    tensor<Row, In> rows(s, 9);
    tensor<Column, In> columns(s, 9);
    const auto a = rows.task();
    const auto b = columns.task();
    buffer<task> tasks{{a.in, a.codes, b.codes, a.scales, b.scales, a.status, 0, a.amax_floor, 0}};
    tasks[0].vector = kernel::vector_of(tasks[0]);
    buffer<i64> sums(1, 0);
    device_memory memory;
    rows.give(memory);
    memory.output(columns.codes);
    memory.output(columns.scales);
    memory.input(tasks);
    memory.input(sums);
    Source source;
    if constexpr (requires { source.first_tile; }) source = {sums.data(), tasks.data(), 1};
    else source = {tasks[0]};
    machine.template launch<kernel::both_body<Source, task>>(name, tiles_of_task(tasks[0]), source, memory);
    rows.check();
    columns.status[0] = rows.status[0];
    columns.check();
  }
}

/// Whole pieces only, so many that blocks take turns; whole pieces and an end; less than a piece.
template <class Machine, class Recipe, class In, class Task = kernel::bulk_task<Recipe, In>>
void check(Machine& machine, const char* name, kernel::bulk_body<kernel::bulk_task<Recipe, In>>*) {
  using body = kernel::bulk_body<Task>;
  for (const shape& s :
       {shape{1, 224, 128, 0, 0}, shape{2, 40, 160, 0, 0x7FC00000u}, shape{1, 3, 32, 0, 0xFF800000u}}) {
    tensor<Recipe, In> work(s, 6);
    device_memory memory;
    work.give(memory);
    const auto task = work.task(100);
    if (!kernel::fits_bulk(task)) throw wrong_bytes("a dense tensor does not fit");
    machine.template launch<body>(name, s.rows == 3 ? 1 : 2, kernel::bulk_of(task), memory);
    work.check(100);
  }
}

/// A matrix in two parts, cut in the middle of a tile and of a row of tiles.
template <class Recipe, class In> struct parts {
  using task = kernel::partial_task<Recipe, In>;
  using block = typename Recipe::block;
  i64 rows = 160, cols = 256;
  tensor<Recipe, In> whole;
  buffer<u32> amax;
  device_memory memory;
  std::vector<task> tasks;

  explicit parts(u32 spoil) : whole({1, rows, cols, 0, spoil}, 4), amax(whole.right.scales.size(), u32{0}) {
    memory.input(whole.weights);
    memory.output(whole.codes);
    memory.both(amax);
    memory.both(whole.status);
    add(0, 0, 130, cols);
    add(130, 0, rows - 130, 64);
    add(130, 64, rows - 130, cols - 64);
  }
  void add(i64 row, i64 col, i64 height, i64 width) {
    const i64 first = row * cols + col;
    task part{{whole.weights.data() + first, height, width, cols, 1, 0, 1}, row, col, rows, cols,
              dense(amax.data(), scale_rows<block>(rows), scale_cols<block>(cols)),
              {whole.codes.data() + first, height, width, cols, 1, 0, 1}, whole.status.data(), 0,
              Recipe::num.amax_floor, 0};
    part.vector = kernel::vector_of(part);
    tasks.push_back(part);
  }
  /// The maxima of the definition, for whoever only casts.
  buffer<u32> right_amax() const {
    buffer<u32> made(amax.size());
    for (i64 row = 0; row < scale_rows<block>(rows); ++row) {
      for (i64 col = 0; col < scale_cols<block>(cols); ++col) {
        bool bad = false;
        made[static_cast<std::size_t>(row * scale_cols<block>(cols) + col)] = reference::block_amax<Recipe, In>(
            whole.in, reference::block_area<Recipe, In>(whole.in, row, col), bad);
      }
    }
    return made;
  }
};

template <class Machine, class Recipe, class In, class Task = kernel::partial_task<Recipe, In>>
void check(Machine& machine, const char* name,
           kernel::partial_amax_body<kernel::one_task<kernel::partial_task<Recipe, In>>,
                                     kernel::partial_task<Recipe, In>>*) {
  for (const u32 spoil : {0u, 0x7F800000u}) {
    parts<Recipe, In> work(spoil);
    for (const Task& task : work.tasks)
      machine.template launch<kernel::partial_amax_body<kernel::one_task<Task>, Task>>(name, tiles_of_task(task),
                                                                                       {task}, work.memory);
    expect_same("maxima", work.amax, work.right_amax());
    if (static_cast<i64>(work.whole.status[0]) != work.whole.right.first_nonfinite) throw wrong_bytes("status word");
  }
}

template <class Machine, class Recipe, class In, class Task = kernel::partial_task<Recipe, In>>
void check(Machine& machine, const char* name,
           kernel::partial_cast_body<kernel::one_task<kernel::partial_task<Recipe, In>>,
                                     kernel::partial_task<Recipe, In>>*) {
  for (const u32 spoil : {0u, 0x7F800000u}) {
    parts<Recipe, In> work(spoil);
    work.amax = work.right_amax();
    device_memory memory;
    memory.input(work.whole.weights);
    memory.input(work.amax);
    memory.output(work.whole.codes);
    for (Task task : work.tasks) {
      task.amax.data = work.amax.data();
      machine.template launch<kernel::partial_cast_body<kernel::one_task<Task>, Task>>(name, tiles_of_task(task),
                                                                                       {task}, memory);
    }
    expect_same("codes", work.whole.codes, work.whole.right.codes);
  }
}

template <class Machine, class Recipe, class In>
void check(Machine& machine, const char* name, kernel::scales_body<kernel::scales_task<Recipe, In>>*) {
  buffer<u32> amax{0u, 1u, 0x00400000u, 0x3F800000u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u, 0x04600001u};
  auto scales = poisoned<stored_t<Recipe>>(static_cast<i64>(amax.size()));
  buffer<stored_t<Recipe>> right;
  for (const u32 one : amax) right.push_back(reference::block_scale<Recipe, In>(one, Recipe::num.amax_floor).stored);
  device_memory memory;
  memory.input(amax);
  memory.output(scales);
  machine.template launch<kernel::scales_body<kernel::scales_task<Recipe, In>>>(
      name, 1, {dense(static_cast<const u32*>(amax.data()), 2, 4), dense(scales.data(), 2, 4), Recipe::num.amax_floor},
      memory);
  expect_same("scales", scales, right);
}

template <class Machine, class Recipe, class Out, class Task = kernel::dequantize_task<Recipe, Out>>
void check(Machine& machine, const char* name,
           kernel::dequantize_body<kernel::one_task<kernel::dequantize_task<Recipe, Out>>,
                                   kernel::dequantize_task<Recipe, Out>>*) {
  using stored = stored_t<Recipe>;
  using block = typename Recipe::block;
  for (const shape& s : {shape{1, 128, 256, 0, 0}, shape{1, 3, 160, 0, 0}}) {
    buffer<u8> codes(static_cast<std::size_t>(s.rows * s.cols));
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<u8>(i * 5 + i / 256);
    const i64 rows = scale_rows<block>(s.rows), cols = scale_cols<block>(s.cols);
    buffer<stored> scales(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < scales.size(); ++i) {
      if constexpr (sizeof(stored) == 1) scales[i] = {static_cast<u8>(i * 3)};
      else scales[i] = float_of(i % 2 == 0 ? 0x3A123456u : 0x00012345u);
    }
    auto out = poisoned<Out>(s.rows * s.cols);
    buffer<Out> right(out.size());
    for (i64 i = 0; i < s.rows * s.cols; ++i)
      right[static_cast<std::size_t>(i)] = from_float<Out>(reference::decode<Recipe>(
          codes[static_cast<std::size_t>(i)],
          scales[static_cast<std::size_t>(i / s.cols / block::rows * cols + i % s.cols / block::cols)]));
    Task task{dense(static_cast<const u8*>(codes.data()), s.rows, s.cols),
              dense(static_cast<const stored*>(scales.data()), rows, cols), dense(out.data(), s.rows, s.cols), 0};
    task.vector = kernel::vector_of(task);
    device_memory memory;
    memory.input(codes);
    memory.input(scales);
    memory.output(out);
    machine.template launch<kernel::dequantize_body<kernel::one_task<Task>, Task>>(name, tiles_of_task(task), {task},
                                                                                   memory);
    expect_same("weights", out, right);
  }
}

template <class Machine, class Layout, class Value,
          class Task = kernel::relayout_task<matrix_view<const Value>, Layout, Value>>
void check(Machine& machine, const char* name,
           kernel::relayout_body<kernel::relayout_task<matrix_view<const Value>, Layout, Value>>*) {
  for (const shape& s : {shape{1, 128, 64, 0, 0}, shape{2, 64, 5, 0, 0}}) {
    buffer<Value> from(static_cast<std::size_t>(s.batch * s.rows * s.cols));
    for (std::size_t i = 0; i < from.size(); ++i) {
      if constexpr (sizeof(Value) == 4) from[i] = static_cast<Value>(i + 1);
      else from[i] = Value{static_cast<u8>(i % 251 + 1)};
    }
    laid_out<Layout, Value> to{nullptr, s.batch, s.rows, s.cols};
    auto made = poisoned<Value>(to.size());
    to.data = made.data();
    Task task{dense(static_cast<const Value*>(from.data()), s.rows, s.cols, s.batch), to, 0};
    task.vector = kernel::vector_of(task);
    device_memory memory;
    memory.input(from);
    memory.output(made);
    using body = kernel::relayout_body<Task>;
    machine.template launch<body>(name, ceil_div(to.size(), body::block_elements), task, memory);
    for (i64 offset = 0; offset < to.size(); ++offset) {
      const index3 at = to.mapping().index(offset);
      const Value right = at.batch < 0 ? kernel::padding_of<Layout, Value>()
                                       : from[static_cast<std::size_t>((at.batch * s.rows + at.row) * s.cols + at.col)];
      expect_same("elements", to.data + offset, &right, 1);
    }
  }
}

template <class Machine, class Layout, class Value>
void check(Machine& machine, const char* name, kernel::padding_body<Layout, Value>*) {
  laid_out<Layout, Value> to{nullptr, 2, 130, 5};
  auto made = poisoned<Value>(to.size());
  auto right = made;
  to.data = made.data();
  for (i64 offset = 0; offset < to.size(); ++offset)
    if (to.mapping().index(offset).batch < 0)
      right[static_cast<std::size_t>(offset)] = kernel::padding_of<Layout, Value>();
  device_memory memory;
  memory.output(made);
  machine.template launch<kernel::padding_body<Layout, Value>>(name, ceil_div(to.size(), 256), to, memory);
  expect_same("padding", made, right);
}

template <class Machine>
void check(Machine& machine, const char* name, kernel::compare_body<kernel::one_task<kernel::compare_task>>*) {
  for (const shape& s : {shape{1, 128, 128, 0, 0}, shape{2, 5, 141, 0, 0}}) {
    buffer<u8> before(static_cast<std::size_t>(s.batch * s.rows * s.cols));
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<u8>(i * 11);
    buffer<u8> after = before;
    for (std::size_t i = 3; i < after.size() / 2; i += 29) after[i] ^= static_cast<u8>(1 << i % 8);
    const i64 bytes = ceil_div(s.cols, 8);
    auto changed = poisoned<u8>(s.batch * s.rows * bytes);
    kernel::compare_task task{dense(static_cast<const u8*>(before.data()), s.rows, s.cols, s.batch),
                              dense(static_cast<const u8*>(after.data()), s.rows, s.cols, s.batch),
                              dense(changed.data(), s.rows, bytes, s.batch), nullptr, 0};
    auto tiles = poisoned<u8>(tiles_of_task(task));
    task.tiles = tiles.data();
    task.vector = kernel::vector_of(task);
    buffer<u8> bits(changed.size(), u8{0}), flags(tiles.size(), u8{0});
    for (i64 i = 0; i < s.batch * s.rows * s.cols; ++i) {
      if (before[static_cast<std::size_t>(i)] == after[static_cast<std::size_t>(i)]) continue;
      const i64 row = i / s.cols, col = i % s.cols;
      bits[static_cast<std::size_t>(row * bytes + col / 8)] |= static_cast<u8>(1 << col % 8);
      const i64 band = row / s.rows * ceil_div(s.rows, 128) + row % s.rows / 128;
      flags[static_cast<std::size_t>(band * ceil_div(s.cols, 128) + col / 128)] = 1;
    }
    device_memory memory;
    memory.input(before);
    memory.input(after);
    memory.output(changed);
    memory.output(tiles);
    machine.template launch<kernel::compare_body<kernel::one_task<kernel::compare_task>>>(name, tiles_of_task(task),
                                                                                          {task}, memory);
    expect_same("bits", changed, bits);
    expect_same("tiles", tiles, flags);
  }
}

template <class Machine>
void check(Machine& machine, const char* name, kernel::checksum_body<kernel::one_task<kernel::checksum_task>>*) {
  buffer<u8> bytes(70000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<u8>(i * 37 + i / 256);
  for (const i64 size : {0, 13, 64, 65600}) {
    for (const i64 from : {0, 3}) {
      buffer<u64> sum(1, u64{0});
      const kernel::checksum_task task{bytes.data() + from, size, sum.data()};
      device_memory memory;
      memory.input(bytes);
      memory.both(sum);
      machine.template launch<kernel::checksum_body<kernel::one_task<kernel::checksum_task>>>(
          name, tiles_of_task(task), {task}, memory);
      if (sum[0] != checksum(bytes.data() + from, static_cast<std::size_t>(size))) throw wrong_bytes("the checksum");
    }
  }
}

/// Calls visit(name, body pointer) for every kernel of the list.
template <class Visit> void for_each_kernel(const Visit& visit) {
#define FP8WIRE_VISIT(name) visit(#name, static_cast<kernels::name*>(nullptr));
  FP8WIRE_TEST_KERNELS(FP8WIRE_VISIT)
#undef FP8WIRE_VISIT
}

}  // namespace cases
#endif
