// SPDX-License-Identifier: Apache-2.0
/// E8M0 block scales: how the byte follows from the amax and what an element is multiplied by, field by field.
#ifndef FP8WIRE_QUANT_RULES_MICROSCALING_HPP
#define FP8WIRE_QUANT_RULES_MICROSCALING_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN

/// Everything in which E8M0 rules of the tools differ. p is the exponent of the largest element (8 for E4M3, 15 for
/// E5M2).
struct mx_policy {
  enum class exponent : u8 {
    product_up,  // RN(amax * RN(1/max)) rounded up: Transformer Engine, cuBLAS, FlashInfer
    quotient_up,  // RN(amax / max) rounded up: torchao rceil, SkyRL, ModelOpt
    floor,  // exponent of amax - p: OCP MX v1.0, torchao floor
    ceil,  // the same, one more unless amax is a power of two: torchao ceil
    even,  // half a unit of the element's mantissa is added first: torchao even
    even_exclusive,  // the same less one FP32 unit, so that the tie stays below: FBGEMM
    quarter,  // a quarter is added to the mantissa first, so that 1.75 goes up: compressed-tensors
    unbiased_floor  // exponent of amax, without p: vLLM's and NeMo-RL's torch fallback of early 2026
  };
  enum class infinite : u8 { byte_254, byte_255, next_exponent };  // next_exponent: as if Inf were 2^128
  enum class operand : u8 {
    reciprocal,  // x * 2^(127 - byte), exact for every byte; byte 255: NaN
    normal_divisor,  // x / 2^(byte - 127), the divisor at least 2^-126 and Inf for byte 255: torchao
    divisor,  // the same without that floor: compressed-tensors
    one_for_byte_0,  // x * 2^(127 - byte), but x * 1 where the byte is 0: torchao rceil
    nan_for_nan,  // reciprocal, and NaN wherever amax is NaN, whatever the byte
    flush  // FTZ arithmetic: subnormal products, inputs and multipliers are zero: FlashInfer
  };

  exponent byte = exponent::product_up;
  infinite infinity = infinite::byte_254;
  u8 nan_byte = 255;  // of a NaN amax; reached only where NaN poisons it
  u8 smallest_byte = 0;
  bool nan_poisons = false;
  bool flush_product = false;  // a subnormal amax * RN(1/max) counts as zero
  operand element = operand::reciprocal;
};

namespace detail {

constexpr short_text mx_id(mx_policy policy) noexcept {
  constexpr std::string_view bytes[] = {"up(amax*rcp(max))", "up(amax/max)", "floor-p", "ceil-p", "even-p",
                                        "even<-p",           "1.75-p",       "floor"};
  constexpr std::string_view infinities[] = {"254", "255", "next"};
  constexpr std::string_view elements[] = {"x*2^(127-b)",         "x/max(2^(b-127),2^-126)",  "x/2^(b-127)",
                                           "b=0:x*1,x*2^(127-b)", "amax=nan:nan,x*2^(127-b)", "ftz(x*2^(127-b))"};
  short_text text;
  text << "b=" << bytes[static_cast<int>(policy.byte)] << ";inf=" << infinities[static_cast<int>(policy.infinity)]
       << ";nan=" << i64{policy.nan_byte} << ";b>=" << i64{policy.smallest_byte} << (policy.flush_product ? ";ftz" : "")
       << ";" << elements[static_cast<int>(policy.element)];
  return text;
}
template <mx_policy Policy> inline constexpr short_text mx_id_of = mx_id(Policy);

/// The value with subnormals of either sign replaced by a zero of that sign.
FP8WIRE_HD constexpr float flushed(float value) noexcept {
  const u32 bits = bits_of(value);
  return (bits & f32::exponent_mask) == 0 ? float_of(bits & f32::sign_mask) : value;
}

}  // namespace detail

namespace rules {

/// An E8M0 rule. Zero: `smallest_byte` (its elements are zeros). Multiply a code's value by 2^(byte - 127).
/// Exact: the bytes of the tool that a preset names (quant/presets). Threads: no state.
template <mx_policy Policy> struct mx {
  using stored = e8m0;
  static constexpr std::string_view id = detail::mx_id_of<Policy>.view();
  static constexpr bool nan_poisons_amax = Policy.nan_poisons;
  static constexpr mx_policy policy = Policy;
  static_assert(Policy.smallest_byte < 255, "the smallest byte of an E8M0 rule is 0..254: 255 is NaN");

  FP8WIRE_HD static constexpr e8m0 byte(float amax, limits bounds) noexcept {
    const u32 bits = bits_of(amax);
    if (f32::is_nan(bits)) return {Policy.nan_byte};
    if (f32::is_inf(bits) && Policy.infinity != mx_policy::infinite::next_exponent)
      return {static_cast<u8>(Policy.infinity == mx_policy::infinite::byte_254 ? 254 : 255)};
    int exponent = 0;
    if constexpr (Policy.byte == mx_policy::exponent::product_up || Policy.byte == mx_policy::exponent::quotient_up) {
      float descale = Policy.byte == mx_policy::exponent::product_up
                          ? ieee::mul(amax, bounds.element_max_reciprocal)
                          : ieee::div(amax, bounds.element_max);
      if (Policy.flush_product) descale = detail::flushed(descale);
      exponent = e8m0_round_up(descale).bits;
    } else {
      u32 rounded = bits;
      if (Policy.byte == mx_policy::exponent::even) rounded += 1u << (22 - bounds.element_mantissa_bits);
      if (Policy.byte == mx_policy::exponent::even_exclusive)
        rounded += (1u << (22 - bounds.element_mantissa_bits)) - 1;
      if (Policy.byte == mx_policy::exponent::quarter) rounded += 1u << 21;
      exponent = static_cast<int>(rounded >> 23);
      if (Policy.byte == mx_policy::exponent::ceil && (bits & f32::mantissa_mask) != 0) ++exponent;
      if (Policy.byte != mx_policy::exponent::unbiased_floor) exponent -= bounds.element_exponent();
    }
    return {static_cast<u8>(exponent < Policy.smallest_byte ? Policy.smallest_byte : exponent)};
  }

  FP8WIRE_HD static constexpr scale_pair<e8m0> make(float amax, limits bounds) noexcept {
    const e8m0 scale = byte(amax, bounds);
    switch (Policy.element) {
      case mx_policy::operand::normal_divisor:
      case mx_policy::operand::divisor: {
        if (scale.bits == e8m0::nan_code) return {scale, float_of(f32::infinity)};
        if (scale.bits == 0 && Policy.element == mx_policy::operand::normal_divisor)
          return {scale, float_of(f32::smallest_normal)};
        return {scale, to_float(scale)};
      }
      case mx_policy::operand::one_for_byte_0: return {scale, scale.bits == 0 ? 1.0f : reciprocal(scale)};
      case mx_policy::operand::nan_for_nan: return {scale, f32::is_nan(bits_of(amax)) ? amax : reciprocal(scale)};
      case mx_policy::operand::flush: return {scale, scale.bits == 0 ? 0.0f : detail::flushed(reciprocal(scale))};
      default: return {scale, reciprocal(scale)};
    }
  }

  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept {
    if (Policy.element == mx_policy::operand::normal_divisor || Policy.element == mx_policy::operand::divisor)
      return ieee::div(element, operand);
    if (Policy.element == mx_policy::operand::flush) return ieee::mul(detail::flushed(element), operand);
    return ieee::mul(element, operand);
  }
};

}  // namespace rules
FP8WIRE_ABI_END
#endif
