// SPDX-License-Identifier: Apache-2.0
// Shapes, strides, edges and refusals of quantize, dequantize and verify; which bytes a rule makes is tested elsewhere.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/nemo.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/verify.hpp>

#include "tensors.hpp"

using namespace fp8wire;
using test::bits;
using test::pair_of;
using block_recipe = presets::vllm_block::recipe;
using mx_recipe = presets::te_mxfp8::recipe;

template <class In> static std::vector<In> noise(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<In> weights(count);
  for (In& weight : weights) {
    const u32 pattern = static_cast<u32>(random());
    weight = from_float<In>(float_of((pattern & 0x807FFFFFu) | ((pattern >> 24) % 12 + 112) << 23));
  }
  return weights;
}

template <any_recipe Recipe, class In> static void check_shape(i64 rows, i64 cols, i64 batch) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(batch);
  const auto weights =
      noise<In>(static_cast<std::size_t>(batch * rows * cols), static_cast<unsigned>(rows * 131 + cols));
  pair_of<Recipe> out(rows, cols, batch);
  const auto in = dense(weights.data(), rows, cols, batch);
  CHECK(quantize<Recipe, In>(in, out.view()).finite());
  // Every byte, against a matrix of one block a time.
  const auto expected = test::quantized<Recipe, In>(weights, rows, cols, Recipe::num.amax_floor, batch);
  CHECK(out.codes == expected.codes);
  CHECK(out.scales == expected.scales);
  CHECK_FALSE(verify<Recipe, In>(in, out.view()).found);
  std::vector<float> back(weights.size());
  dequantize<Recipe, float>(out.view(), dense(back.data(), rows, cols, batch));
  for (i64 b = 0; b < batch; ++b)
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col) {
        const i64 height = Recipe::block::rows, width = Recipe::block::cols;
        const float scale = to_float(out.view().scales(b, row / height, col / width));
        volatile float product = Recipe::element::decode(out.view().codes(b, row, col)) * scale;
        if (bits_of(back[static_cast<std::size_t>((b * rows + row) * cols + col)]) != bits_of(product))
          FAIL_CHECK("dequantize");
      }
}

TEST_CASE("every shape has the bytes of the scalar definition, whole, ragged, batched, single rows and columns") {
  for (const i64 rows : {1, 2, 127, 128, 129, 200}) check_shape<block_recipe, bf16>(rows, 257, 1);
  for (const i64 cols : {1, 31, 128, 640}) check_shape<block_recipe, float>(130, cols, 2);
  check_shape<block_recipe, fp16>(192, 128, 3);
  for (const i64 cols : {32, 64, 160}) check_shape<mx_recipe, bf16>(5, cols, 2);
  check_shape<mx_recipe, float>(3, 40, 1);
  check_shape<presets::nemo_block::recipe, bf16>(130, 131, 1);
}

TEST_CASE("empty tensors are quantized to nothing") {
  const i64 shapes[][3] = {{0, 128, 1}, {128, 0, 1}, {0, 0, 1}, {0, 128, 4}, {64, 0, 4}, {128, 128, 0}};
  const i64 grids[][2] = {{0, 1}, {1, 0}, {0, 0}, {0, 1}, {1, 0}, {1, 1}};
  for (int i = 0; i < 6; ++i) {
    pair_of<block_recipe> out(shapes[i][0], shapes[i][1], shapes[i][2]);
    CHECK(out.view().scales.rows == grids[i][0]);
    CHECK(out.view().scales.cols == grids[i][1]);
    const auto in = dense(static_cast<const float*>(nullptr), shapes[i][0], shapes[i][1], shapes[i][2]);
    CHECK(quantize<block_recipe, float>(in, out.view()).finite());
    CHECK_FALSE(verify<block_recipe, float>(in, out.view()).found);
    dequantize<block_recipe, float>(out.view(),
                                    dense(static_cast<float*>(nullptr), shapes[i][0], shapes[i][1], shapes[i][2]));
  }
}

