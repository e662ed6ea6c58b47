// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/groups.hpp>
#include <fp8wire/layout/swizzle.hpp>
#include <fp8wire/layout/trtllm.hpp>

using namespace fp8wire;

TEST_CASE("each expert is padded on its own; an empty expert takes no space") {
  const std::vector<group_extents> groups = {{100, 4}, {0, 4}, {156, 4}};
  std::vector<i64> offsets(3);
  CHECK(group_offsets<swizzle_128x4>(groups, offsets) == 1536);  // padded once it would be 1024
  CHECK(offsets == std::vector<i64>{0, 512, 512});
}

TEST_CASE("groups along K start a fresh int32 each") {
  // 8 rows; 5, 4 and 1 scale columns: 2, 1 and 1 words of 8 rows.
  const std::vector<group_extents> groups = {{8, 5}, {8, 4}, {8, 1}};
  std::vector<i64> offsets(3);
  CHECK(group_offsets<packed_ue8m0>(groups, offsets) == 4 * 8 * 4);
  CHECK(offsets == std::vector<i64>{0, 64, 96});
}

TEST_CASE("groups that cannot be are refused") {
  std::vector<i64> offsets(1);
  CHECK_THROWS_AS(group_offsets<trtllm_mxfp8_codes>(std::vector<group_extents>{{40, 4}}, offsets), precondition_error);
  CHECK_THROWS_AS(group_offsets<row_major>(std::vector<group_extents>{{1, 1}, {1, 1}}, offsets), precondition_error);
  std::vector<i64> many(3);
  const group_extents huge{i64{1} << 28, i64{1} << 29};
  CHECK_THROWS_AS(group_offsets<row_major>(std::vector<group_extents>{huge, huge, huge}, many), precondition_error);
  CHECK(group_offsets<row_major>({}, {}) == 0);
}
