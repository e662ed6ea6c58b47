// SPDX-License-Identifier: Apache-2.0
// Bodies that only engines' layouts need, a table of tensors each: packed and repeated scales, padding, moved pairs.
#include <doctest/doctest.h>

#include <algorithm>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/kernel/packed_scales.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>

#include "block_emulator.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;
using samples::buffer;
using packed_place = kernel::packed_scales<packed_ue8m0>;

/// Launches tasks as a table.
template <class Task> void launch_table(const std::vector<Task>& list, emulator::device_memory& memory) {
  using body = typename kernel::body_of<Task>::template from<kernel::task_table<Task>>;
  buffer<Task> tasks;
  for (const Task& one : list) tasks.push_back(one);
  buffer<i64> sums(tasks.size());
  const i64 count = static_cast<i64>(tasks.size());
  const i64 blocks =
      kernel::sum_tiles(tasks.data(), count, sums.data(), [](const Task& one) { return tiles_of_task(one); });
  memory.input(sums);
  memory.input(tasks);
  emulator::launch<body>(blocks, {sums.data(), tasks.data(), count}, memory);
}

struct extents {
  i64 batch, rows, cols;
};

/// A pair whose scales are packed, and the definition's.
template <class Recipe> struct packed_pair {
  using block = typename Recipe::block;
  extents of;
  buffer<bf16> weights;
  samples::expected<Recipe, bf16> right;
  buffer<u8> codes;
  laid_out<packed_ue8m0, e8m0> to;
  buffer<e8m0> bytes;
  buffer<u64> status, refused;

  explicit packed_pair(extents e)
      : of(e),
        weights(samples::weights<bf16>(e.batch * e.rows * e.cols, 3)),
        right(in()),
        codes(right.codes.size()),
        to{nullptr, e.batch, e.rows, scale_cols<block>(e.cols)},
        bytes(static_cast<std::size_t>(to.size())),
        status(1, kernel::no_index),
        refused(1, kernel::no_index) {
    to.data = bytes.data();
  }
  matrix_view<const bf16> in() const { return dense(weights.data(), of.rows, of.cols, of.batch); }
  packed_place place() { return {to, block::rows, scale_rows<block>(of.rows), refused.data()}; }
  void give(emulator::device_memory& memory) {
    memory.input(weights);
    memory.output(codes);
    memory.both(bytes);
    memory.both(status);
    memory.both(refused);
    std::fill(bytes.begin(), bytes.end(), e8m0{0xA5});
  }
  /// Its number is that of 2^k for k in [-127, 127], or it is refused.
  static u8 byte_of(stored_t<Recipe> scale, bool& fits) {
    if constexpr (std::same_as<stored_t<Recipe>, e8m0>) {
      return scale.bits;
    } else {
      float power = float_of(0x00400000u);
      for (int k = 0; k < 255; ++k, power = ieee::mul(power, 2.0f))
        if (bits_of(power) == bits_of(scale)) return static_cast<u8>(k);
      fits = false;
      return 0xFF;
    }
  }
  void check() {
    const i64 grid_rows = scale_rows<block>(of.rows), grid_cols = to.cols;
    u64 first_refused = kernel::no_index;
    i64 wrong = 0;
    buffer<u8> rebuilt(bytes.size(), u8{0});
    for (i64 b = 0; b < of.batch; ++b)
      for (i64 row = 0; row < of.rows; ++row)
        for (i64 col = 0; col < grid_cols; ++col) {
          const i64 rank = (b * grid_rows + row / block::rows) * grid_cols + col;
          bool fits = true;
          const u8 byte = byte_of(right.scales[static_cast<std::size_t>(rank)], fits);
          if (!fits && static_cast<u64>(rank) < first_refused) first_refused = static_cast<u64>(rank);
          // DeepGEMM: four columns a word, word columns of rows rounded up to 4.
          const i64 words = (grid_cols + 3) / 4, stored_rows = (of.rows + 3) / 4 * 4;
          rebuilt[static_cast<std::size_t>(((b * words + col / 4) * stored_rows + row) * 4 + col % 4)] = byte;
        }
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i].bits == rebuilt[i] ? 0 : 1;
    CHECK(wrong == 0);
    CHECK(refused[0] == first_refused);
  }
};

