// SPDX-License-Identifier: Apache-2.0
// The bodies beside quantize: parts of a matrix, whole-tensor scales, dequantize, relayouts, change bitmaps, checksums.
#include <doctest/doctest.h>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/laid_out.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/kernel/checksum.hpp>
#include <fp8wire/quant/kernel/compare.hpp>
#include <fp8wire/quant/kernel/dequantize.hpp>
#include <fp8wire/quant/kernel/partial.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

#include "block_emulator.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;
using samples::buffer;

template <class Task> using amax_of = kernel::partial_amax_body<kernel::one_task<Task>, Task>;
template <class Task> using cast_of = kernel::partial_cast_body<kernel::one_task<Task>, Task>;

/// The rectangles of elements [start, start + length) of a flattened matrix, at most three.
std::vector<slice> rectangles(i64 cols, i64 start, i64 length) {
  std::vector<slice> made;
  const auto row_part = [&](i64 count) {
    made.push_back({start / cols, start % cols, 1, count});
    start += count, length -= count;
  };
  if (start % cols != 0 || length < cols) row_part(std::min(length, cols - start % cols));
  if (length >= cols) {
    made.push_back({start / cols, 0, length / cols, cols});
    start += length / cols * cols, length %= cols;
  }
  if (length > 0) row_part(length);
  return made;
}

/// Quantizes a matrix from flat shards [cuts[i], cuts[i + 1]), all maxima first.
template <class Recipe, class In> void check_sharded(i64 rows, i64 cols, std::vector<i64> cuts, u32 spoil = 0) {
  using task = kernel::partial_task<Recipe, In>;
  buffer<In> weights = samples::weights<In>(rows * cols, 3);
  if (spoil != 0) weights[weights.size() / 3] = from_float<In>(float_of(spoil));
  const auto in = dense(static_cast<const In*>(weights.data()), rows, cols);
  const samples::expected<Recipe, In> right(in);
  buffer<u8> codes(right.codes.size());
  buffer<stored_t<Recipe>> scales(right.scales.size());
  buffer<u32> amax(right.scales.size(), u32{0});
  buffer<u64> status(1, kernel::no_index);
  const i64 grid_rows = scale_rows<typename Recipe::block>(rows), grid_cols = scale_cols<typename Recipe::block>(cols);
  emulator::device_memory memory;
  memory.input(weights);
  memory.output(codes);
  memory.output(scales);
  memory.both(amax);
  memory.both(status);
  for (const bool cast : {false, true}) {
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      for (const slice& where : rectangles(cols, cuts[i], cuts[i + 1] - cuts[i])) {
        const i64 first = where.row * cols + where.col;
        task part{{weights.data() + first, where.rows, where.cols, cols, 1, 0, 1},
                  where.row, where.col, rows, cols,
                  dense(amax.data(), grid_rows, grid_cols),
                  {codes.data() + first, where.rows, where.cols, cols, 1, 0, 1},
                  status.data(), 0, Recipe::num.amax_floor, 0};
        part.vector = kernel::vector_of(part);
        if (cast) emulator::launch<cast_of<task>>(kernel::tiles_of_task(part), {part}, memory);
        else emulator::launch<amax_of<task>>(kernel::tiles_of_task(part), {part}, memory);
      }
    }
  }
  using scale_task = kernel::scales_task<Recipe, In>;
  const scale_task make{dense(static_cast<const u32*>(amax.data()), grid_rows, grid_cols),
                        dense(scales.data(), grid_rows, grid_cols), Recipe::num.amax_floor};
  emulator::launch<kernel::scales_body<scale_task>>(ceil_div(grid_rows * grid_cols, 256), make, memory);
  CHECK(codes == right.codes);
  CHECK(std::memcmp(scales.data(), right.scales.data(), scales.size() * sizeof(scales[0])) == 0);
  CHECK(static_cast<i64>(status[0]) == right.first_nonfinite);
}

