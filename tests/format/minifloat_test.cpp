// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fp8wire/format/fnuz.hpp>
#include <fp8wire/format/fp32.hpp>

#include "float_oracle.hpp"

using namespace fp8wire;

template <class Format> static void check_decode(const oracle::format& f) {
  for (int code = 0; code < 256; ++code) {
    CAPTURE(code);
    const auto byte = static_cast<u8>(code);
    const int magnitude = code & 0x7F;
    const bool zero_is_nan = f.kind == oracle::nans::minus_zero && code == 0x80;
    if (zero_is_nan || magnitude > f.largest_code()) {
      const bool infinity = f.kind == oracle::nans::ieee && magnitude == f.largest_code() + 1;
      CHECK(Format::is_nan(byte) == !infinity);
      const u32 sign = zero_is_nan ? 0u : static_cast<u32>(code & 0x80) << 24;
      CHECK(bits_of(Format::decode(byte)) == (sign | (infinity ? 0x7F800000u : 0x7FC00000u)));
      continue;
    }
    CHECK_FALSE(Format::is_nan(byte));
    const double value = f.value(magnitude);
    CHECK(bits_of(Format::decode(byte)) == oracle::as_bits(static_cast<float>(code & 0x80 ? -value : value)));
    CHECK(Format::encode(Format::decode(byte)) == byte);
  }
  CHECK(static_cast<double>(Format::max) == f.value(f.largest_code()));
}

TEST_CASE("every code of every format decodes to its exact value and encodes back to itself") {
  check_decode<e4m3>(oracle::e4m3);
  check_decode<e5m2>(oracle::e5m2);
  check_decode<e4m3fnuz>(oracle::e4m3fnuz);
  check_decode<e5m2fnuz>(oracle::e5m2fnuz);
}

template <class Format> static void check_encode_16_bit(const oracle::format& f, u8 nan) {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const float from_bf16 = to_float(bf16{static_cast<u16>(bits)}), from_fp16 = to_float(fp16{static_cast<u16>(bits)});
    if (Format::encode(from_bf16) != oracle::saturating(f, oracle::as_bits(from_bf16), nan))
      FAIL_CHECK("bf16 " << bits);
    if (Format::encode(from_fp16) != oracle::saturating(f, oracle::as_bits(from_fp16), nan))
      FAIL_CHECK("fp16 " << bits);
  }
}

TEST_CASE("codes of all BF16 and FP16 numbers are the nearest ones in every format") {
  check_encode_16_bit<e4m3>(oracle::e4m3, 0x7F);
  check_encode_16_bit<e5m2>(oracle::e5m2, 0x7F);
  check_encode_16_bit<e4m3fnuz>(oracle::e4m3fnuz, 0x80);
  check_encode_16_bit<e5m2fnuz>(oracle::e5m2fnuz, 0x80);
}

TEST_CASE("floats next to every boundary round to the right side in every format") {
  const auto check = []<class Format>(const oracle::format& f, Format) {
    for (int code = 1; code <= f.largest_code() + 1; ++code) {
      const u32 first = f.first_bits(code);
      for (u32 bits = first - 2; bits <= first + 2; ++bits) {
        if (bits == first - 1 && first == 0) continue;
        for (const u32 sign : {0u, 0x80000000u})
          CHECK(Format::encode(oracle::as_float(bits | sign)) ==
                oracle::saturating(f, bits | sign, f.kind == oracle::nans::minus_zero ? 0x80 : 0x7F));
      }
    }
  };
  check(oracle::e4m3, e4m3{});
  check(oracle::e5m2, e5m2{});
  check(oracle::e4m3fnuz, e4m3fnuz{});
  check(oracle::e5m2fnuz, e5m2fnuz{});
}

TEST_CASE("ties away from zero differ from ties to even at the midpoints and nowhere else") {
  using away = e4m3_as<casts::ties_away>;
  for (int code = 1; code <= oracle::e4m3.largest_code(); ++code) {
    const u32 tie = oracle::e4m3.first_bits(code, true);
    CHECK(away::encode(oracle::as_float(tie)) == code);
    CHECK(away::encode(oracle::as_float(tie - 1)) == code - 1);
    CHECK(away::encode(oracle::as_float(tie + 1)) == e4m3::encode(oracle::as_float(tie + 1)));
    CHECK(away::encode(oracle::as_float(tie | 0x80000000u)) == (code | 0x80));
  }
}

TEST_CASE("the table of converters: every policy gives the codes of its tool") {
  std::ifstream file("vectors/element_codes.txt");
  REQUIRE(file);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    std::istringstream words(line);
    u32 bits = 0;
    words >> std::hex >> bits;
    std::vector<u32> expected;
    for (u32 code; words >> code;) expected.push_back(code);
    REQUIRE(expected.size() == 11);
    const float value = oracle::as_float(bits);
    CAPTURE(bits);
    const u32 got[] = {e4m3::encode(value),
                       e4m3_as<casts::cuda_not_saturating>::encode(value),
                       e4m3_as<casts::torch_before_2_12>::encode(value),
                       e5m2::encode(value),
                       e5m2_as<casts::cuda_not_saturating>::encode(value),
                       e5m2_as<casts::torch_before_2_12>::encode(value),
                       e5m2_as<casts::ml_dtypes>::encode(value),
                       e4m3fnuz::encode(value),
                       e4m3fnuz_as<casts::cuda_not_saturating>::encode(value),
                       e5m2fnuz::encode(value),
                       e5m2fnuz_as<casts::cuda_not_saturating>::encode(value)};
    for (std::size_t i = 0; i < 11; ++i) {
      CAPTURE(i);
      CHECK(got[i] == expected[i]);
    }
    ++rows;
  }
  CHECK(rows == 54);
}

