// SPDX-License-Identifier: Apache-2.0
/// Which arithmetic a rule's `apply` is, so that vector code can do it; found from the rule, never assumed.
#ifndef FP8WIRE_QUANT_HOST_ELEMENT_OP_HPP
#define FP8WIRE_QUANT_HOST_ELEMENT_OP_HPP
#include <fp8wire/quant/rules/microscaling.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Speaks of finite elements and of operands that are positive and finite.
enum class element_op : u8 {
  other,             // unknown: the definition serves it, element by element
  multiply,          // x * operand, rounded once
  multiply_flushed,  // the same, with subnormal elements counting as zero
  divide,            // x / operand, rounded once
  divide_in_bf16     // the quotient rounded once more, to BF16
};

/// A function as a type: with -fsanitize=undefined g++ compares pointers to functions at run time only.
template <float (*)(float, float) noexcept> struct function {};

/// A rule that uses the very function of rules::multiplies or its siblings, a user's rule as well, does that
/// arithmetic; one that hides it with an `apply` of its own does not.
template <class Rule> constexpr element_op element_op_of() noexcept {
  using apply = function<&Rule::apply>;
  if constexpr (requires { requires std::same_as<std::remove_cvref_t<decltype(Rule::policy)>, mx_policy>; }) {
    using operand = mx_policy::operand;
    if (Rule::policy.element == operand::normal_divisor || Rule::policy.element == operand::divisor)
      return element_op::divide;
    return Rule::policy.element == operand::flush ? element_op::multiply_flushed : element_op::multiply;
  } else {
    if (std::same_as<apply, function<&rules::multiplies::apply>>) return element_op::multiply;
    if (std::same_as<apply, function<&rules::divides::apply>>) return element_op::divide;
    if (std::same_as<apply, function<&rules::divides_in_bf16::apply>>) return element_op::divide_in_bf16;
    return element_op::other;
  }
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
