// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <doctest/doctest.h>

#include <fp8wire/layout/block_major_k.hpp>

using namespace fp8wire;

TEST_CASE("vector 11: BlockMajorK of 4 x 256") {
  struct row {
    i64 m, k, byte;
  };
  const block_major_k<128>::mapping m{1, 4, 256};
  CHECK(m.size() == 1024);
  CHECK(m.shape() == stored_shape{3, {2, 4, 128}});
  for (const row& at : {row{0, 0, 0}, row{0, 127, 127}, row{1, 0, 128}, row{0, 128, 512}, row{3, 255, 1023}})
    CHECK(m.offset({0, at.m, at.k}) == at.byte);
}

TEST_CASE("a ragged last block is padded with zero, as padding K first would") {
  const oracle::bytes in = oracle::noise(5 * 300);
  CHECK(packed<block_major_k<128>>(in, 5, 300) ==
        oracle::permute(oracle::pad(in, 5, 300, 5, 384), {5, 3, 128}, {1, 0, 2}));
}