TEST_CASE("NaN and Inf become what each tool's clamp and cast make of them") {
  const float nan = oracle::as_float(0x7FC00000u), minus_nan = oracle::as_float(0xFFC00000u);
  const float inf = oracle::as_float(0x7F800000u), minus_inf = oracle::as_float(0xFF800000u);
  struct row {
    u8 (*encode)(float) noexcept;
    int nan, minus_nan, inf, minus_inf, beyond;
  };
  const row rows[] = {{e4m3_as<casts::cuda_saturating>::encode, 0x7F, 0x7F, 0x7E, 0xFE, 0x7E},
                      {e4m3_as<casts::cuda_not_saturating>::encode, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F},
                      {e4m3_as<casts::torch_before_2_12>::encode, 0x7F, 0xFF, 0x7F, 0xFF, 0x7F},
                      {e4m3_as<casts::torch_saturating>::encode, 0x7F, 0xFF, 0x7E, 0xFE, 0x7E},
                      {e4m3_as<casts::ml_dtypes>::encode, 0x7F, 0xFF, 0x7F, 0xFF, 0x7F},
                      {e4m3_as<casts::ml_dtypes_saturating>::encode, 0x7F, 0xFF, 0x7F, 0xFF, 0x7E},
                      {e4m3_as<casts::clamp_nan_to_lowest>::encode, 0xFE, 0xFE, 0x7E, 0xFE, 0x7E},
                      {e4m3_as<casts::clamp_nan_to_largest>::encode, 0x7E, 0x7E, 0x7E, 0xFE, 0x7E},
                      {e4m3_as<casts::clamp_nan_to_signed_largest>::encode, 0x7E, 0xFE, 0x7E, 0xFE, 0x7E},
                      {e4m3_as<casts::ascend_saturating>::encode, 0x00, 0x00, 0x7E, 0xFE, 0x7E},
                      {e5m2_as<casts::ml_dtypes>::encode, 0x7E, 0xFE, 0x7C, 0xFC, 0x7C},
                      {e5m2_as<casts::ml_dtypes_saturating>::encode, 0x7E, 0xFE, 0x7C, 0xFC, 0x7B}};
  for (const row& r : rows) {
    CAPTURE(&r - rows);
    CHECK(r.encode(nan) == r.nan);
    CHECK(r.encode(minus_nan) == r.minus_nan);
    CHECK(r.encode(inf) == r.inf);
    CHECK(r.encode(minus_inf) == r.minus_inf);
    CHECK(r.encode(70000.0f) == r.beyond);
  }
}

TEST_CASE("values a hair off a midpoint are rounded once, not through a 16-bit float") {
  CHECK(e4m3::encode(oracle::as_float(0x3F880001u)) == 0x39);
  CHECK(e4m3::encode(oracle::as_float(0x3F880400u)) == 0x39);
  CHECK(e4m3::encode(oracle::as_float(0x3F97FFFFu)) == 0x39);
  CHECK(e4m3::encode(oracle::as_float(0x3F97FC00u)) == 0x39);
  CHECK(e4m3::encode(oracle::as_float(0x3F880000u)) == 0x38);
  CHECK(e4m3::encode(oracle::as_float(0x3F980000u)) == 0x3A);
  CHECK(e4m3::encode(oracle::as_float(0x4368096Eu)) == 0x77);  // just above 232, the tie of 224 and 240
  CHECK(e4m3::encode(oracle::as_float(0x43680000u)) == 0x76);
}

TEST_CASE("a code moves to FNUZ with half its value, and only -0, Inf and NaN change their bits") {
  for (int code = 0; code < 256; ++code) {
    CAPTURE(code);
    const auto byte = static_cast<u8>(code);
    const u8 four = to_fnuz<e4m3>(byte), five = to_fnuz<e5m2>(byte);
    if (e4m3::is_nan(byte)) CHECK(four == 0x80);
    else CHECK(e4m3fnuz::decode(four) * 2 == e4m3::decode(byte));
    if (e5m2::is_nan(byte) || (code & 0x7F) == 0x7C) CHECK(five == 0x80);
    else CHECK(e5m2fnuz::decode(five) * 2 == e5m2::decode(byte));
  }
  const u8 codes[] = {0x80, 0x00, 0x38, 0x7E, 0x7F, 0xFF, 0xB8, 0xFE},
           expected[] = {0, 0, 0x38, 0x7E, 0x80, 0x80, 0xB8, 0xFE};
  for (int i = 0; i < 8; ++i) CHECK(to_fnuz<e4m3>(codes[i]) == expected[i]);
}

TEST_CASE("codecs are constant expressions") {
  static_assert(e4m3::encode(448.0f) == 0x7E && e4m3::encode(464.0f) == 0x7E && e4m3::encode(-0.0f) == 0x80);
  static_assert(e4m3::decode(0x01) == 0.001953125f && e4m3::max == 448.0f && e5m2::max == 57344.0f);
  static_assert(e4m3fnuz::max == 240.0f && e5m2fnuz::max == 57344.0f);
  static_assert(same_for_finite<e4m3, e4m3_as<casts::torch_saturating>> && !same_for_finite<e4m3, e4m3fnuz>);
  static_assert(!same_for_finite<e4m3, e4m3_as<casts::torch_before_2_12>>);
}
