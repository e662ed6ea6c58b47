// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include <fp8wire/format/e8m0.hpp>

#include "float_oracle.hpp"

// Bounds in double: 2^(byte - 127) is exact there. `first(byte)` is the first FP32 magnitude that gets at least that
// byte.
template <class First, class Encode>
static std::uint64_t differences(First first, int last, std::uint8_t infinity, std::uint8_t overflow, Encode encode) {
  std::uint64_t wrong = 0;
  std::uint32_t from = 0;
  for (int byte = 0; byte <= last; ++byte) {
    const std::uint32_t to = byte == last ? 0x7F800000u : first(byte + 1);
    const auto expected = static_cast<std::uint8_t>(byte > 254 ? overflow : byte);
    for (std::uint32_t bits = from; bits < to; ++bits) {
      wrong += encode(oracle::as_float(bits)) != expected;
      wrong += encode(oracle::as_float(bits | 0x80000000u)) != expected;
    }
    from = to;
  }
  wrong += encode(oracle::as_float(0x7F800000u)) != infinity;
  for (std::uint32_t bits = 0x7F800001u; bits < 0x80000000u; ++bits) wrong += encode(oracle::as_float(bits)) != 0xFF;
  return wrong;
}
static std::uint32_t bits_of_power(int exponent) {
  return oracle::as_bits(static_cast<float>(std::ldexp(1.0, exponent)));
}
static std::uint32_t above(int byte) { return bits_of_power(byte - 1 - 127) + 1; }

TEST_CASE("rounding up gives the smallest power of two that is not below, over all 2^32 floats") {
  CHECK(differences(above, 255, 0xFE, 0xFE, [](float x) { return fp8wire::e8m0_round_up(x).bits; }) == 0);
}
TEST_CASE("rounding up without saturation turns what is beyond 2^127 into NaN, over all 2^32 floats") {
  CHECK(differences(above, 255, 0xFF, 0xFF,
                    [](float x) { return fp8wire::to_e8m0<fp8wire::e8m0_rounding::up, false>(x).bits; }) == 0);
}
TEST_CASE("rounding down drops the mantissa, over all 2^32 floats") {
  CHECK(differences([](int byte) { return bits_of_power(byte - 127); }, 254, 0xFE, 0xFE,
                    [](float x) { return fp8wire::to_e8m0<fp8wire::e8m0_rounding::down>(x).bits; }) == 0);
}
