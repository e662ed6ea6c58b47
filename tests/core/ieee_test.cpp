// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include <fp8wire/core/ieee.hpp>

using namespace fp8wire;

// The machine's own float arithmetic, which is IEEE in a test process: no FTZ, rounding to nearest. Volatile keeps the
// compiler out. NaN has one name here.
static u32 canonical(float value) { return f32::is_nan(bits_of(value)) ? f32::nan : bits_of(value); }
static u32 machine_mul(u32 a, u32 b) {
  volatile float x = float_of(a), y = float_of(b);
  return canonical(x * y);
}
static u32 machine_div(u32 a, u32 b) {
  volatile float x = float_of(a), y = float_of(b);
  return canonical(x / y);
}
static void check(u32 a, u32 b) {
  const u32 product = machine_mul(a, b), quotient = machine_div(a, b);
  if (ieee::detail::multiply(a, b) != product) FAIL_CHECK("integer " << a << " * " << b);
  if (ieee::detail::divide(a, b) != quotient) FAIL_CHECK("integer " << a << " / " << b);
  if (bits_of(ieee::mul(float_of(a), float_of(b))) != product) FAIL_CHECK(a << " * " << b);
  if (bits_of(ieee::div(float_of(a), float_of(b))) != quotient) FAIL_CHECK(a << " / " << b);
}

TEST_CASE("multiply and divide agree with IEEE-754 for every pair of special operands") {
  const u32 magnitudes[] = {0,          1,          2,          0x3FFFFF,   0x400000,   0x400001,   0x7FFFFF,
                            0x800000,   0x800001,   0xFFFFFF,   0x1000000,  0x3F7FFFFF, 0x3F800000, 0x3F800001,
                            0x3FFFFFFF, 0x40000000, 0x43E00000, 0x3B124925, 0x7E800000, 0x7EFFFFFF, 0x7F000000,
                            0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x00000003, 0x34000000, 0x33FFFFFF,
                            0x00200000, 0x03E00000, 0x03E00001, 0x04600001};
  for (const u32 a : magnitudes)
    for (const u32 b : magnitudes)
      for (const u32 signs : {0u, 1u, 2u, 3u}) check(a | (signs & 1) << 31, b | (signs & 2) << 30);
}

TEST_CASE("multiply and divide agree with IEEE-754 for random operands of every exponent") {
  std::mt19937 random(11);
  for (int i = 0; i < 1500000; ++i) check(static_cast<u32>(random()), static_cast<u32>(random()));
}

TEST_CASE("results around the subnormal boundary round once") {
  std::mt19937 random(13);
  for (int i = 0; i < 500000; ++i) {
    const u32 a = (static_cast<u32>(random()) & 0x007FFFFFu) | (static_cast<u32>(random() % 40 + 1) << 23);
    const u32 product_partner =
        (static_cast<u32>(random()) & 0x007FFFFFu) | (static_cast<u32>(random() % 30 + 90) << 23);
    check(a, product_partner);
    check(a, (static_cast<u32>(random()) & 0x007FFFFFu) | (static_cast<u32>(random() % 30 + 125) << 23));
    check(static_cast<u32>(random()) & 0x007FFFFFu, product_partner);
  }
}

TEST_CASE("multiply and divide are constant expressions with the same bits") {
  static_assert(bits_of(ieee::div(448.0f, 3.0f)) == 0x43155555u);
  static_assert(bits_of(ieee::div(1.0f, 448.0f)) == 0x3B124925u);
  static_assert(bits_of(ieee::mul(float_of(0x00400000u), 2.0f)) == 0x00800000u);
  static_assert(bits_of(ieee::div(1.0f, float_of(0x7F000000u))) == 0x00400000u);
  CHECK(true);
}
