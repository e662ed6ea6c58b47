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

/// The largest finite values of the element format and of the input type.
struct limits {
  float element_max, input_max;
};

/// A type whose stored scales the library knows how to read back: FP32, BF16 or E8M0.
template <class Stored>
concept stored_scale = std::same_as<Stored, float> || std::same_as<Stored, bf16> || std::same_as<Stored, e8m0>;

/// A scale rule. `make` and `apply` are total: amax may be 0, Inf or NaN, and every operand may meet every element.
template <class Rule>
concept scale_rule = stored_scale<typename Rule::stored> && requires(float amax, limits bounds, float element, float operand) {
  { Rule::make(amax, bounds) } noexcept -> std::same_as<scale_pair<typename Rule::stored>>;
  { Rule::apply(element, operand) } noexcept -> std::same_as<float>;
  { Rule::nan_poisons_amax } -> std::convertible_to<bool>;  // torch.amax: true; fmaxf, Transformer Engine: false
  { Rule::id } -> std::convertible_to<std::string_view>;    // stable text, hashed into the grid id
};

/// What a rule may promise about `apply` in a member `static constexpr element_op op`, so that vector code can serve it.
/// It speaks of finite elements, operands that are positive and finite, and the code that comes out (a clamp that
/// saturation repeats breaks no promise). A rule without the member is served by the scalar path, with the same bytes.
enum class element_op : u8 {
  multiply,    // x * operand, rounded once to FP32
  divide,      // x / operand, rounded once to FP32
  homogeneous  // odd, monotone, and apply(2x) == 2 apply(x) while nothing leaves the normal numbers
};

template <class Rule>
concept promises_op = requires { { Rule::op } -> std::convertible_to<element_op>; };

FP8WIRE_ABI_END
#endif
