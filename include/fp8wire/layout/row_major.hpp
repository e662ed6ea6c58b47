// SPDX-License-Identifier: Apache-2.0
/// The canonical layout: rows one after another, nothing between them.
#ifndef FP8WIRE_LAYOUT_ROW_MAJOR_HPP
#define FP8WIRE_LAYOUT_ROW_MAJOR_HPP
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// offset(b, r, c) = (b * rows + r) * cols + c; no padding, every shape.
/// Read by checkpoints of every framework and by the SM90 DeepGEMM and TensorRT-LLM linear kernels.
struct row_major {
  static constexpr std::string_view id = "row-major";
  static constexpr u32 padding_bits = 0;
  static constexpr i64 packed = 1, col_run = whole_run, row_run = 1, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * rows * cols; }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept { return (i.batch * rows + i.row) * cols + i.col; }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      return {offset / cols / rows, offset / cols % rows, offset % cols};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {2, {rows, cols}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols);
  }
};
static_assert(layout<row_major>);

FP8WIRE_ABI_END
#endif
