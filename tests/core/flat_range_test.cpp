// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/core/flat_range.hpp>

using namespace fp8wire;

TEST_CASE("a flat range is at most three rectangles, which hold its elements in order") {
  for (i64 start = 0; start <= 24; ++start) {
    for (i64 length = 0; start + length <= 24; ++length) {
      i64 at = start;
      const flat_parts found = parts_of({start, length}, 6);
      CHECK(found.count <= 3);
      for (const slice& part : found) {
        CHECK_FALSE(part.empty());
        CHECK((part.rows == 1 || part.cols == 6));
        for (i64 row = part.row; row < part.row + part.rows; ++row)
          for (i64 col = part.col; col < part.col + part.cols; ++col) CHECK(row * 6 + col == at++);
      }
      CHECK(at == start + length);
    }
  }
}

TEST_CASE("the rectangles of ranges beyond 2^32 elements") {
  constexpr i64 cols = i64{1} << 33;
  CHECK(parts_of({cols * 5 + 7, 3}, cols) == flat_parts{{{5, 7, 1, 3}}, 1});
  CHECK(parts_of({cols * 5 + 7, cols * 3}, cols) ==
        flat_parts{{{5, 7, 1, cols - 7}, {6, 0, 2, cols}, {8, 0, 1, 7}}, 3});
  CHECK(parts_of({0, cols * 3}, cols) == flat_parts{{{0, 0, 3, cols}}, 1});
  static_assert(parts_of({cols, cols + 1}, cols).count == 2);
}
