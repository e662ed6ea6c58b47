// SPDX-License-Identifier: Apache-2.0
// FP32 arithmetic of every vector body over all 2^32 floats, and over every 61st for other operands and elements,
// against the element's own encode.
#include <doctest/doctest.h>

#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/format/fnuz.hpp>
#include <fp8wire/quant/quantize.hpp>
#include <algorithm>
#include <vector>

using namespace fp8wire;

namespace {

/// One operand whatever the weights, so that the element alone decides the code.
template <class Arithmetic, u32 OperandBits> struct constant : Arithmetic {
  using stored = float;
  static constexpr std::string_view id = "test-constant";
  static constexpr bool nan_poisons_amax = true;
  static constexpr scale_pair<float> make(float, limits) noexcept {
    return {float_of(OperandBits), float_of(OperandBits)};
  }
};

/// Rows of 128 floats, `step` bit patterns apart, by all bodies.
template <class Element, class Rule> void compare(u32 step) {
  using recipe = fp8wire::recipe<Element, block<1, 128>, Rule>;
  constexpr i64 cols = 128, rows = 8192;
  std::vector<float> weights(rows * cols), scales(rows);
  std::vector<u8> codes(rows * cols), expected(rows * cols);
  i64 wrong = 0;
  for (u64 first = 0; first < u64{1} << 32; first += u64{rows * cols} * step) {
    for (i64 i = 0; i < rows * cols; ++i) {
      const u32 bits = static_cast<u32>(first + static_cast<u64>(i) * step);
      // Blocks with NaN or Inf are the definition's.
      const float weight = float_of(f32::is_finite(bits) ? bits : bits & f32::sign_mask);
      const auto at = static_cast<std::size_t>(i);
      weights[at] = weight;
      expected[at] = Element::encode(Rule::apply(weight, Rule::make(1, {}).operand));
    }
    for (const isa body : {isa::portable, isa::avx2, isa::avx512}) {
      if (!can_run(body)) continue;
      std::fill(codes.begin(), codes.end(), u8{0x55});
      quantize<recipe, float>(dense<const float>(weights.data(), rows, cols),
                              {dense(codes.data(), rows, cols), dense(scales.data(), rows, 1)}, 0.0f, serial{}, body);
      for (std::size_t i = 0; i < codes.size(); ++i) wrong += codes[i] != expected[i] ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

constexpr u32 one = 0x3F800000u, odd_factor = 0x40B9E1A3u, tiny = 0x23012345u, huge = 0x56ABCDEFu;

}  // namespace

TEST_CASE("E4M3 of every float") { compare<e4m3, constant<rules::multiplies, one>>(1); }

TEST_CASE("other operands, divisions, other elements") {
  compare<e4m3, constant<rules::multiplies, odd_factor>>(61);
  compare<e4m3, constant<rules::multiplies, tiny>>(61);
  compare<e4m3, constant<rules::multiplies, huge>>(61);
  compare<e4m3, constant<rules::divides, odd_factor>>(61);
  compare<e4m3, constant<rules::divides, tiny>>(61);
  compare<e4m3, constant<rules::divides, huge>>(61);
  compare<e5m2, constant<rules::multiplies, one>>(61);
  compare<e5m2, constant<rules::divides, odd_factor>>(61);
  compare<e4m3fnuz, constant<rules::multiplies, one>>(61);
  compare<e4m3fnuz, constant<rules::divides, odd_factor>>(61);
}
