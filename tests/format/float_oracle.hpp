// SPDX-License-Identifier: Apache-2.0
/// Small floating-point formats in double arithmetic, where every value and every midpoint is exact: what the codecs of
/// the library are compared with. Shares nothing with the library.
#ifndef FP8WIRE_TESTS_FORMAT_FLOAT_ORACLE_HPP
#define FP8WIRE_TESTS_FORMAT_FLOAT_ORACLE_HPP
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace oracle {

enum class nans { ieee, all_ones, minus_zero };

inline float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

struct format {
  int exponent_bits, mantissa_bits, bias;
  nans kind;

  int largest_code() const {
    const int all = (1 << (exponent_bits + mantissa_bits)) - 1;
    if (kind == nans::ieee) return all - (1 << mantissa_bits);
    return kind == nans::all_ones ? all - 1 : all;
  }
  /// Of a magnitude code, also of the one after the largest as if the format went on.
  double value(int code) const {
    const int field = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    return field == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                      : std::ldexp((1 << mantissa_bits) + mantissa, field - bias - mantissa_bits);
  }
  /// FP32 bits from which on a magnitude has at least code `code`, ties to even (or away).
  std::uint32_t first_bits(int code, bool ties_away = false) const {
    const double middle = (value(code - 1) + value(code)) / 2;  // exact, and an FP32 number
    const std::uint32_t bits = as_bits(static_cast<float>(middle));
    return code % 2 == 0 || ties_away ? bits : bits + 1;  // a tie goes to the even code
  }
  /// The code of a magnitude that is not NaN; largest_code() + 1 stands for overflow.
  int code(double magnitude, bool ties_away = false) const {
    int low = 0, high = largest_code() + 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      const double tie = (value(middle - 1) + value(middle)) / 2;
      if (magnitude > tie || (magnitude == tie && (middle % 2 == 0 || ties_away))) low = middle;
      else high = middle - 1;
    }
    return low;
  }
};

inline constexpr format e4m3{4, 3, 7, nans::all_ones}, e5m2{5, 2, 15, nans::ieee};
inline constexpr format e4m3fnuz{4, 3, 8, nans::minus_zero}, e5m2fnuz{5, 2, 16, nans::minus_zero};

/// The code of any FP32 when everything saturates and NaN is `nan`.
inline std::uint8_t saturating(const format& f, std::uint32_t bits, std::uint8_t nan) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return nan;
  int code = magnitude == 0x7F800000u ? f.largest_code() + 1 : f.code(static_cast<double>(as_float(magnitude)));
  if (code > f.largest_code()) code = f.largest_code();
  if (f.kind == nans::minus_zero && code == 0) return 0;
  return static_cast<std::uint8_t>(code | static_cast<int>(bits >> 24 & 0x80));
}

}  // namespace oracle
#endif
