// SPDX-License-Identifier: Apache-2.0
// A rule, an element and a block of a user's own meet the concepts and work like the built-in ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/grid_difference.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/verify.hpp>

#include "tensors.hpp"

using namespace fp8wire;

/// No minifloat: sixteen steps of 1/8 on each side, truncated.
struct fixed_point {
  static constexpr std::string_view id = "test-fixed";
  static constexpr dtype stored_as = dtype::uint8;
  static constexpr float max = 1.875f;
  static constexpr u8 encode(float value) noexcept {
    const u32 bits = bits_of(value), magnitude = f32::magnitude(bits);
    if (f32::is_nan(bits)) return 0xFF;
    u8 steps = 0;
    while (steps < 15 && bits_of(static_cast<float>(steps + 1) / 8) <= magnitude) ++steps;
    return static_cast<u8>(steps | (bits >> 31 << 7));
  }
  static constexpr float decode(u8 code) noexcept {
    if (is_nan(code)) return float_of(f32::nan);
    return float_of(bits_of(static_cast<float>(code & 15) / 8) | static_cast<u32>(code & 0x80) << 24);
  }
  static constexpr bool is_nan(u8 code) noexcept { return code == 0xFF; }
};
/// Adds one to the scale: neither a multiplication nor a division that a fast path could know.
struct odd_rule {
  using stored = float;
  static constexpr std::string_view id = "test-odd";
  static constexpr bool nan_poisons_amax = true;
  static constexpr scale_pair<float> make(float amax, limits bounds) noexcept {
    const float scale = f32::is_finite(bits_of(amax)) ? ieee::div(amax, bounds.element_max) + 1 : 1.0f;
    return {scale, scale};
  }
  static constexpr float apply(float element, float operand) noexcept { return ieee::div(element, operand); }
};
struct odd_block {
  static constexpr int rows = 3, cols = 5;
};
using odd = recipe<fixed_point, odd_block, odd_rule>;

TEST_CASE("a recipe of a user's own types quantizes, verifies, comes back and has an id") {
  static_assert(any_recipe<odd> && scale_rule<odd_rule> && element_format<fixed_point>);
  std::vector<float> weights(10 * 11);
  std::mt19937 random(1);
  for (float& weight : weights) weight = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256;
  const auto in = dense<const float>(weights.data(), 10, 11);
  test::pair_of<odd> out(10, 11);
  CHECK((out.view().scales.rows == 4 && out.view().scales.cols == 3));
  CHECK(quantize<odd, float>(in, out.view()).finite());
  for (i64 r = 0; r < 4; ++r)
    for (i64 c = 0; c < 3; ++c) {
      float amax = 0;
      for (i64 row = 3 * r; row < 3 * r + 3 && row < 10; ++row)
        for (i64 col = 5 * c; col < 5 * c + 5 && col < 11; ++col) amax = std::max(amax, std::fabs(in(row, col)));
      CHECK(out.view().scales(r, c) == amax / 1.875f + 1);
    }
  for (i64 row = 0; row < 10; ++row)
    for (i64 col = 0; col < 11; ++col)
      CHECK(out.view().codes(row, col) == fixed_point::encode(in(row, col) / out.view().scales(row / 3, col / 5)));
  CHECK_FALSE(verify<odd, float>(in, out.view()).found);
  std::vector<float> back(weights.size());
  dequantize<odd, float>(out.view(), dense(back.data(), 10, 11));
  for (std::size_t i = 0; i < back.size(); ++i) CHECK(std::fabs(back[i] - weights[i]) < 0.25f * 5);
  CHECK(grid_id<odd>() != grid_id<recipe<e4m3, odd_block, odd_rule>>());
  CHECK(grid_difference<odd, recipe<fixed_point, odd_block, odd_rule, numerics{.amax_floor = 8}>, float>(in)
            .scale_blocks == 12);
}

TEST_CASE("a built-in rule meets a user's element, and a user's rule a built-in one") {
  using one = recipe<fixed_point, block<1, 32>, rules::te_mx>;
  using two = recipe<e5m2, block<64, 64>, rules::nan_poisons<odd_rule>>;
  const std::vector<float> weights(64, 1.875f);
  auto a = test::quantized<one, float>(weights, 2, 32);
  CHECK((a.scales[0].bits == 127 && a.codes[0] == 15));
  auto b = test::quantized<two, float>(weights, 2, 32);
  CHECK(b.scales[0] == 1.875f / 57344.0f + 1);
}
