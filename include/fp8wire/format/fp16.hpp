// SPDX-License-Identifier: Apache-2.0
/// FP16 (IEEE binary16) as bits, with its exact widening to FP32 and the narrowing to nearest even.
#ifndef FP8WIRE_FORMAT_FP16_HPP
#define FP8WIRE_FORMAT_FP16_HPP
#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

/// One sign, five exponent and ten mantissa bits.
struct fp16 {
  u16 bits = 0;
  static constexpr dtype stored_as = dtype::f16;
  static constexpr u32 largest = 0x477FE000u;  // 65504 as FP32 bits
  bool operator==(const fp16&) const = default;
};

/// Exact; subnormals become normal FP32 numbers; NaN keeps sign and payload.
FP8WIRE_HD constexpr float to_float(fp16 value) noexcept {
  const u32 sign = static_cast<u32>(value.bits & 0x8000) << 16;
  const u32 magnitude = value.bits & 0x7FFF;
  if (magnitude >= 0x7C00) return float_of(sign | f32::infinity | ((magnitude & 0x3FF) << 13));
  if (magnitude >= 0x0400) return float_of(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return float_of(sign);
  const int top = 63 - leading_zeros(magnitude);
  return float_of(sign | (static_cast<u32>(top + 103) << 23) | ((magnitude << (23 - top)) & f32::mantissa_mask));
}

/// Rounds to nearest even; 65520 and beyond become Inf; NaN is 7E00 with the sign kept.
FP8WIRE_HD constexpr fp16 to_fp16(float value) noexcept {
  const u32 bits = bits_of(value);
  const u32 sign = (bits >> 16) & 0x8000;
  const u32 magnitude = f32::magnitude(bits);
  if (f32::is_nan(bits)) return {static_cast<u16>(sign | 0x7E00)};
  if (magnitude >= 0x47800000u) return {static_cast<u16>(sign | 0x7C00)};
  if (magnitude >= 0x38800000u)  // a carry past the largest lands on 7C00, which is Inf
    return {static_cast<u16>(sign | shift_right_even(magnitude - (112u << 23), 13))};
  const int shift = 126 - static_cast<int>(magnitude >> 23);
  if (shift > 25) return {static_cast<u16>(sign)};
  return {static_cast<u16>(sign | shift_right_even((magnitude & f32::mantissa_mask) | 0x800000, shift))};
}

FP8WIRE_ABI_END
#endif
