// SPDX-License-Identifier: Apache-2.0
/// BF16 as bits, with its exact widening to FP32 and the narrowing to nearest even.
#ifndef FP8WIRE_FORMAT_BF16_HPP
#define FP8WIRE_FORMAT_BF16_HPP
#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

/// The upper half of an FP32.
struct bf16 {
  u16 bits = 0;
  static constexpr dtype stored_as = dtype::bf16;
  static constexpr u32 largest = 0x7F7F0000u;  // as FP32 bits
  bool operator==(const bf16&) const = default;
};

/// Exact, NaN payloads included.
FP8WIRE_HD constexpr float to_float(bf16 value) noexcept { return float_of(static_cast<u32>(value.bits) << 16); }

/// Rounds to nearest even; beyond the largest becomes Inf; NaN stays NaN, quieted, sign kept.
/// Exact: `__float2bfloat16_rn` except that NVIDIA writes every NaN as 7FFF; torch writes 7FC0 | sign.
FP8WIRE_HD constexpr bf16 to_bf16(float value) noexcept {
  const u32 bits = bits_of(value);
  if (f32::is_nan(bits)) return {static_cast<u16>(((bits >> 16) & 0x8000) | 0x7FC0)};
  return {static_cast<u16>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

FP8WIRE_ABI_END
#endif
