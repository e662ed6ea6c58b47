// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <fp8wire/model/rank_slices.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/quantize.hpp>

using namespace fp8wire;

namespace {

template <class Value> std::vector<Value> cut(const std::vector<Value>& whole, i64 cols, const slice& part) {
  std::vector<Value> out;
  for (i64 row = part.row; row < part.row + part.rows; ++row)
    for (i64 col = part.col; col < part.col + part.cols; ++col)
      out.push_back(whole[static_cast<std::size_t>(row * cols + col)]);
  return out;
}

struct pair {
  std::vector<u8> codes;
  std::vector<float> scales;
};

pair quantized(const std::vector<float>& in, i64 rows, i64 cols) {
  using recipe = presets::vllm_block::recipe;
  pair out{std::vector<u8>(in.size()),
           std::vector<float>(static_cast<std::size_t>(ceil_div(rows, 128) * ceil_div(cols, 128)))};
  quantize<recipe>(dense(in.data(), rows, cols),
                   pair_view<recipe>{dense(out.codes.data(), rows, cols),
                                     dense(out.scales.data(), ceil_div(rows, 128), ceil_div(cols, 128))});
  return out;
}

std::vector<float> weights(i64 rows, i64 cols) {
  std::vector<float> out;
  u32 state = 7;
  for (i64 i = 0; i < rows * cols; ++i) {
    state = state * 1664525u + 1013904223u;
    out.push_back((static_cast<float>(state >> 8) / 8388608.0f - 1.0f) * (1.0f + static_cast<float>(i % 911)));
  }
  return out;
}

}  // namespace

TEST_CASE("what a rank keeps are the bytes of quantizing its part alone") {
  struct row {
    i64 rows, cols, tp;
    sharding how;
  };
  for (const row& at : {row{512, 300, 4, sharding::column}, row{300, 512, 4, sharding::row},
                        row{512, 200, 2, sharding::gate_up}, row{200, 100, 3, sharding::replicated}}) {
    const std::vector<float> in = weights(at.rows, at.cols);
    const pair entire = quantized(in, at.rows, at.cols);
    const i64 scale_cols = ceil_div(at.cols, 128);
    for (i64 rank = 0; rank < at.tp; ++rank) {
      CAPTURE(rank);
      const auto slices = rank_slices("w", {at.rows, at.cols}, at.how, at.tp, rank);
      REQUIRE(slices.ok());
      CHECK(slices->size() == (at.how == sharding::gate_up ? 2 : 1));
      for (const pair_slice& one : *slices) {
        const pair alone = quantized(cut(in, at.cols, one.codes), one.codes.rows, one.codes.cols);
        CHECK(cut(entire.codes, at.cols, one.codes) == alone.codes);
        CHECK(cut(entire.scales, scale_cols, one.scales) == alone.scales);
      }
    }
  }
}

TEST_CASE("the rectangles of all ranks cover a weight once") {
  for (const sharding how : {sharding::column, sharding::row, sharding::gate_up}) {
    std::vector<int> seen(1024 * 1024, 0);
    for (i64 rank = 0; rank < 4; ++rank) {
      const auto slices = rank_slices("w", {1024, 1024}, how, 4, rank);
      for (const pair_slice& one : *slices)
        for (i64 row = one.codes.row; row < one.codes.row + one.codes.rows; ++row)
          for (i64 col = one.codes.col; col < one.codes.col + one.codes.cols; ++col)
            ++seen[static_cast<std::size_t>(row * 1024 + col)];
    }
    CHECK(seen == std::vector<int>(1024 * 1024, 1));
  }
}

TEST_CASE("cuts inside a block are refused with the place") {
  const auto message = [](const auto& answer) { return answer.ok() ? std::string() : answer.error().message(); };
  CHECK(message(rank_slices("k_proj.weight", {512, 128}, sharding::column, 8, 1)) ==
        "C5 k_proj.weight: row 64 at the start of the part is inside a block of 128");
  CHECK(message(rank_slices("o_proj.weight", {128, 1536}, sharding::row, 16, 0)) ==
        "C5 o_proj.weight: column 96 at the end of the part is inside a block of 128");
  CHECK(message(rank_slices("w", {100, 128}, sharding::column, 3, 0)) ==
        "C5 w: its rows are not a multiple of tp * parts: got 100, expected 102");
  CHECK(message(rank_slices("w", {100, 128}, sharding::column, 2, 2)) == "w: no such rank: got 2, expected 2");
  CHECK(message(slice_pair("w", {100, 128}, {64, 0, 64, 128})) ==
        "C5 w: the part ends behind the rows: got 128, expected 100");
  CHECK(message(slice_pair("w", {100, 128}, {0, 64, 1, 128})) ==
        "C5 w: the part ends behind the columns: got 192, expected 128");
  // A ragged last block goes with the matrix's end only.
  CHECK(slice_pair("w", {300, 128}, {256, 0, 44, 128}).ok());
  CHECK(!slice_pair("w", {300, 128}, {256, 0, 40, 128}).ok());
  // Scales of the whole matrix, or of whole rows, cannot be cut along what they cover.
  CHECK(!slice_pair("w", {256, 128, 0, 0}, {0, 0, 128, 128}).ok());
  CHECK(slice_pair("w", {256, 128, 0, 0}, {0, 0, 256, 128})->scales == slice{0, 0, 1, 1});
  CHECK(slice_pair("w", {256, 128, 1, 0}, {7, 0, 9, 128})->scales == slice{7, 0, 9, 1});
  CHECK(!slice_pair("w", {256, 128, 1, 0}, {7, 0, 9, 64}).ok());
  CHECK(slice_pair("w", {256, 128, 1, 32}, {7, 32, 9, 64})->scales == slice{7, 1, 9, 2});
}

TEST_CASE("experts are spread as evenly as can be") {
  // 30 experts on 8 ranks: 4 4 4 4 4 4 3 3.
  i64 next = 0;
  for (i64 rank = 0; rank < 8; ++rank) {
    const expert_range mine = experts_of_rank(30, 8, rank);
    CHECK(mine.first == next);
    CHECK(mine.count == (rank < 6 ? 4 : 3));
    next += mine.count;
  }
  CHECK(next == 30);
  CHECK(experts_of_rank(256, 8, 3) == expert_range{96, 32});
  CHECK(experts_of_rank(0, 8, 3) == expert_range{0, 0});
}