TEST_CASE("what lies between rows never enters an amax and is never written") {
  std::vector<float> weights(130 * 8, 448.0f);  // poison
  for (std::size_t row = 0; row < 130; ++row) weights[row * 8] = row < 128 ? 1.0f : 2.0f;
  const matrix_view<const float> in{weights.data(), 130, 1, 8};
  std::vector<u8> codes(130 * 3, 0xEE);
  std::vector<float> scales(2 * 2, -1.0f);
  const pair_view<block_recipe> out{{codes.data(), 130, 1, 3}, {scales.data(), 2, 1, 2}};
  CHECK(quantize<block_recipe, float>(in, out).finite());
  CHECK((bits_of(scales[0]) == 0x3B124925u && bits_of(scales[2]) == 0x3B924925u));
  CHECK((scales[1] == -1.0f && scales[3] == -1.0f));
  for (std::size_t i = 0; i < codes.size(); ++i) CHECK(codes[i] == (i % 3 == 0 ? 0x7E : 0xEE));
}

TEST_CASE("columns may be strided, and codes are written where their own strides say") {
  const std::vector<float> buffer{1, 4, 2, 5, 3, 6};  // column-major 2 x 3
  const matrix_view<const float> in{buffer.data(), 2, 3, 1, 1, 0, 2};
  pair_of<block_recipe> out(2, 3);
  quantize<block_recipe, float>(in, out.view());
  CHECK(bits(out.scales[0]) == 0x3C5B6DB7u);
  const u8 expected[] = {0x69, 0x71, 0x76, 0x79, 0x7C, 0x7E};
  for (std::size_t i = 0; i < 6; ++i) CHECK(out.codes[i] == expected[i]);
  CHECK_FALSE(verify<block_recipe, float>(in, out.view()).found);
}

TEST_CASE("columnwise outputs are transposed by a view: the bytes of Transformer Engine's columnwise usage") {
  constexpr i64 rows = 200, cols = 150;
  const auto weights = noise<bf16>(rows * cols, 3);
  const auto in = dense(weights.data(), rows, cols);
  using square = presets::te_block::recipe;
  // 128x128: the transposed codes are the transpose of the rowwise ones, their scales the transposed grid.
  pair_of<square> rowwise(rows, cols);
  quantize<square, bf16>(in, rowwise.view());
  std::vector<u8> codes(cols * rows);
  std::vector<float> scales(2 * 2);
  quantize<square, bf16>(in, {{codes.data(), rows, cols, 1, 1, 0, rows}, {scales.data(), 2, 2, 1, 1, 0, 2}});
  for (i64 row = 0; row < rows; ++row)
    for (i64 col = 0; col < cols; ++col)
      if (codes[static_cast<std::size_t>(col * rows + row)] != rowwise.view().codes(row, col)) FAIL_CHECK("square");
  CHECK((scales[0] == rowwise.scales[0] && scales[1] == rowwise.scales[2] && scales[2] == rowwise.scales[1]));
  // 128x1 of W is 1x128 of its transpose, quantized from the weights and not from the rowwise codes.
  using line = presets::te_row_block::recipe;
  using column = recipe<line::element, block<128, 1>, line::rule>;
  pair_of<column> down(rows, cols);
  quantize<column, bf16>(in, down.view());
  std::vector<bf16> transposed(weights.size());
  for (i64 row = 0; row < rows; ++row)
    for (i64 col = 0; col < cols; ++col)
      transposed[static_cast<std::size_t>(col * rows + row)] = weights[static_cast<std::size_t>(row * cols + col)];
  pair_of<line> across(cols, rows);
  quantize<line, bf16>(dense<const bf16>(transposed.data(), cols, rows), across.view());
  for (i64 row = 0; row < rows; ++row)
    for (i64 col = 0; col < cols; ++col) {
      if (down.view().codes(row, col) != across.view().codes(col, row)) FAIL_CHECK("code");
      if (down.view().scales(row / 128, col) != across.view().scales(col, row / 128)) FAIL_CHECK("scale");
    }
}

TEST_CASE("experts of a batch have blocks of their own") {
  std::vector<float> weights(2 * 192 * 128, 1.0f);
  for (std::size_t i = weights.size() / 2; i < weights.size(); ++i) weights[i] = 1000.0f;
  pair_of<block_recipe> out(192, 128, 2);
  quantize<block_recipe, float>(dense<const float>(weights.data(), 192, 128, 2), out.view());
  for (std::size_t i = 0; i < 4; ++i) CHECK(bits(out.scales[i]) == (i < 2 ? 0x3B124925u : 0x400EDB6Eu));
  for (const u8 code : out.codes) CHECK(code == 0x7E);
}

