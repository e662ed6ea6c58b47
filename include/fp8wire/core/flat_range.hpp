// SPDX-License-Identifier: Apache-2.0
/// A run of a row-major tensor's elements, as optimizers shard them, and the at most three rectangles that it covers.
#ifndef FP8WIRE_CORE_FLAT_RANGE_HPP
#define FP8WIRE_CORE_FLAT_RANGE_HPP
#include <fp8wire/core/slice.hpp>

FP8WIRE_ABI_BEGIN

/// Elements [start, start + length) in row-major order. 64 bits throughout: sharded tensors pass 2^31 elements.
struct flat_range {
  i64 start = 0, length = 0;
  FP8WIRE_HD constexpr i64 end() const noexcept { return start + length; }
  FP8WIRE_HD constexpr bool empty() const noexcept { return length <= 0; }
  bool operator==(const flat_range&) const = default;
};

/// The rectangles of a flat range, in its order: the rest of its first row, whole rows, the beginning of its last row.
/// Those that would be empty are left out.
struct flat_parts {
  slice parts[3] = {};
  int count = 0;
  FP8WIRE_HD constexpr const slice* begin() const noexcept { return parts; }
  FP8WIRE_HD constexpr const slice* end() const noexcept { return parts + count; }
  bool operator==(const flat_parts&) const = default;
};

/// Rectangles of rows that hold `cols` elements each; the rows of a batch of matrices are counted through.
/// Expects: start >= 0, cols > 0 unless the range is empty (unchecked).
FP8WIRE_HD constexpr flat_parts parts_of(flat_range range, i64 cols) noexcept {
  flat_parts found;
  if (range.empty()) return found;
  i64 row = range.start / cols, left = range.length;
  if (const i64 col = range.start % cols; col != 0) {
    const i64 width = left < cols - col ? left : cols - col;
    found.parts[found.count++] = {row++, col, 1, width};
    left -= width;
  }
  if (const i64 rows = left / cols; rows != 0) {
    found.parts[found.count++] = {row, 0, rows, cols};
    row += rows;
    left -= rows * cols;
  }
  if (left != 0) found.parts[found.count++] = {row, 0, 1, left};
  return found;
}

FP8WIRE_ABI_END
#endif
