// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <fp8wire/layout/scale_encoding.hpp>

using namespace fp8wire;

TEST_CASE("every E8M0 byte but FF is one FP32 number, and only those numbers are E8M0") {
  std::vector<e8m0> bytes;
  for (int byte = 0; byte < 255; ++byte) bytes.push_back(e8m0{static_cast<u8>(byte)});
  std::vector<float> numbers(255);
  std::vector<e8m0> back(255);
  CHECK(convert_scales(dense<const e8m0>(bytes.data(), 1, 255), dense(numbers.data(), 1, 255)).batch == -1);
  for (int byte = 0; byte < 255; ++byte)
    CHECK(static_cast<double>(numbers[static_cast<std::size_t>(byte)]) == std::ldexp(1.0, byte - 127));
  CHECK(convert_scales(dense<const float>(numbers.data(), 1, 255), dense(back.data(), 1, 255)).batch == -1);
  CHECK(back == bytes);

  for (const float number :
       {0.0f, -0.0f, 1.5f, -1.0f, std::ldexp(1.0f, -128), std::ldexp(3.0f, -128), std::ldexp(1.0f, -149),
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), std::nextafter(1.0f, 2.0f),
        std::nextafter(1.0f, 0.0f), std::numeric_limits<float>::max()}) {
    CAPTURE(number);
    CHECK(!fits_e8m0(number));
  }
  int fitting = 0;
  for (u32 high = 0; high < 0x10000; ++high) fitting += fits_e8m0(float_of(high << 16)) ? 1 : 0;
  CHECK(fitting == 255);  // no number but those: their low 16 bits are zero, all of them
}

TEST_CASE("the first block that would lose a bit is named, and nothing is written") {
  std::vector<float> in(2 * 3 * 4, 2.0f);
  std::vector<e8m0> out(in.size(), e8m0{0xAA}), untouched = out;
  in[(1 * 3 + 2) * 4 + 1] = 3.0f;
  in[(1 * 3 + 2) * 4 + 3] = -1.0f;
  CHECK(convert_scales(dense<const float>(in.data(), 3, 4, 2), dense(out.data(), 3, 4, 2)) == index3{1, 2, 1});
  CHECK(out == untouched);
  const std::vector<e8m0> nan = {e8m0{127}, e8m0{255}};
  std::vector<float> floats(2, 9.0f);
  CHECK(convert_scales(dense<const e8m0>(nan.data(), 2, 1), dense(floats.data(), 2, 1)) == index3{0, 1, 0});
  CHECK(floats == std::vector<float>{9.0f, 9.0f});
}

TEST_CASE("vector 22: 128 x 128 blocks become MXFP8 rows by repetition") {
  const std::vector<float> blocks = {0.125f, 2.0f, 1.0f, 32.0f};  // N = 130, K = 256
  std::vector<e8m0> out(130 * 8);
  CHECK(convert_scales(dense(blocks.data(), 2, 2), dense(out.data(), 130, 8), 128, 4).batch == -1);
  const auto row = [&](std::size_t n) {
    return std::vector<e8m0>(out.begin() + static_cast<long>(n) * 8, out.begin() + static_cast<long>(n + 1) * 8);
  };
  const std::vector<e8m0> upper = {{0x7c}, {0x7c}, {0x7c}, {0x7c}, {0x80}, {0x80}, {0x80}, {0x80}};
  const std::vector<e8m0> lower = {{0x7f}, {0x7f}, {0x7f}, {0x7f}, {0x84}, {0x84}, {0x84}, {0x84}};
  CHECK(row(0) == upper);
  CHECK(row(127) == upper);
  CHECK(row(128) == lower);
  CHECK(row(129) == lower);
}

TEST_CASE("repeating without changing the encoding refuses nothing") {
  const std::vector<float> in = {1.1f, -2.0f};
  std::vector<float> out(6);
  CHECK(convert_scales(dense(in.data(), 2, 1), dense(out.data(), 3, 2), 2, 2).batch == -1);
  CHECK(out == std::vector<float>{1.1f, 1.1f, 1.1f, 1.1f, -2.0f, -2.0f});
}

TEST_CASE("shapes that do not belong together are refused") {
  const std::vector<float> in(4, 1.0f);
  std::vector<float> out(64);
  const auto convert = [&](i64 rows, i64 cols, i64 row_times, i64 col_times) {
    convert_scales(dense(in.data(), 2, 2), dense(out.data(), rows, cols), row_times, col_times);
  };
  CHECK_NOTHROW(convert(5, 8, 4, 4));
  CHECK_THROWS_AS(convert(4, 8, 4, 4), precondition_error);
  CHECK_THROWS_AS(convert(9, 8, 4, 4), precondition_error);
  CHECK_THROWS_AS(convert(8, 4, 4, 4), precondition_error);
  CHECK_THROWS_AS(convert(2, 2, 0, 1), precondition_error);
  CHECK_THROWS_AS(convert(2, 2, 1, -1), precondition_error);
}

static_assert(exact_e8m0(1.0f).bits == 127 && exact_e8m0(float_of(0x00400000u)).bits == 0);
