// SPDX-License-Identifier: Apache-2.0
// A delta's codes and scales are those of quantize, and its bits say exactly which codes differ.
#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>

#include "host_tensors.hpp"

using namespace fp8wire;
using namespace host_tensors;

namespace {

template <class Recipe, class In> void compare(shape size, pattern kind, bool in_place) {
  const tensor<Recipe, In> given(size, kind, 21, 0);
  const auto expected = given.by_definition();
  const i64 stride = size.cols + size.out_gap, bits = bitmap_cols(size.cols);
  std::mt19937 random(9);
  std::vector<u8> before = expected.codes;
  for (u8& code : before)
    if (random() % 50 == 0) code = static_cast<u8>(code + 1 + random() % 255);
  for (const isa body : bodies()) {
    std::vector<u8> changed(static_cast<std::size_t>(size.batch * size.rows * bits), u8{0xEE});
    std::vector<u8> old = before;
    const auto got = given.run([&](const pair_view<Recipe>& pair) {
      matrix_view<const u8> previous = pair.codes;
      previous.data = old.data() + size.out_offset;
      pair_view<Recipe> target = pair;
      if (in_place) target.codes.data = old.data() + size.out_offset;
      return quantize_delta<Recipe, In>(given.view(), previous, target,
                                        dense(changed.data(), size.rows, bits, size.batch), 0, serial{}, body);
    });
    CAPTURE(static_cast<int>(body));
    CAPTURE(size.cols);
    if (!in_place) CHECK(same_bytes(got.codes, expected.codes));
    CHECK(same_bytes(got.scales, expected.scales));
    CHECK(got.answer.first_nonfinite == expected.answer.first_nonfinite);
    i64 wrong = 0;
    for (i64 row = 0; row < size.batch * size.rows; ++row) {
      for (i64 col = 0; col < 8 * bits; ++col) {
        const auto at = static_cast<std::size_t>(size.out_offset + row * stride + col);
        const bool differs = col < size.cols && before[at] != expected.codes[at];
        const bool said = (changed[static_cast<std::size_t>(row * bits + col / 8)] >> (col % 8) & 1) != 0;
        wrong += differs != said ? 1 : 0;
        if (in_place && col < size.cols) wrong += old[at] != expected.codes[at] ? 1 : 0;
      }
    }
    CHECK(wrong == 0);
  }
}

template <class Recipe, class In> void shapes() {
  for (const bool in_place : {false, true}) {
    for (const pattern kind : {pattern::gaussian, pattern::hostile, pattern::zeros}) {
      compare<Recipe, In>({1, 1, 32}, kind, in_place);
      compare<Recipe, In>({2, 130, 320, 5, 7, 0, 3}, kind, in_place);
      compare<Recipe, In>({1, 3, 8512}, kind, in_place);
    }
  }
}

}  // namespace

TEST_CASE("blocks, rows, microscaling and whole tensors") {
  shapes<presets::te_block::recipe, bf16>();
  shapes<presets::te_block::recipe, float>();
  shapes<presets::te_mxfp8::recipe, bf16>();
  shapes<recipe<e4m3, block<1, whole>, rules::te_fp32>, bf16>();
  shapes<recipe<e4m3, block<3, 5>, rules::te_fp32>, bf16>();
}

TEST_CASE("ragged bitmaps end in zeros") {
  for (const i64 cols : {1, 7, 8, 9, 31, 33, 127, 129})
    compare<presets::te_block::recipe, bf16>({2, 5, cols}, pattern::gaussian, false);
}

TEST_CASE("a shape that disagrees is refused before any write") {
  using recipe = presets::te_block::recipe;
  std::vector<bf16> in(64);
  std::vector<u8> codes(64, u8{1}), before(64), bits(8);
  std::vector<float> scales(1);
  const pair_view<recipe> out = {dense(codes.data(), 8, 8), dense(scales.data(), 1, 1)};
  CHECK_THROWS_AS((quantize_delta<recipe, bf16>(dense<const bf16>(in.data(), 8, 8),
                                                dense<const u8>(before.data(), 8, 7), out, dense(bits.data(), 8, 1))),
                  precondition_error);
  CHECK_THROWS_AS((quantize_delta<recipe, bf16>(dense<const bf16>(in.data(), 8, 8),
                                                dense<const u8>(before.data(), 8, 8), out, dense(bits.data(), 4, 2))),
                  precondition_error);
  CHECK(codes[0] == 1);
}
