// SPDX-License-Identifier: Apache-2.0
/// What a scale rule is: one total function from a block's amax to its scale, and how an element uses it.
#ifndef FP8WIRE_QUANT_RULES_RULE_HPP
#define FP8WIRE_QUANT_RULES_RULE_HPP
#include <concepts>
#include <string_view>

#include <fp8wire/core/ieee.hpp>
#include <fp8wire/format/e8m0.hpp>
#include <fp8wire/format/fp32.hpp>

FP8WIRE_ABI_BEGIN

/// What is stored beside the codes (multiply a code's value by it), and what an element is combined with.
template <class Stored> struct scale_pair {
  Stored stored;
  float operand;
};

/// What a rule may know of the element format and the input type: their largest finite values, the element's mantissa.
struct limits {
  float element_max, input_max;
  int element_mantissa_bits = 3;
  float element_max_reciprocal = ieee::div(1.0f, element_max);  // rounded once; a constant where the others are
  /// Exponent of the largest element: 8 for E4M3, 15 for E5M2.
  FP8WIRE_HD constexpr int element_exponent() const noexcept {
    return static_cast<int>(bits_of(element_max) >> 23) - 127;
  }
};

/// A type whose stored scales the library knows how to read back: FP32, BF16 or E8M0.
template <class Stored>
concept stored_scale = std::same_as<Stored, float> || std::same_as<Stored, bf16> || std::same_as<Stored, e8m0>;

/// A scale rule. `make` and `apply` are total: amax may be 0, Inf or NaN, and every operand may meet every element.
template <class Rule>
concept scale_rule =
    stored_scale<typename Rule::stored> && requires(float amax, limits bounds, float element, float operand) {
      { Rule::make(amax, bounds) } noexcept -> std::same_as<scale_pair<typename Rule::stored>>;
      { Rule::apply(element, operand) } noexcept -> std::same_as<float>;
      { Rule::nan_poisons_amax } -> std::convertible_to<bool>;  // torch.amax: true; fmaxf, Transformer Engine: false
      { Rule::id } -> std::convertible_to<std::string_view>;    // stable text, hashed into the grid id
    };

namespace rules {

/// The ways an element uses its operand; a rule derives from one of them, and fast paths ask which.
struct multiplies {
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::mul(element, operand); }
};
struct divides {
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept { return ieee::div(element, operand); }
};
/// The quotient is rounded to BF16 before the cast, as tensors of that type make it: two roundings, and the bytes show
/// it.
struct divides_in_bf16 {
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept {
    return to_float(to_bf16(ieee::div(element, operand)));
  }
};

/// The same rule behind torch.amax: one NaN makes its block's amax NaN.
template <scale_rule Rule> struct nan_poisons : Rule {
  static constexpr bool nan_poisons_amax = true;
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
