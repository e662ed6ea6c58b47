// SPDX-License-Identifier: Apache-2.0
/// Elements in a kernel: which of them a conversion instruction may make, and the same bytes where it may not.
///
/// The bytes are those of quant/reference.hpp. An instruction is used only where it gives them: `mul.rn` is IEEE's
/// product, and the saturating conversions are exact for what the formats of CUDA's kind say of finite values.
#ifndef FP8WIRE_QUANT_KERNEL_ELEMENT_HPP
#define FP8WIRE_QUANT_KERNEL_ELEMENT_HPP
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/quant/host/element_op.hpp>
#include <fp8wire/quant/kernel/context.hpp>
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Whether a saturating conversion (cvt.rn.satfinite) gives Element's code of every finite value.
template <class Element>
inline constexpr bool converts_finite = same_for_finite<Element, e4m3> || same_for_finite<Element, e5m2>;
/// The same of Inf and NaN too, so that nobody has to look for them.
template <class Element> inline constexpr bool converts_all = false;
template <class Element>
  requires converts_finite<Element>
inline constexpr bool converts_all<Element> = Element::policy.infinity == cast_policy::overflow::saturate &&
                                              Element::policy.nan == cast_policy::nan_to::positive_nan &&
                                              !Element::policy.quiet_nan_is_lowest;

/// Whether a rule's element is one IEEE product. A variable, since device code may not call the function that finds
/// out.
template <class Rule> inline constexpr bool is_product =
    fp8wire::detail::element_op_of<Rule>() == fp8wire::detail::element_op::multiply;

/// The FP32 value with which a weight enters the recipe.
template <class Recipe, class In> FP8WIRE_HD constexpr float entering(In weight) noexcept {
  float value = reference::load<Recipe>(weight);
  if constexpr (!Recipe::num.keep_negative_zero) {
    if (bits_of(value) == f32::sign_mask) value = 0.0f;
  }
  return value;
}

/// Whether no element of a block can leave the finite numbers, or whether that makes no difference to its code.
template <class Recipe> FP8WIRE_HD constexpr bool stays_finite(u32 amax_bits, float operand) noexcept {
  if constexpr (converts_all<typename Recipe::element>) return true;
  else return f32::is_finite(bits_of(Recipe::rule::apply(float_of(amax_bits), operand)));
}

/// The code of any weight, NaN and Inf too.
template <class Recipe, class Context, class In> FP8WIRE_BODY u8 any_code(Context&, In weight, float operand) {
  using element = typename Recipe::element;
  const float value = Recipe::rule::apply(entering<Recipe>(weight), operand);
  if constexpr (converts_all<element>) return static_cast<u8>(Context::template convert2<element>(value, value));
  else return element::encode(value);
}

/// The codes of two values that entered the recipe, the first in the low byte.
/// Expects, unless converts_all<element>: both are finite and stay so under the rule.
template <class Recipe, class Context>
FP8WIRE_BODY u32 codes2(Context&, float low, float high, float low_operand, float high_operand) {
  using element = typename Recipe::element;
  using rule = typename Recipe::rule;
  float a, b;
  if constexpr (is_product<rule>) {
    Context::multiply2(low, high, low_operand, high_operand, a, b);
  } else {
    a = rule::apply(low, low_operand);
    b = rule::apply(high, high_operand);
  }
  if constexpr (converts_finite<element>) return Context::template convert2<element>(a, b);
  else return element::encode(a) | static_cast<u32>(element::encode(b)) << 8;
}

}  // namespace kernel
FP8WIRE_ABI_END
#endif
