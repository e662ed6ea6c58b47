// SPDX-License-Identifier: Apache-2.0
/// IEEE-754 multiply and divide whose bits no compiler flag and no FTZ/DAZ setting can change.
///
/// `a * b` is not that: -ffast-math turns divisions into reciprocals, contraction fuses a product with a following sum,
/// nvcc's -use_fast_math approximates, and a process with FTZ or DAZ set loses subnormals. Scale rules are written with
/// these two functions, so that a rule reads like its source and its bytes stay put.
#ifndef FP8WIRE_CORE_IEEE_HPP
#define FP8WIRE_CORE_IEEE_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace ieee {
namespace detail {

struct unpacked {
  u64 significand;  // bit 23 set unless zero
  int exponent;  // value = significand * 2^exponent
};

FP8WIRE_HD constexpr unpacked unpack(u32 bits) noexcept {
  const u32 field = (bits >> 23) & 0xFF;
  const u64 mantissa = bits & 0x7FFFFF;
  if (field != 0) return {mantissa | 0x800000, static_cast<int>(field) - 150};
  if (mantissa == 0) return {0, 0};
  const int shift = leading_zeros(mantissa) - 40;
  return {mantissa << shift, -149 - shift};
}

/// significand * 2^exponent rounded once to FP32; `significand` carries its sticky bit in bit 0.
FP8WIRE_HD constexpr u32 pack(u32 sign, u64 significand, int exponent) noexcept {
  if (significand == 0) return sign;
  const int top = 63 - leading_zeros(significand) + exponent;  // floor(log2(value))
  if (top > 127) return sign | f32::infinity;
  const int unit = top < -126 ? -149 : top - 23;  // exponent of the last kept bit
  const int shift = unit - exponent;
  if (shift <= 0) significand <<= -shift;
  else significand = shift > 63 ? 0 : shift_right_even(significand, shift);
  // A carry out of the significand steps into the exponent field, also from subnormal to normal, from largest to Inf.
  const u32 field = top < -126 ? 0 : static_cast<u32>(top + 126);
  return sign | ((field << 23) + static_cast<u32>(significand));
}

FP8WIRE_HD constexpr u32 multiply(u32 a, u32 b) noexcept {
  const u32 sign = (a ^ b) & f32::sign_mask;
  if (f32::is_nan(a) || f32::is_nan(b)) return f32::nan;
  if (f32::is_inf(a) || f32::is_inf(b)) return f32::is_zero(a) || f32::is_zero(b) ? f32::nan : sign | f32::infinity;
  const unpacked x = unpack(a), y = unpack(b);
  return pack(sign, x.significand * y.significand, x.exponent + y.exponent);
}

FP8WIRE_HD constexpr u32 divide(u32 a, u32 b) noexcept {
  const u32 sign = (a ^ b) & f32::sign_mask;
  if (f32::is_nan(a) || f32::is_nan(b)) return f32::nan;
  if (f32::is_inf(a)) return f32::is_inf(b) ? f32::nan : sign | f32::infinity;
  if (f32::is_inf(b)) return sign;
  if (f32::is_zero(b)) return f32::is_zero(a) ? f32::nan : sign | f32::infinity;
  if (f32::is_zero(a)) return sign;
  const unpacked x = unpack(a), y = unpack(b);
  const u64 numerator = x.significand << 40;
  const u64 quotient = numerator / y.significand;
  const u64 sticky = numerator % y.significand != 0 ? 1 : 0;
  return pack(sign, quotient << 1 | sticky, x.exponent - 40 - y.exponent - 1);
}

// The hardware's answer is the IEEE answer whenever operands and result are normal numbers, whatever FTZ and DAZ say;
// everything else takes the integer path above. The assembler keeps the compiler's flags out of it. A GPU has no such
// state: its .rn instructions without .ftz are IEEE's for all operands, but for the bits of a NaN.
#if defined(__CUDA_ARCH__)
inline constexpr bool hardware_is_exact = true;
__device__ inline float hardware_multiply(float a, float b) noexcept {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}
__device__ inline float hardware_divide(float a, float b) noexcept {
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
#else
inline constexpr bool hardware_is_exact = false;
#if defined(__x86_64__)
inline float hardware_multiply(float a, float b) noexcept {
  asm("mulss %1, %0" : "+x"(a) : "x"(b));
  return a;
}
inline float hardware_divide(float a, float b) noexcept {
  asm("divss %1, %0" : "+x"(a) : "x"(b));
  return a;
}
#elif defined(__aarch64__)
inline float hardware_multiply(float a, float b) noexcept {
  asm("fmul %s0, %s0, %s1" : "+w"(a) : "w"(b));
  return a;
}
inline float hardware_divide(float a, float b) noexcept {
  asm("fdiv %s0, %s0, %s1" : "+w"(a) : "w"(b));
  return a;
}
#else
inline float hardware_multiply(float, float) noexcept { return 0; }  // a zero sends every caller to the integer path
inline float hardware_divide(float, float) noexcept { return 0; }
#endif
#endif

}  // namespace detail

/// a * b rounded once to nearest even. NaN or Inf * 0: the positive quiet NaN 7FC00000, on every machine.
/// Exact: equal to IEEE-754 binary32 for all operands; assumes the rounding mode is to-nearest.
FP8WIRE_HD constexpr float mul(float a, float b) noexcept {
  if (!__builtin_is_constant_evaluated()) {
    const float product = detail::hardware_multiply(a, b);
    if (detail::hardware_is_exact) return f32::is_nan(bits_of(product)) ? float_of(f32::nan) : product;
    if (f32::is_normal(bits_of(product)) && f32::is_normal(bits_of(a)) && f32::is_normal(bits_of(b))) return product;
  }
  return float_of(detail::multiply(bits_of(a), bits_of(b)));
}

/// a / b rounded once to nearest even; x/0 is Inf, 0/0 and Inf/Inf the positive quiet NaN.
/// Exact: equal to IEEE-754 binary32 for all operands; assumes the rounding mode is to-nearest.
FP8WIRE_HD constexpr float div(float a, float b) noexcept {
  if (!__builtin_is_constant_evaluated()) {
    const float quotient = detail::hardware_divide(a, b);
    if (detail::hardware_is_exact) return f32::is_nan(bits_of(quotient)) ? float_of(f32::nan) : quotient;
    if (f32::is_normal(bits_of(quotient)) && f32::is_normal(bits_of(a)) && f32::is_normal(bits_of(b))) return quotient;
  }
  return float_of(detail::divide(bits_of(a), bits_of(b)));
}

}  // namespace ieee
FP8WIRE_ABI_END
#endif