TEST_CASE("any block shape: rows, columns, the tensor, 64x64") {
  const auto weights = noise<float>(70 * 90, 9);
  const auto check = [&]<class Block>(Block, i64 down, i64 across) {
    using shaped = recipe<e4m3, Block, rules::te_fp32>;
    pair_of<shaped> out(70, 90);
    CHECK(out.view().scales.rows == down);
    CHECK(out.view().scales.cols == across);
    quantize<shaped, float>(dense(weights.data(), 70, 90), out.view());
    const i64 height = (70 + down - 1) / down, width = (90 + across - 1) / across;
    const i64 block_height = Block::rows == whole ? 70 : Block::rows,
              block_width = Block::cols == whole ? 90 : Block::cols;
    for (i64 r = 0; r < down; ++r)
      for (i64 c = 0; c < across; ++c) {
        float amax = 0;
        for (i64 row = r * block_height; row < 70 && row < (r + 1) * block_height; ++row)
          for (i64 col = c * block_width; col < 90 && col < (c + 1) * block_width; ++col) {
            const float x = weights[static_cast<std::size_t>(row * 90 + col)];
            if ((x < 0 ? -x : x) > amax) amax = x < 0 ? -x : x;
          }
        volatile float multiplier = 448.0f / amax;
        CHECK(out.view().scales(r, c) == 1.0f / multiplier);
      }
    CHECK(height * width > 0);
  };
  check(block<1, whole>{}, 70, 1);
  check(block<whole, 1>{}, 1, 90);
  check(block<whole, whole>{}, 1, 1);
  check(block<64, 64>{}, 2, 2);
  check(block<32, 1>{}, 3, 90);
  check(block<1, 128>{}, 70, 1);
}

TEST_CASE("the first NaN or Inf is found by its logical index, and bytes are written all the same") {
  std::vector<float> weights(3 * 130 * 40, 0.5f);
  const auto at = [&](i64 b, i64 row, i64 col) -> float& {
    return weights[static_cast<std::size_t>((b * 130 + row) * 40 + col)];
  };
  at(2, 1, 1) = float_of(f32::nan);
  at(1, 129, 3) = float_of(f32::infinity);
  pair_of<block_recipe> out(130, 40, 3);
  CHECK(quantize<block_recipe, float>(dense<const float>(weights.data(), 130, 40, 3), out.view()).first_nonfinite ==
        (130 + 129) * 40 + 3);
  CHECK(out.view().codes(1, 129, 3) == 0xFE);
  CHECK(out.view().codes(2, 1, 1) == 0xFE);
}

TEST_CASE("verify finds one changed code, one changed scale, and a foreign grid") {
  const auto weights = noise<bf16>(200 * 200, 17);
  const auto in = dense<const bf16>(weights.data(), 200, 200);
  pair_of<block_recipe> out(200, 200);
  quantize<block_recipe, bf16>(in, out.view());
  out.codes[150 * 200 + 7] ^= 1;
  auto wrong = verify<block_recipe, bf16>(in, out.view());
  CHECK((wrong.found && !wrong.in_scale && wrong.row == 150 && wrong.col == 7));
  CHECK(wrong.got == (wrong.expected ^ 1));
  out.codes[150 * 200 + 7] ^= 1;
  out.scales[3] = float_of(bits_of(out.scales[3]) + 1);
  wrong = verify<block_recipe, bf16>(in, out.view());
  CHECK((wrong.found && wrong.in_scale && wrong.row == 1 && wrong.col == 1 && wrong.got == wrong.expected + 1));
  out.scales[3] = float_of(bits_of(out.scales[3]) - 1);
  CHECK_FALSE(verify<block_recipe, bf16>(in, out.view()).found);
  CHECK(verify<block_recipe, bf16>(in, out.view(), 1e3f).found);
}

