// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/scale_encoding.hpp>

using namespace fp8wire;

TEST_CASE("vector 13: FP32 scales by columns, each padded to 16 bytes") {
  const deepgemm_fp32::mapping m{1, 5, 3};
  CHECK(m.size() * 4 == 96);
  CHECK(m.shape() == stored_shape{2, {3, 8}});
  CHECK(m.offset({0, 0, 0}) * 4 == 0);
  CHECK(m.offset({0, 4, 0}) * 4 == 16);
  CHECK(m.offset({0, 0, 1}) * 4 == 32);
  CHECK(m.offset({0, 4, 2}) * 4 == 80);
  CHECK(m.index(5).batch == -1);
}

TEST_CASE("rows are aligned to 16 bytes") {
  struct row {
    i64 mn, cols, aligned;
  };
  for (const row& at : {row{1, 1, 4}, row{4, 1, 4}, row{5, 1, 8}, row{128, 16, 128}, row{129, 16, 132}}) {
    CHECK(deepgemm_fp32::mapping{1, at.mn, at.cols}.shape() == stored_shape{2, {at.cols, at.aligned}});
    CHECK(packed_ue8m0::mapping{1, at.mn, at.cols}.shape() == stored_shape{2, {(at.cols + 3) / 4, at.aligned}});
  }
}

TEST_CASE("column-major scales are a transpose, not a reshape") {
  const std::vector<float> in = {1, 2, 3, 4, 5, 6};
  std::vector<float> out(6);
  relayout(dense(in.data(), 2, 3), laid_out<transposed, float>{out.data(), 1, 2, 3});
  CHECK(out == std::vector<float>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("vector 14: four E8M0 bytes an int32, the first in the low byte, tails zero") {
  oracle::bytes in;
  for (int m = 0; m < 3; ++m)
    for (int k = 0; k < 5; ++k) in.push_back(static_cast<u8>(0x10 * (m + 1) + k));
  const oracle::bytes out = packed<packed_ue8m0>(in, 3, 5);
  CHECK(out == oracle::bytes{0x10, 0x11, 0x12, 0x13, 0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32, 0x33, 0, 0, 0, 0,
                             0x14, 0,    0,    0,    0x24, 0,    0,    0,    0x34, 0,    0,    0,    0, 0, 0, 0});
  std::uint32_t word = 0;
  for (int byte = 3; byte >= 0; --byte) word = word << 8 | out[static_cast<std::size_t>(byte)];
  CHECK(word == 0x13121110u);
  struct row {
    i64 m, k, byte;
  };
  for (const row& at : {row{0, 0, 0}, row{0, 3, 3}, row{1, 0, 4}, row{2, 1, 9}, row{0, 4, 16}, row{2, 4, 24}})
    CHECK(packed_ue8m0::mapping{1, 3, 5}.offset({0, at.m, at.k}) == at.byte);
}

TEST_CASE("vector 15: block scales are repeated for every row of the weight, then packed") {
  const std::vector<float> blocks = {1, 2, 4, 8, 16, 0.5f, 0.25f, 0.125f, 32, 64};  // 2 x 5 blocks of N = 130, K = 640
  std::vector<e8m0> rows(130 * 5);
  CHECK(convert_scales(dense(blocks.data(), 2, 5), dense(rows.data(), 130, 5), 128, 1).batch == -1);
  const packed_ue8m0::mapping m{1, 130, 5};
  REQUIRE(m.size() == 1056);
  std::vector<e8m0> out(1056, e8m0{0xAA});
  relayout(laid_out<row_major, e8m0>{rows.data(), 1, 130, 5}, laid_out<packed_ue8m0, e8m0>{out.data(), 1, 130, 5});
  struct row {
    i64 n, k, byte;
    float block;
  };
  for (const row& at : {row{0, 0, 0, 1.0f}, row{127, 3, 511, 8.0f}, row{128, 0, 512, 0.5f}, row{129, 4, 1044, 64.0f}}) {
    CAPTURE(at.n);
    // Bytes 0, 511, 512 and 1044 in the order of the words: word (n, k / 4) of 132 rows, byte k % 4.
    CHECK(m.offset({0, at.n, at.k}) == at.byte);
    CHECK(to_float(out[static_cast<std::size_t>(at.byte)]) == at.block);
  }
}

TEST_CASE("vector 16: groups follow each other") {
  CHECK(packed_ue8m0::mapping{2, 6, 4}.offset({1, 5, 3}) == 55);
  CHECK(packed_ue8m0::mapping{2, 6, 4}.size() == 64);
}

TEST_CASE("vector 17: CUTLASS blockwise scales, MN-major and K-major") {
  struct row {
    i64 n, k, mn_major, k_major;
  };
  for (const row& at : {row{0, 0, 0, 0}, row{2, 0, 2, 4}, row{0, 1, 3, 1}, row{2, 1, 5, 5}}) {
    CHECK(transposed::mapping{1, 3, 2}.offset({0, at.n, at.k}) == at.mn_major);
    CHECK(row_major::mapping{1, 3, 2}.offset({0, at.n, at.k}) == at.k_major);
  }
}

TEST_CASE("torch's pad, view as int32 and transpose give the same bytes") {
  for (const i64 rows : {1, 3, 4, 6, 128, 130}) {
    for (const i64 cols : {1, 4, 5, 16, 33}) {
      const oracle::bytes in = oracle::noise(static_cast<std::size_t>(rows * cols));
      const long padded_rows = oracle::ceil_to(rows, 4), padded_cols = oracle::ceil_to(cols, 4);
      const auto expected = oracle::permute(oracle::pad(in, rows, cols, padded_rows, padded_cols),
                                            {padded_rows, padded_cols / 4, 4}, {1, 0, 2});
      CHECK(packed<packed_ue8m0>(in, rows, cols) == expected);
    }
  }
}