template <class Recipe> void check_packed(const std::vector<extents>& shapes) {
  using task = kernel::quantize_task<Recipe, bf16, matrix_view<u8>, packed_place>;
  using spread = kernel::spread_task<kernel::no_source, packed_ue8m0>;
  std::vector<packed_pair<Recipe>> pairs;
  pairs.reserve(shapes.size());
  for (const extents& shape : shapes) pairs.emplace_back(shape);
  emulator::device_memory memory;
  std::vector<task> tasks;
  std::vector<spread> spreads;
  for (auto& pair : pairs) {
    pair.give(memory);
    tasks.push_back({pair.in(), dense(pair.codes.data(), pair.of.rows, pair.of.cols, pair.of.batch), pair.place(),
                     pair.status.data(), 0, Recipe::num.amax_floor, 0});
    tasks.back().vector = kernel::vector_of(tasks.back());
    spreads.push_back({{}, pair.place()});
  }
  launch_table(tasks, memory);
  launch_table(spreads, memory);
  for (auto& pair : pairs) {
    CHECK(pair.codes == pair.right.codes);
    pair.check();
  }

  // The same from scales that were there before.
  using stored = stored_t<Recipe>;
  using moved = kernel::spread_task<matrix_view<const stored>, packed_ue8m0>;
  emulator::device_memory again;
  std::vector<moved> moves;
  for (auto& pair : pairs) {
    pair.refused[0] = kernel::no_index;
    again.input(pair.right.scales);
    again.output(pair.bytes);
    again.both(pair.refused);
    std::fill(pair.bytes.begin(), pair.bytes.end(), e8m0{0xA5});
    moves.push_back({dense(static_cast<const stored*>(pair.right.scales.data()),
                           scale_rows<typename Recipe::block>(pair.of.rows), pair.to.cols, pair.of.batch),
                     pair.place()});
  }
  launch_table(moves, again);
  for (auto& pair : pairs) pair.check();
}

TEST_CASE("packed scales are the block's powers of two, one a row, and what is none is refused by its rank") {
  check_packed<presets::te_block_pow2::recipe>({{1, 128, 128}, {2, 131, 300}, {1, 0, 128}, {1, 5, 700}});
  check_packed<presets::te_block::recipe>({{1, 140, 260}});
  check_packed<presets::te_row_block_pow2::recipe>({{2, 7, 500}});
  check_packed<presets::te_mxfp8::recipe>({{1, 128, 128}, {3, 6, 96}});
}

TEST_CASE("tables of padding leave elements alone") {
  using layout = row_major_padded<4, 8, 0xEE>;
  using task = kernel::padding_task<layout, u8>;
  std::vector<buffer<u8>> all;
  std::vector<task> tasks;
  emulator::device_memory memory;
  for (const extents& e : {extents{2, 3, 9}, extents{1, 130, 24}, extents{1, 0, 5}}) {
    laid_out<layout, u8> to{nullptr, e.batch, e.rows, e.cols};
    all.emplace_back(static_cast<std::size_t>(to.size()), u8{0xA5});
    to.data = all.back().data();
    tasks.push_back({to});
  }
  for (buffer<u8>& bytes : all) memory.output(bytes);
  launch_table(tasks, memory);
  for (const task& one : tasks)
    for (i64 at = 0; at < one.size(); ++at) {
      const i64 width = (one.cols + 7) / 8 * 8, height = (one.rows + 3) / 4 * 4;
      const bool inside = at % width < one.cols && at / width % height < one.rows;
      REQUIRE(one.data[at] == (inside ? 0xA5 : 0xEE));
    }
}

TEST_CASE("tables of relayouts write what single ones do") {
  using task = kernel::relayout_task<matrix_view<const u8>, trtllm_fp8_block_codes, u8>;
  std::vector<buffer<u8>> from, to;
  std::vector<task> tasks;
  emulator::device_memory memory;
  for (const extents& e : {extents{1, 32, 256}, extents{2, 16, 128}, extents{3, 48, 384}}) {
    from.push_back(buffer<u8>(static_cast<std::size_t>(e.batch * e.rows * e.cols)));
    for (std::size_t i = 0; i < from.back().size(); ++i) from.back()[i] = static_cast<u8>(i * 7 + i / 251);
    to.push_back(buffer<u8>(from.back().size()));
    tasks.push_back({dense(static_cast<const u8*>(from.back().data()), e.rows, e.cols, e.batch),
                     {to.back().data(), e.batch, e.rows, e.cols},
                     0});
    tasks.back().vector = kernel::vector_of(tasks.back());
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    memory.input(from[i]);
    memory.output(to[i]);
  }
  launch_table(tasks, memory);
  for (const task& one : tasks)
    for (i64 b = 0; b < one.to.batch; ++b)
      for (i64 row = 0; row < one.to.rows; ++row)
        for (i64 col = 0; col < one.to.cols; ++col) REQUIRE(one.to(b, row, col) == one.from(b, row, col));
}

}  // namespace