TEST_CASE("flat shards of a matrix, maxima joined, make the bytes of the whole") {
  check_sharded<presets::te_sharded::recipe, float>(256, 384, {0, 33000, 35000, 35003, 98304});
  check_sharded<presets::te_sharded_pow2::recipe, bf16>(130, 200, {0, 1, 199, 13000, 26000});
  check_sharded<presets::te_mxfp8_sharded::recipe, bf16>(128, 256, {0, 4096, 10000, 32768});
  check_sharded<presets::te_mxfp8_columnwise::recipe, bf16>(64, 128, {0, 100, 8192});
  check_sharded<presets::te_sharded::recipe, bf16>(256, 128, {0, 32768}, 0x7FC00000u);
}

TEST_CASE("one scale for a tensor, and one for a row") {
  using tensor = recipe<e4m3, block<whole, whole>, rules::quotient>;
  using row = recipe<e4m3_as<casts::torch_saturating>, block<1, whole>, rules::quotient_reciprocal>;
  check_sharded<tensor, bf16>(256, 384, {0, 256 * 384});
  check_sharded<tensor, float>(131, 129, {0, 131 * 129});
  check_sharded<row, bf16>(256, 256, {0, 256 * 256});
  check_sharded<row, fp16>(3, 500, {0, 1500});
  check_sharded<row, bf16>(128, 128, {0, 128 * 128}, 0x7FC00000u);
  check_sharded<tensor, fp16>(128, 128, {0, 128 * 128}, f32::infinity);
}

/// A buffer in a layout, what it holds at (b, row, col) taken from a dense one.
template <class Layout, class Value> struct laid_copy {
  laid_out<Layout, const Value> place;
  buffer<Value> values;
  laid_copy(const buffer<Value>& from, i64 batch, i64 rows, i64 cols)
      : place{nullptr, batch, rows, cols}, values(static_cast<std::size_t>(place.size())) {
    std::size_t at = 0;
    for (i64 b = 0; b < batch; ++b)
      for (i64 row = 0; row < rows; ++row)
        for (i64 col = 0; col < cols; ++col)
          values[static_cast<std::size_t>(place.mapping().offset({b, row, col}))] = from[at++];
    place.data = values.data();
  }
};

