// SPDX-License-Identifier: Apache-2.0
/// Integer names and the bit tests every decision about a float is made with.
///
/// A float is only ever looked at through its bits: `x != x` and `isnan` answer wrongly under a user's -ffast-math, and
/// comparisons with subnormals answer wrongly where a process flushes them (docs/numerics.md).
#ifndef FP8WIRE_CORE_BITS_HPP
#define FP8WIRE_CORE_BITS_HPP
#include <cstddef>
#include <cstdint>

#include <fp8wire/config.hpp>

FP8WIRE_ABI_BEGIN

using i64 = std::int64_t;
using u64 = std::uint64_t;
using u32 = std::uint32_t;
using u16 = std::uint16_t;
using u8 = std::uint8_t;
using i32 = std::int32_t;

// __builtin_bit_cast, since std::bit_cast is not callable in device code without --expt-relaxed-constexpr.
FP8WIRE_HD constexpr u32 bits_of(float value) noexcept { return __builtin_bit_cast(u32, value); }
FP8WIRE_HD constexpr float float_of(u32 bits) noexcept { return __builtin_bit_cast(float, bits); }

namespace f32 {
inline constexpr u32 sign_mask = 0x80000000u, magnitude_mask = 0x7FFFFFFFu;
inline constexpr u32 exponent_mask = 0x7F800000u, mantissa_mask = 0x007FFFFFu;
inline constexpr u32 infinity = 0x7F800000u, nan = 0x7FC00000u, one = 0x3F800000u;
inline constexpr u32 largest = 0x7F7FFFFFu, smallest_normal = 0x00800000u;

FP8WIRE_HD constexpr u32 magnitude(u32 bits) noexcept { return bits & 0x7FFFFFFFu; }
FP8WIRE_HD constexpr bool is_nan(u32 bits) noexcept { return magnitude(bits) > 0x7F800000u; }
FP8WIRE_HD constexpr bool is_inf(u32 bits) noexcept { return magnitude(bits) == 0x7F800000u; }
FP8WIRE_HD constexpr bool is_finite(u32 bits) noexcept { return magnitude(bits) < 0x7F800000u; }
FP8WIRE_HD constexpr bool is_zero(u32 bits) noexcept { return magnitude(bits) == 0; }
/// Neither zero, subnormal, infinite nor NaN.
FP8WIRE_HD constexpr bool is_normal(u32 bits) noexcept { return magnitude(bits) - 0x00800000u < 0x7F000000u; }
/// A power of two that FP32 holds as a normal number, either sign.
FP8WIRE_HD constexpr bool is_normal_power_of_two(u32 bits) noexcept {
  return is_normal(bits) && (bits & 0x007FFFFFu) == 0;
}
}  // namespace f32

/// a * b of non-negative factors into `product`; false where it does not fit 63 bits.
FP8WIRE_HD constexpr bool multiply_checked(i64 a, i64 b, i64& product) noexcept {
  constexpr i64 largest = 0x7FFFFFFFFFFFFFFF;
  if (a < 0 || b < 0 || (b != 0 && a > largest / b)) return false;
  product = a * b;
  return true;
}

/// ceil(count / size) for count >= 0, size > 0; cannot overflow.
FP8WIRE_HD constexpr i64 ceil_div(i64 count, i64 size) noexcept { return count / size + (count % size != 0 ? 1 : 0); }

/// The number of leading zero bits of a non-zero value, and 64 for zero.
FP8WIRE_HD constexpr int leading_zeros(u64 value) noexcept {
  int zeros = 0;
  for (int step = 32; step > 0; step /= 2) {
    if ((value >> (64 - step)) == 0) {
      zeros += step;
      value <<= step;
    }
  }
  return value == 0 ? 64 : zeros;
}

/// value / 2^shift rounded to nearest, ties to even; shift 0..63.
FP8WIRE_HD constexpr u64 shift_right_even(u64 value, int shift) noexcept {
  if (shift == 0) return value;
  const u64 half = u64{1} << (shift - 1);
  const u64 rest = value & ((half << 1) - 1);
  const u64 kept = value >> shift;
  return kept + ((rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0);
}

FP8WIRE_ABI_END
#endif
