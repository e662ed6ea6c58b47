// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/model/tensor_spec.hpp>

using fp8wire::bit_count;
using fp8wire::byte_count;
using fp8wire::dtype;
using fp8wire::i64;

TEST_CASE("sizes of dense tensors are exact in 64 bits") {
  struct row {
    dtype type;
    std::vector<i64> shape;
    i64 bits, bytes;
  };
  constexpr i64 big = i64{1} << 40;
  const row rows[] = {
      {dtype::f32, {}, 32, 4},
      {dtype::bf16, {3, 5}, 240, 30},
      {dtype::f8_e4m3, {0, 128}, 0, 0},
      {dtype::f4, {3}, 12, -1},
      {dtype::f4, {2, 3}, 24, 3},
      {dtype::uint8, {big, 1 << 18}, i64{1} << 61, i64{1} << 58},
      {dtype::f32, {big, 1 << 20}, -1, -1},
      {dtype::f32, {big, big}, -1, -1},
      {dtype::f32, {big, big, 0}, -1, -1},
      {dtype::f32, {0, big, big}, 0, 0},
      {dtype::f32, {-1}, -1, -1},
      {dtype::f32, {4294967296, 4294967296}, -1, -1},
  };
  for (const row& one : rows) {
    CAPTURE(one.bits);
    CHECK(bit_count(one.type, one.shape) == one.bits);
    CHECK(byte_count(one.type, one.shape) == one.bytes);
  }
}