template <class Call> static std::string refusal(Call call) {
  try {
    call();
  } catch (const precondition_error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST_CASE("wrong shapes and floors are refused with both numbers, before any write") {
  std::vector<float> weights(130 * 130);
  const auto in = dense<const float>(weights.data(), 130, 130);
  pair_of<block_recipe> good(130, 130);
  auto out = good.view();
  out.scales.rows = 3;
  CHECK(refusal([&] { quantize<block_recipe, float>(in, out); }) ==
        "scales: rows differ from the block grid: got 3, expected 2");
  out = good.view();
  out.codes.cols = 129;
  CHECK(refusal([&] { quantize<block_recipe, float>(in, out); }) ==
        "codes: columns differ from the weights: got 129, expected 130");
  out = good.view();
  out.codes.batch = 2;
  CHECK(refusal([&] { quantize<block_recipe, float>(in, out); }) ==
        "codes: batch differs from the weights: got 2, expected 1");
  for (const float floor : {-1.0f, float_of(f32::infinity), float_of(f32::nan)})
    CHECK(refusal([&] { quantize<block_recipe, float>(in, good.view(), floor); }).find("amax floor") == 0);
  auto huge = in;
  huge.rows = i64{1} << 62;
  CHECK(refusal([&] { quantize<block_recipe, float>(huge, good.view()); }).find("weights") == 0);
  auto none = in;
  none.data = nullptr;
  CHECK(refusal([&] { quantize<block_recipe, float>(none, good.view()); }).find("weights") == 0);
  for (const u8 code : good.codes) CHECK(code == 0xA5);
}

TEST_CASE("a floor of -0 is a floor of 0, in bytes and in the grid id") {
  CHECK(grid_id<block_recipe>(-0.0f) == grid_id<block_recipe>(0.0f));
  const std::vector<float> zeros(32);
  pair_of<block_recipe> out(1, 32);
  quantize<block_recipe, float>(dense(zeros.data(), 1, 32), out.view(), -0.0f);
  CHECK(out.scales[0] == 1.0f);
}

TEST_CASE("FP32 weights through BF16 have the bytes of BF16 weights, and another grid id") {
  using direct = presets::te_block::recipe;
  using through = with_numerics<direct, numerics{.f32_through_bf16 = true}>;
  CHECK(grid_id<direct>() != grid_id<through>());
  auto weights = noise<float>(140 * 140, 21);
  weights[5] = float_of(1);  // a subnormal, whose largest multiplier is BF16's
  std::vector<bf16> narrow(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) narrow[i] = to_bf16(weights[i]);
  pair_of<through> a(140, 140);
  pair_of<direct> b(140, 140), c(140, 140);
  quantize<through, float>(dense<const float>(weights.data(), 140, 140), a.view());
  quantize<direct, bf16>(dense<const bf16>(narrow.data(), 140, 140), b.view());
  quantize<direct, float>(dense<const float>(weights.data(), 140, 140), c.view());
  CHECK((a.codes == b.codes && a.scales == b.scales));
  CHECK(a.codes != c.codes);
}

// ---- all the way at compile time
struct compiled {
  u8 codes[4] = {};
  float scales[1] = {};
};
static constexpr compiled at_compile_time() {
  const float weights[4] = {448.0f, -1.0f, 0.3f, -0.0f};
  compiled out;
  quantize<presets::te_block::recipe, float>(dense(weights, 2, 2), {dense(out.codes, 2, 2), dense(out.scales, 1, 1)});
  return out;
}
static constexpr bool comes_back() {
  compiled out = at_compile_time();
  const float weights[4] = {448.0f, -1.0f, 0.3f, -0.0f};
  const pair_view<presets::te_block::recipe> pair{dense(out.codes, 2, 2), dense(out.scales, 1, 1)};
  float back[4] = {};
  dequantize<presets::te_block::recipe, float>(pair, dense(back, 2, 2));
  return back[0] == 448.0f && back[1] == -1.0f &&
         !verify<presets::te_block::recipe, float>(dense(weights, 2, 2), pair).found;
}
TEST_CASE("quantize, dequantize and verify are constant expressions") {
  static_assert(at_compile_time().codes[0] == 0x7E && at_compile_time().codes[1] == 0xB8);
  static_assert(at_compile_time().codes[2] == 0x2A && at_compile_time().codes[3] == 0x80);
  static_assert(at_compile_time().scales[0] == 1.0f);
  static_assert(comes_back());
}
