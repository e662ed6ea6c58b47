// SPDX-License-Identifier: Apache-2.0
/// Eight-bit floating-point formats from their parameters: encode rounds to nearest, decode is exact.
#ifndef FP8WIRE_FORMAT_MINIFLOAT_HPP
#define FP8WIRE_FORMAT_MINIFLOAT_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/dtype.hpp>
#include <fp8wire/format/cast_policy.hpp>

FP8WIRE_ABI_BEGIN

/// Which codes are not numbers.
enum class specials : u8 {
  ieee,  // top exponent: Inf, then NaN (E5M2)
  fn,    // only the all-ones code of each sign is NaN, no Inf (E4M3)
  fnuz   // only 0x80 is NaN: no Inf and no -0 (AMD's FNUZ forms)
};

/// The numbers that define a format.
struct minifloat_shape {
  int exponent_bits, mantissa_bits, bias;
  specials kind;
};

/// An element format: `encode` and `decode` are total, constexpr and the same on host and device.
/// NaN, Inf and overflow: as Policy says; -0 keeps its sign (fnuz: becomes 00); subnormals are kept; underflow keeps
/// the sign.
/// Exact: for the default policy equal to `__nv_cvt_float_to_fp8(x, __NV_SATFINITE, ...)` of CUDA 13.0 on all 2^32
/// inputs.
/// Source: OCP OFP8 v1.0; cuda_fp8.hpp. Threads: no state.
template <minifloat_shape Shape, cast_policy Policy = cast_policy{}> struct minifloat {
  static constexpr minifloat_shape shape = Shape;
  static constexpr cast_policy policy = Policy;

  static constexpr int dropped_bits = 23 - Shape.mantissa_bits;
  static constexpr u32 top_exponent = (1u << Shape.exponent_bits) - 1;
  /// Code of the largest finite magnitude.
  static constexpr u8 max_code = Shape.kind == specials::ieee
                                     ? static_cast<u8>((top_exponent << Shape.mantissa_bits) - 1)
                                 : Shape.kind == specials::fn ? u8{0x7E}
                                                              : u8{0x7F};
  static constexpr u8 nan_code = Shape.kind == specials::fnuz ? u8{0x80}
                                 : Shape.kind == specials::ieee && Policy.quiet_nan_is_lowest
                                     ? static_cast<u8>(max_code + 1 + (1u << (Shape.mantissa_bits - 1)))
                                     : u8{0x7F};
  static constexpr u8 infinity_code = Shape.kind == specials::ieee ? static_cast<u8>(max_code + 1) : nan_code;

  /// The code of `value`, rounded once.
  FP8WIRE_HD static constexpr u8 encode(float value) noexcept {
    const u32 bits = bits_of(value);
    const u32 magnitude = f32::magnitude(bits);
    const u32 sign = (bits >> 24) & 0x80;
    if (f32::is_nan(bits)) return nan(sign);
    if (f32::is_inf(bits))
      return Policy.infinity == cast_policy::overflow::saturate ? signed_code(max_code, sign) : special(sign);
    const u32 code = round(magnitude);
    if (code > max_code)
      return Policy.beyond_largest == cast_policy::overflow::saturate ? signed_code(max_code, sign) : special(sign);
    return signed_code(static_cast<u8>(code), sign);
  }

  /// The value of `code`; NaN codes give the quiet NaN with the code's sign (fnuz: the positive one).
  FP8WIRE_HD static constexpr float decode(u8 code) noexcept {
    const u32 sign = static_cast<u32>(code & 0x80) << 24;
    const u32 magnitude = code & 0x7F;
    if (is_nan(code)) return float_of(Shape.kind == specials::fnuz ? f32::nan : sign | f32::nan);
    if (Shape.kind == specials::ieee && magnitude == infinity_code) return float_of(sign | f32::infinity);
    const u32 field = magnitude >> Shape.mantissa_bits;
    if (field != 0) return float_of(sign | ((magnitude << dropped_bits) + (static_cast<u32>(127 - Shape.bias) << 23)));
    if (magnitude == 0) return float_of(sign);
    // Subnormal: every one of them is a normal FP32 number; put its leading one where FP32 hides it.
    const int top = 63 - leading_zeros(magnitude);
    const u32 exponent = static_cast<u32>(top - Shape.mantissa_bits + 1 - Shape.bias + 127);
    return float_of(sign | (exponent << 23) | ((magnitude << (23 - top)) & f32::mantissa_mask));
  }

  FP8WIRE_HD static constexpr bool is_nan(u8 code) noexcept {
    if (Shape.kind == specials::fnuz) return code == 0x80;
    if (Shape.kind == specials::fn) return (code & 0x7F) == 0x7F;
    return (code & 0x7F) > infinity_code;
  }

  /// The largest finite value.
  static constexpr float max = decode(max_code);

 private:
  FP8WIRE_HD static constexpr u32 shifted(u64 significand, int shift) noexcept {
    if (Policy.round == cast_policy::rounding::nearest_even)
      return static_cast<u32>(shift_right_even(significand, shift));
    return static_cast<u32>((significand + (u64{1} << (shift - 1))) >> shift);
  }
  FP8WIRE_HD static constexpr u32 round(u32 magnitude) noexcept {
    constexpr int smallest_exponent = 1 - Shape.bias;  // of a normal number
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    if (exponent >= smallest_exponent)
      return shifted(magnitude - (static_cast<u32>(127 - Shape.bias) << 23), dropped_bits);
    const int shift = dropped_bits + smallest_exponent - exponent;
    if (shift > 25) return 0;  // below half of the smallest subnormal, FP32 subnormals among them
    return shifted((magnitude & f32::mantissa_mask) | 0x800000, shift);
  }
  FP8WIRE_HD static constexpr u8 signed_code(u8 code, u32 sign) noexcept {
    if (Shape.kind == specials::fnuz && code == 0) return 0;
    return static_cast<u8>(code | sign);
  }
  FP8WIRE_HD static constexpr u8 nan(u32 sign) noexcept {
    switch (Policy.nan) {
      case cast_policy::nan_to::signed_nan:
        return Shape.kind == specials::fnuz ? nan_code : static_cast<u8>(nan_code | sign);
      case cast_policy::nan_to::positive_max: return max_code;
      case cast_policy::nan_to::negative_max: return static_cast<u8>(max_code | 0x80);
      case cast_policy::nan_to::signed_max: return static_cast<u8>(max_code | sign);
      case cast_policy::nan_to::zero: return 0;
      default: return nan_code;
    }
  }
  FP8WIRE_HD static constexpr u8 special(u32 sign) noexcept {
    return Shape.kind == specials::fnuz ? nan_code : static_cast<u8>(infinity_code | sign);
  }
};

/// Whether two formats give every finite value the same code; a fast path written for one then serves the other
/// wherever a block holds neither NaN nor Inf and no product of it overflows FP32.
template <class One, class Other> inline constexpr bool same_for_finite = false;
template <class One, class Other>
  requires requires { One::shape.kind, Other::shape.kind, One::policy.nan, Other::policy.nan; }
inline constexpr bool same_for_finite<One, Other> =
    One::shape.exponent_bits == Other::shape.exponent_bits && One::shape.mantissa_bits == Other::shape.mantissa_bits &&
    One::shape.bias == Other::shape.bias && One::shape.kind == Other::shape.kind &&
    One::policy.round == Other::policy.round && One::policy.beyond_largest == Other::policy.beyond_largest;

FP8WIRE_ABI_END
#endif
