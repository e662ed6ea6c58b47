// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <doctest/doctest.h>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/transformer_engine.hpp>

using namespace fp8wire;

TEST_CASE("vector 28: Hopper block scales, 2-D and 1-D") {
  const te_block_rowwise::mapping block{1, 3, 5};  // N = 300, K = 640
  CHECK(block.shape() == stored_shape{2, {3, 8}});
  CHECK(block.offset({0, 0, 0}) * 4 == 0);
  CHECK(block.offset({0, 0, 4}) * 4 == 16);
  CHECK(block.offset({0, 1, 0}) * 4 == 32);
  CHECK(block.offset({0, 2, 4}) * 4 == 80);
  const te_vector_rowwise::mapping vector{1, 5, 3};  // M = 5, K = 384
  CHECK(vector.shape() == stored_shape{2, {3, 8}});
  for (const index3 at : {index3{0, 4, 0}, index3{0, 0, 1}, index3{0, 4, 2}})
    CHECK(vector.offset(at) == deepgemm_fp32::mapping{1, 5, 3}.offset(at));
  CHECK(vector.offset({0, 4, 2}) * 4 == 80);
}

TEST_CASE("shapes of its own examples") {
  // 2-D (300, 304), 1-D (300, 304), 1-D (257, 128), 2-D (256, 640): rowwise and columnwise.
  CHECK(te_block_rowwise::mapping{1, 3, 3}.shape() == stored_shape{2, {3, 4}});
  CHECK(te_block_columnwise::mapping{1, 3, 3}.shape() == stored_shape{2, {3, 4}});
  CHECK(te_vector_rowwise::mapping{1, 300, 3}.shape() == stored_shape{2, {3, 300}});
  CHECK(te_vector_columnwise::mapping{1, 3, 304}.shape() == stored_shape{2, {3, 304}});
  CHECK(te_vector_rowwise::mapping{1, 257, 1}.shape() == stored_shape{2, {1, 260}});
  CHECK(te_vector_columnwise::mapping{1, 3, 128}.shape() == stored_shape{2, {3, 128}});
  CHECK(te_block_rowwise::mapping{1, 2, 5}.shape() == stored_shape{2, {2, 8}});
  CHECK(te_block_columnwise::mapping{1, 2, 5}.shape() == stored_shape{2, {5, 4}});
  // MXFP8 (96, 160), (2880, 2880).
  CHECK(te_mxfp8_rowwise::mapping{1, 96, 5}.shape() == stored_shape{2, {128, 8}});
  CHECK(te_mxfp8_columnwise::mapping{1, 3, 160}.shape() == stored_shape{2, {4, 256}});
  CHECK(te_mxfp8_rowwise::mapping{1, 2880, 90}.shape() == stored_shape{2, {2944, 92}});
  CHECK(te_mxfp8_columnwise::mapping{1, 90, 2880}.shape() == stored_shape{2, {92, 2944}});
}

TEST_CASE("places of its own examples") {
  CHECK(te_vector_rowwise::mapping{1, 5, 3}.offset({0, 4, 2}) == 20);         // M 5, K 260: element (4, 259)
  CHECK(te_vector_columnwise::mapping{1, 1, 260}.offset({0, 0, 259}) == 259);
  CHECK(transposed::mapping{1, 5, 260}.offset({0, 4, 259}) == 259 * 5 + 4);   // its codes
  CHECK(te_block_rowwise::mapping{1, 3, 8}.offset({0, 2, 7}) == 23);          // M 300, K 1000: element (299, 999)
  CHECK(te_block_columnwise::mapping{1, 3, 8}.offset({0, 2, 7}) == 30);
  CHECK(te_mxfp8_rowwise::mapping{1, 96, 5}.offset({0, 95, 4}) == 764);
  CHECK(te_mxfp8_columnwise::mapping{1, 3, 160}.offset({0, 2, 159}) == 671);
}

TEST_CASE("FP32 padding holds 1.0, E8M0 padding zero; cropping gives the checkpoint's scales back") {
  const std::vector<float> in = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11};  // 2 x 5 blocks: K padded to 8
  std::vector<float> out(16, -1.0f), back(10, -1.0f);
  relayout(dense(in.data(), 2, 5), laid_out<te_block_rowwise, float>{out.data(), 1, 2, 5});
  CHECK(out == std::vector<float>{2, 3, 4, 5, 6, 1, 1, 1, 7, 8, 9, 10, 11, 1, 1, 1});
  relayout(laid_out<te_block_rowwise, float>{out.data(), 1, 2, 5}, dense(back.data(), 2, 5));
  CHECK(back == in);

  const oracle::bytes bytes = oracle::noise(96 * 5);
  CHECK(packed<te_mxfp8_rowwise>(bytes, 96, 5) == oracle::pad(bytes, 96, 5, 128, 8));
}