template <class Recipe, class Out, class CodesLayout = row_major, class ScalesLayout = row_major>
void check_dequantize(i64 batch, i64 rows, i64 cols) {
  using stored = stored_t<Recipe>;
  using block = typename Recipe::block;
  constexpr bool laid = !std::same_as<CodesLayout, row_major>;
  using code_place = std::conditional_t<laid, laid_out<CodesLayout, const u8>, matrix_view<const u8>>;
  using scale_place = std::conditional_t<laid, laid_out<ScalesLayout, const stored>, matrix_view<const stored>>;
  using task = kernel::dequantize_task<Recipe, Out, code_place, scale_place>;
  buffer<u8> codes(static_cast<std::size_t>(batch * rows * cols));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<u8>(i * 7 + i / 256);
  const i64 grid_rows = scale_rows<block>(rows), grid_cols = scale_cols<block>(cols);
  buffer<stored> scales(static_cast<std::size_t>(batch * grid_rows * grid_cols));
  std::mt19937 random(3);
  for (auto& scale : scales) {
    if constexpr (sizeof(scale) == 1) scale = {static_cast<u8>(random())};
    else scale = float_of(static_cast<u32>(random()));
  }
  buffer<Out> out(codes.size());
  const laid_copy<CodesLayout, u8> laid_codes(codes, batch, rows, cols);
  const laid_copy<ScalesLayout, stored> laid_scales(scales, batch, grid_rows, grid_cols);
  const auto dense_codes = dense(static_cast<const u8*>(codes.data()), rows, cols, batch);
  const auto dense_scales = dense(static_cast<const stored*>(scales.data()), grid_rows, grid_cols, batch);
  emulator::device_memory memory;
  memory.input(codes);
  memory.input(scales);
  memory.input(laid_codes.values);
  memory.input(laid_scales.values);
  memory.output(out);
  const auto launch = [&](const code_place& from, const scale_place& by) {
    task work{from, by, dense(out.data(), rows, cols, batch), 0};
    work.vector = kernel::vector_of(work);
    emulator::launch<kernel::dequantize_body<kernel::one_task<task>, task>>(kernel::tiles_of_task(work), {work},
                                                                            memory);
  };
  if constexpr (laid) launch(laid_codes.place, laid_scales.place);
  else launch(dense_codes, dense_scales);
  const i64 height = block::rows == whole ? rows : block::rows, width = block::cols == whole ? cols : block::cols;
  i64 wrong = 0;
  for (i64 b = 0; b < batch; ++b) {
    for (i64 row = 0; row < rows; ++row) {
      for (i64 col = 0; col < cols; ++col) {
        const Out right = from_float<Out>(
            reference::decode<Recipe>(dense_codes(b, row, col), dense_scales(b, row / height, col / width)));
        wrong += std::memcmp(&out[static_cast<std::size_t>((b * rows + row) * cols + col)], &right, sizeof(Out)) != 0;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("dequantized weights have the bytes of the definition, whatever the scale") {
  check_dequantize<presets::te_block::recipe, bf16>(1, 256, 128);
  check_dequantize<presets::te_block_e5m2::recipe, float>(2, 130, 140);
  check_dequantize<presets::te_mxfp8::recipe, fp16>(2, 128, 256);
  check_dequantize<presets::te_mxfp8_columnwise::recipe, bf16>(1, 128, 128);
}

TEST_CASE("one scale for a matrix or a row is dequantized by, in batches too") {
  check_dequantize<recipe<e4m3, block<whole, whole>, rules::quotient>, bf16>(3, 130, 256);
  check_dequantize<recipe<e4m3, block<1, whole>, rules::quotient>, float>(2, 128, 200);
}

TEST_CASE("weights are dequantized from engines' layouts") {
  using mx = presets::te_mxfp8::recipe;
  using blocks = presets::te_block::recipe;
  check_dequantize<mx, bf16, trtllm_mxfp8_codes, trtllm_mxfp8_scales>(2, 160, 256);
  check_dequantize<blocks, bf16, trtllm_fp8_block_w13_codes, deepgemm_fp32>(2, 128, 256);
  check_dequantize<blocks, float, transposed, te_block_columnwise>(1, 130, 140);
}

template <class Layout, class Value> void check_relayout(i64 batch, i64 rows, i64 cols) {
  buffer<Value> from(static_cast<std::size_t>(batch * rows * cols));
  for (std::size_t i = 0; i < from.size(); ++i) {
    if constexpr (sizeof(Value) == 4) from[i] = static_cast<Value>(i + 1);
    else from[i] = Value{static_cast<u8>(i % 251 + 1)};
  }
  laid_out<Layout, Value> target{nullptr, batch, rows, cols};
  buffer<Value> to(static_cast<std::size_t>(target.size()));
  target.data = to.data();
  const laid_out<row_major, const Value> source{from.data(), batch, rows, cols};
  emulator::device_memory memory;
  memory.input(from);
  memory.both(to);  // read by the way back
  using there = kernel::relayout_task<matrix_view<const Value>, Layout, Value>;
  there move{dense(static_cast<const Value*>(from.data()), rows, cols, batch), target, 0};
  move.vector = kernel::vector_of(move);
  using body = kernel::relayout_body<there>;
  emulator::launch<body>(ceil_div(target.size(), body::block_elements), move, memory);
  i64 wrong = 0;
  for (i64 offset = 0; offset < target.size(); ++offset) {
    const index3 at = target.mapping().index(offset);
    const Value right = at.batch < 0 ? kernel::padding_of<Layout, Value>() : source(at.batch, at.row, at.col);
    wrong += std::memcmp(target.data + offset, &right, sizeof(Value)) == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);

  buffer<Value> again(from.size());
  memory.output(again);
  using back = kernel::relayout_task<laid_out<Layout, const Value>, row_major, Value>;
  back home{target, {again.data(), batch, rows, cols}, 0};
  home.vector = kernel::vector_of(home);
  using back_body = kernel::relayout_body<back>;
  emulator::launch<back_body>(ceil_div(batch * rows * cols, back_body::block_elements), home, memory);
  CHECK(std::memcmp(again.data(), from.data(), from.size() * sizeof(Value)) == 0);
}

TEST_CASE("relayouts write every element and all padding, and find the way back") {
  check_relayout<swizzle_128x4, e8m0>(1, 128, 64);
  check_relayout<swizzle_128x4, e8m0>(2, 131, 5);
  check_relayout<deepgemm_fp32, float>(2, 130, 9);
  check_relayout<deepgemm_fp32, bf16>(2, 131, 3);
  check_relayout<packed_ue8m0, e8m0>(2, 6, 12);
  check_relayout<te_block_columnwise, float>(1, 5, 7);
  check_relayout<trtllm_mxfp8_codes, u8>(1, 64, 96);
  check_relayout<trtllm_mxfp8_w13_scales, e8m0>(1, 64, 8);
  check_relayout<trtllm_fp8_block_w13_codes, u8>(2, 32, 256);
}

void check_compare(i64 batch, i64 rows, i64 cols) {
  buffer<u8> before(static_cast<std::size_t>(batch * rows * cols)), after;
  std::mt19937 random(1);
  for (u8& code : before) code = static_cast<u8>(random());
  after = before;
  for (u8& code : after)
    if (random() % 50 == 0) code = static_cast<u8>(random());
  const i64 bytes = ceil_div(cols, 8);
  buffer<u8> changed(static_cast<std::size_t>(batch * rows * bytes));
  kernel::compare_task task{dense(static_cast<const u8*>(before.data()), rows, cols, batch),
                            dense(static_cast<const u8*>(after.data()), rows, cols, batch),
                            dense(changed.data(), rows, bytes, batch), nullptr, 0};
  buffer<u8> tiles(static_cast<std::size_t>(kernel::tiles_of_task(task)));
  task.tiles = tiles.data();
  task.vector = kernel::vector_of(task);
  emulator::device_memory memory;
  memory.input(before);
  memory.input(after);
  memory.output(changed);
  memory.output(tiles);
  emulator::launch<kernel::compare_body<kernel::one_task<kernel::compare_task>>>(kernel::tiles_of_task(task), {task},
                                                                                 memory);
  buffer<u8> bits(changed.size(), u8{0}), flags(tiles.size(), u8{0});
  for (i64 i = 0; i < batch * rows * cols; ++i) {
    if (before[static_cast<std::size_t>(i)] == after[static_cast<std::size_t>(i)]) continue;
    const i64 row = i / cols, col = i % cols;
    bits[static_cast<std::size_t>(row * bytes + col / 8)] |= static_cast<u8>(1 << col % 8);
    const i64 down = ceil_div(rows, 128), across = ceil_div(cols, 128);
    flags[static_cast<std::size_t>((row / rows * down + row % rows / 128) * across + col / 128)] = 1;
  }
  CHECK(changed == bits);
  CHECK(tiles == flags);
}

TEST_CASE("a change bitmap has the bit of every code that differs") {
  check_compare(1, 128, 256);
  check_compare(2, 130, 131);
  check_compare(3, 1, 7);
}

TEST_CASE("checksums of any length and alignment are those of the host") {
  buffer<u8> bytes(300001);
  std::mt19937 random(1);
  for (u8& byte : bytes) byte = static_cast<u8>(random());
  emulator::device_memory memory;
  memory.input(bytes);
  for (const i64 size : {0, 1, 7, 8, 63, 64, 65, 65535, 65536, 65537, 200000}) {
    for (const i64 from : {0, 3, 8}) {
      buffer<u64> sum(1, u64{0});
      memory.both(sum);
      const kernel::checksum_task task{bytes.data() + from, size, sum.data()};
      emulator::launch<kernel::checksum_body<kernel::one_task<kernel::checksum_task>>>(kernel::tiles_of_task(task),
                                                                                       {task}, memory);
      CHECK(sum[0] == checksum(bytes.data() + from, static_cast<std::size_t>(size)));
    }
  }
}

}  // namespace
