// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <doctest/doctest.h>

#include <fp8wire/layout/swizzle.hpp>

using namespace fp8wire;

namespace {

// byte(m, k) = (7m + 13k + 1) & 255.
oracle::bytes ramp(i64 rows, i64 cols) {
  oracle::bytes out;
  for (i64 m = 0; m < rows; ++m)
    for (i64 k = 0; k < cols; ++k) out.push_back(static_cast<u8>(7 * m + 13 * k + 1));
  return out;
}

}  // namespace

TEST_CASE("vector 01: 3 x 2 scales are spread over one tile of 512 bytes, the rest is zero") {
  oracle::bytes in;
  for (int m = 0; m < 3; ++m)
    for (int k = 0; k < 2; ++k) in.push_back(static_cast<u8>(16 * m + k + 1));
  oracle::bytes expected(512, 0);
  expected[0] = 0x01, expected[1] = 0x02, expected[16] = 0x11, expected[17] = 0x12, expected[32] = 0x21,
  expected[33] = 0x22;
  CHECK(packed<swizzle_128x4>(in, 3, 2) == expected);
}

TEST_CASE("vector 02: offsets of 130 x 6 scales in 2 x 2 tiles") {
  struct row {
    i64 m, k, offset;
  };
  const row rows[] = {{0, 0, 0},      {0, 3, 3},      {0, 4, 512},    {1, 0, 16},    {31, 0, 496},
                      {32, 0, 4},     {33, 5, 533},   {64, 1, 9},     {96, 3, 15},   {127, 3, 511},
                      {127, 5, 1021}, {128, 0, 1024}, {129, 4, 1552}, {129, 5, 1553}};
  const swizzle_128x4::mapping m{1, 130, 6};
  CHECK(m.size() == 2048);
  for (const row& at : rows) {
    CAPTURE(at.m);
    CAPTURE(at.k);
    CHECK(m.offset({0, at.m, at.k}) == at.offset);
    CHECK(m.index(at.offset) == index3{0, at.m, at.k});
  }
}

TEST_CASE("vector 03: the whole buffer of 130 x 6 scales, by digest") {
  CHECK(oracle::sha256(packed<swizzle_128x4>(ramp(130, 6), 130, 6)).substr(0, 16) == "af9853dbabdfd2d5");
}

TEST_CASE("vector 04: experts follow each other, each padded on its own") {
  CHECK(swizzle_128x4::mapping{2, 128, 4}.offset({1, 0, 0}) == 512);
  CHECK(swizzle_128x4::mapping{2, 200, 5}.offset({1, 199, 4}) == 3704);
  CHECK(swizzle_128x4::mapping{2, 200, 5}.size() == 4096);
}

TEST_CASE("vector 05: the 8x4 layout of 10 x 5 scales") {
  struct row {
    i64 m, k, offset;
  };
  const row rows[] = {{0, 0, 0}, {1, 0, 4}, {7, 3, 31}, {0, 4, 32}, {8, 0, 64}, {9, 4, 100}};
  const swizzle_8x4::mapping m{1, 10, 5};
  CHECK(m.size() == 128);
  for (const row& at : rows) CHECK(m.offset({0, at.m, at.k}) == at.offset);
}

TEST_CASE("Transformer Engine's swizzle formula gives the same places") {
  // (i, j) of T tiles of four -> index, from its cast/mxfp8/swizzle.cuh.
  struct row {
    i64 i, j, tiles, index;
  };
  const row rows[] = {{0, 0, 1, 0},    {1, 0, 1, 16},     {0, 1, 1, 1},      {31, 3, 1, 499},    {32, 0, 1, 4},
                      {63, 2, 1, 502}, {96, 0, 1, 12},    {127, 3, 1, 511},  {0, 4, 2, 512},     {128, 0, 2, 1024},
                      {5, 6, 2, 594},  {130, 7, 2, 1571}, {200, 5, 3, 2185}, {255, 11, 3, 3071}, {95, 4, 2, 1016}};
  for (const row& at : rows) {
    CAPTURE(at.i);
    CHECK(swizzle_128x4::mapping{1, 256, 4 * at.tiles}.offset({0, at.i, at.j}) == at.index);
  }
}

TEST_CASE("sizes: whole tiles, nothing for nothing") {
  struct row {
    i64 m, k, bytes;
  };
  const row rows[] = {{128, 1, 512}, {130, 6, 2048}, {1, 1, 512}, {0, 4, 0}, {2880, 90, 270848}, {5760, 90, 529920}};
  for (const row& at : rows) {
    CHECK(swizzle_128x4::mapping{1, at.m, at.k}.size() == at.bytes);
    CHECK(swizzle_128x4::mapping{1, at.m, at.k}.shape() == stored_shape{1, {at.bytes}});
  }
}

TEST_CASE("neither poison between the source's rows nor old bytes of the target survive") {
  const oracle::bytes source = {0x71, 0x72, 0xFF, 0xFF, 0x81, 0x82, 0xFF, 0xFF, 0x91, 0x92, 0xFF, 0xFF};
  oracle::bytes target(512, 0xAA), expected(512, 0);
  relayout(matrix_view<const u8>{source.data(), 3, 2, 4}, laid_out<swizzle_128x4, u8>{target.data(), 1, 3, 2});
  expected[0] = 0x71, expected[1] = 0x72, expected[16] = 0x81, expected[17] = 0x82, expected[32] = 0x91,
  expected[33] = 0x92;
  CHECK(target == expected);
}

TEST_CASE("swizzling twice is not swizzling once, and nothing but the type can tell") {
  const oracle::bytes once = packed<swizzle_128x4>(ramp(128, 4), 128, 4);
  CHECK(oracle::sha256(once) == "56743b4dd6917b30857ff8822892a39cd7795004d59f1087f9cae60f4d0c1258");
  CHECK(oracle::sha256(packed<swizzle_128x4>(once, 128, 4)) ==
        "9f5c861affd3e3e97c5f7d5dc24695f90ac24c73129793f001965ba03bf113f5");
}

TEST_CASE("pad, view and permute give the same bytes as the formulas") {
  for (const i64 rows : {0, 1, 5, 8, 31, 32, 127, 128, 130, 256, 300, 513}) {
    for (const i64 cols : {0, 1, 3, 4, 5, 8, 13, 64, 90}) {
      CAPTURE(rows);
      CAPTURE(cols);
      const oracle::bytes in = oracle::noise(static_cast<std::size_t>(rows * cols));
      CHECK(packed<swizzle_128x4>(in, rows, cols) == oracle::swizzle_128x4(in, rows, cols));
      CHECK(packed<swizzle_8x4>(in, rows, cols) == oracle::swizzle_8x4(in, rows, cols));
    }
  }
}
