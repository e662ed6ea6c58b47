// SPDX-License-Identifier: Apache-2.0
/// E8M0: a power of two in one byte, 2^(byte - 127); 255 is NaN; there is no zero.
#ifndef FP8WIRE_FORMAT_E8M0_HPP
#define FP8WIRE_FORMAT_E8M0_HPP
#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

/// A scale byte; multiply a code's value by it to get the weight back.
struct e8m0 {
  u8 bits = 0;
  static constexpr dtype stored_as = dtype::f8_e8m0;
  static constexpr u8 nan_code = 0xFF, largest_code = 0xFE;
  bool operator==(const e8m0&) const = default;
};

/// 2^(byte - 127): byte 0 is the subnormal 2^-127 (never zero), 255 the quiet NaN.
FP8WIRE_HD constexpr float to_float(e8m0 scale) noexcept {
  if (scale.bits == 0) return float_of(0x00400000u);
  if (scale.bits == e8m0::nan_code) return float_of(f32::nan);
  return float_of(static_cast<u32>(scale.bits) << 23);
}

/// 2^(127 - byte), the factor that elements are multiplied by: byte 254 gives the subnormal 2^-127, 255 the quiet NaN.
/// Source: Transformer Engine common/util/ptx.cuh:309 at d0067d0.
FP8WIRE_HD constexpr float reciprocal(e8m0 scale) noexcept {
  if (scale.bits == e8m0::nan_code) return float_of(f32::nan);
  return to_float(e8m0{static_cast<u8>(254 - scale.bits)});
}

/// How an encoder of E8M0 rounds: up and down are exact bounds, `nearest` sends 1.5 * 2^k up, `nearest_even` to the
/// even byte.
enum class e8m0_rounding : u8 { up, down, nearest, nearest_even };

/// The E8M0 byte of |value|; zero and everything below 2^-127 give 00, NaN gives FF; sign ignored.
/// Saturate: Inf and overflow give FE; otherwise FF. Rounding down never overflows.
/// Exact, all 2^32 inputs: up and down as `__nv_cvt_float_to_e8m0`; nearest without saturation as torch.float8_e8m0fnu.
template <e8m0_rounding Rounding, bool Saturate = true> FP8WIRE_HD constexpr e8m0 to_e8m0(float value) noexcept {
  constexpr e8m0 overflow{Saturate ? e8m0::largest_code : e8m0::nan_code};
  const u32 magnitude = f32::magnitude(bits_of(value));
  if (magnitude > f32::infinity) return {e8m0::nan_code};
  if (magnitude == f32::infinity) return overflow;
  u32 exponent = magnitude >> 23;
  const u32 mantissa = magnitude & f32::mantissa_mask;
  // Byte 0 stands for 2^-127, which is mantissa 0x400000: below the normal numbers it is the lower neighbour of 2^-126.
  const u32 half = exponent == 0 ? 0x600000u : 0x400000u;
  bool raise = false;
  if (Rounding == e8m0_rounding::up) raise = mantissa > (exponent == 0 ? 0x400000u : 0u);
  // torch's guard bit of a subnormal is 2^-127 itself, so that everything above it goes up.
  if (Rounding == e8m0_rounding::nearest) raise = exponent == 0 ? mantissa > 0x400000u : mantissa >= half;
  if (Rounding == e8m0_rounding::nearest_even) raise = mantissa > half || (mantissa == half && (exponent & 1) != 0);
  exponent += raise ? 1 : 0;
  return exponent > e8m0::largest_code ? overflow : e8m0{static_cast<u8>(exponent)};
}

/// The smallest power of two that is not below |value|; sign ignored.
/// Zero: 00. Inf and beyond 2^127: FE. NaN: FF. (0, 2^-127]: 00.
/// Exact: `cvt.rp.satfinite.ue8m0x2.f32` as emulated by cuda_fp8.hpp of CUDA 13.0, all 2^32 inputs.
FP8WIRE_HD constexpr e8m0 e8m0_round_up(float value) noexcept { return to_e8m0<e8m0_rounding::up>(value); }

FP8WIRE_ABI_END
#endif
