// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/format/e4m3.hpp>
#include <fp8wire/format/e5m2.hpp>

#include "float_oracle.hpp"

// The code of a magnitude is a staircase: between two boundaries, which doubles hold exactly, it is constant. Walking
// all 2^31 magnitudes of both signs against the staircase is the whole domain.
template <class Format> static std::uint64_t differences(const oracle::format& f) {
  std::uint64_t wrong = 0;
  std::uint32_t from = 0;
  for (int code = 0; code <= f.largest_code(); ++code) {
    const std::uint32_t to = code == f.largest_code() ? 0x7F800001u : f.first_bits(code + 1);
    const auto positive = static_cast<std::uint8_t>(code), negative = static_cast<std::uint8_t>(code | 0x80);
    for (std::uint32_t bits = from; bits < to; ++bits) {
      wrong += Format::encode(oracle::as_float(bits)) != positive;
      wrong += Format::encode(oracle::as_float(bits | 0x80000000u)) != negative;
    }
    from = to;
  }
  for (std::uint32_t bits = 0x7F800001u; bits < 0x80000000u; ++bits) {
    wrong += Format::encode(oracle::as_float(bits)) != 0x7F;
    wrong += Format::encode(oracle::as_float(bits | 0x80000000u)) != 0x7F;
  }
  return wrong;
}

TEST_CASE("E4M3 codes of all 2^32 floats are the nearest ones, ties to even, saturating") {
  CHECK(differences<fp8wire::e4m3>(oracle::e4m3) == 0);
}
TEST_CASE("E5M2 codes of all 2^32 floats are the nearest ones, ties to even, saturating") {
  CHECK(differences<fp8wire::e5m2>(oracle::e5m2) == 0);
}
