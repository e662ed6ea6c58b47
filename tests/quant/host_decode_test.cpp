// SPDX-License-Identifier: Apache-2.0
// Every body's weights against the definition's, bit for bit: all codes, scales of every exponent, ragged and strided.
#include <doctest/doctest.h>

#include <cstring>
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <random>
#include <vector>

using namespace fp8wire;

namespace {

template <class Stored> Stored draw_scale(u32 bits, i64 index) {
  if constexpr (std::same_as<Stored, e8m0>) return {static_cast<u8>(index % 3 == 0 ? bits : 120 + bits % 9)};
  else if constexpr (std::same_as<Stored, bf16>) return to_bf16(float_of(bits));
  else return float_of(index % 3 == 0 ? bits : ((bits & 0x03FFFFFF) + 0x3A000000));  // any bits, or what weights have
}

template <class Recipe, class Out> void compare(i64 batch, i64 rows, i64 cols, i64 gap, i64 offset, unsigned seed,
                                                bool all_codes) {
  std::mt19937 random(seed);
  const i64 stride = cols + gap;
  std::vector<u8> codes(static_cast<std::size_t>(batch * rows * stride + 128));
  for (u8& code : codes) {
    code = static_cast<u8>(random());
    if (!all_codes && (code & 0x7F) == 0x7F) code = 0x7E;
    if (!all_codes && seed % 2 == 0 && (code & 0x78) == 0) code &= 0x80;  // long runs without subnormal codes
  }
  const i64 scale_rows_ = scale_rows<typename Recipe::block>(rows),
            scale_cols_ = scale_cols<typename Recipe::block>(cols);
  std::vector<stored_t<Recipe>> scales(static_cast<std::size_t>(batch * scale_rows_ * scale_cols_));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = draw_scale<stored_t<Recipe>>(static_cast<u32>(random()), static_cast<i64>(i));
  const const_pair_view<Recipe> pair = {{codes.data() + offset, rows, cols, stride, batch, rows * stride, 1},
                                        dense<const stored_t<Recipe>>(scales.data(), scale_rows_, scale_cols_, batch)};
  const i64 height = detail::block_extent(Recipe::block::rows, rows),
            width = detail::block_extent(Recipe::block::cols, cols);
  std::vector<Out> expected(static_cast<std::size_t>(batch * rows * stride + 64), from_float<Out>(3.0f)), got;
  matrix_view<Out> view = {nullptr, rows, cols, stride, batch, rows * stride, 1};
  view.data = expected.data() + offset;
  for (i64 b = 0; b < batch; ++b)
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col)
        view(b, row, col) = from_float<Out>(
            reference::decode<Recipe>(pair.codes(b, row, col), pair.scales(b, row / height, col / width)));
  for (const isa body : {isa::scalar, isa::portable, isa::avx2, isa::avx512}) {
    if (!can_run(body)) continue;
    got.assign(expected.size(), from_float<Out>(3.0f));
    view.data = got.data() + offset;
    dequantize<Recipe, Out>(pair, view, serial{}, body);
    CAPTURE(static_cast<int>(body));
    CAPTURE(rows);
    CAPTURE(cols);
    CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(Out)) == 0);
  }
}

template <class Recipe, class Out> void shapes() {
  for (const bool all_codes : {true, false}) {
    compare<Recipe, Out>(1, 1, 32, 0, 0, 1, all_codes);
    compare<Recipe, Out>(2, 130, 320, 0, 0, 2, all_codes);
    compare<Recipe, Out>(1, 5, 8416, 7, 3, 3, all_codes);
    compare<Recipe, Out>(1, 64, 16384, 0, 0, 4, all_codes);
    if (!std::same_as<stored_t<Recipe>, e8m0>) {
      compare<Recipe, Out>(1, 1, 1, 0, 0, 5, all_codes);
      compare<Recipe, Out>(2, 129, 157, 3, 1, 6, all_codes);
    }
  }
}

}  // namespace

TEST_CASE("block scales to BF16, FP32 and FP16") {
  shapes<presets::te_block::recipe, bf16>();
  shapes<presets::te_block::recipe, float>();
  shapes<presets::te_block::recipe, fp16>();
}

TEST_CASE("MXFP8 to BF16 and FP32") {
  shapes<presets::te_mxfp8::recipe, bf16>();
  shapes<presets::te_mxfp8::recipe, float>();
}

TEST_CASE("rows, tensors and other elements") {
  using rule = rules::te_fp32;
  shapes<recipe<e4m3, block<1, 128>, rule>, bf16>();
  shapes<recipe<e4m3, block<1, whole>, rule>, bf16>();
  shapes<recipe<e4m3, block<whole, whole>, rule>, float>();
  shapes<recipe<e5m2, block<128, 128>, rule>, bf16>();
  shapes<recipe<e4m3, block<3, 5>, rule>, bf16>();
}

TEST_CASE("all exponents and many mantissas of the scale, all codes, one row") {
  using recipe = presets::te_block::recipe;
  std::vector<u8> codes(128 * 256);
  std::vector<float> scales(256);
  for (u32 mantissa = 0; mantissa < 40; ++mantissa) {
    for (u32 i = 0; i < 256; ++i) scales[i] = float_of(i << 23 | (mantissa * 0x34567u & f32::mantissa_mask));
    for (u32 half = 0; half < 2; ++half) {
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<u8>(i % 127 + 128 * half);
      std::vector<bf16> expected(codes.size()), got(codes.size());
      for (std::size_t i = 0; i < codes.size(); ++i)
        expected[i] = to_bf16(reference::decode<recipe>(codes[i], scales[i / 128]));
      for (const isa body : {isa::portable, isa::avx2, isa::avx512}) {
        if (!can_run(body)) continue;
        dequantize<recipe, bf16>(
            {dense<const u8>(codes.data(), 1, 128 * 256), dense<const float>(scales.data(), 1, 256)},
            dense(got.data(), 1, 128 * 256), serial{}, body);
        CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(bf16)) == 0);
      }
    }
  }
}
