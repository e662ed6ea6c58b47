// SPDX-License-Identifier: Apache-2.0
/// A rectangle of a matrix: a tensor-parallel shard, a route's target, or a piece of a flat range.
#ifndef FP8WIRE_CORE_SLICE_HPP
#define FP8WIRE_CORE_SLICE_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// Rows [row, row + rows), columns [col, col + cols).
struct slice {
  i64 row = 0, col = 0, rows = 0, cols = 0;
  FP8WIRE_HD constexpr bool empty() const noexcept { return rows <= 0 || cols <= 0; }
  bool operator==(const slice&) const = default;
};

FP8WIRE_ABI_END
#endif
