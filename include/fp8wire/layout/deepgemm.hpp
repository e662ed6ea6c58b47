// SPDX-License-Identifier: Apache-2.0
/// The two scale layouts of DeepGEMM: FP32 by columns for TMA, and four E8M0 bytes in an int32.
///
/// Both want one scale row per row of the operand. 128 x 128 weight scales are repeated over their rows first
/// (scale_encoding.hpp); that changes their number, so it is a conversion and no layout.
#ifndef FP8WIRE_LAYOUT_DEEPGEMM_HPP
#define FP8WIRE_LAYOUT_DEEPGEMM_HPP
#include <fp8wire/layout/padded.hpp>

FP8WIRE_ABI_BEGIN

/// FP32 scales column after column, each column padded to 16 bytes; strides {cols * R, 1, R} with R = rows to 4.
/// Padding: zero (DeepGEMM's kernel leaves it uninitialised; its torch fallback writes zero). Every shape.
/// Source: DeepGEMM csrc/utils/layout.hpp:64-117 at 54e2261.
using deepgemm_fp32 = col_major<4, 1>;

/// E8M0 bytes, four along K in a little-endian int32 (the first in the low byte), int32 column after column.
/// offset(b, m, k) in bytes = ((b * P + k / 4) * R + m) * 4 + k % 4, with P = ceil(cols / 4), R = rows to 4.
/// rows x cols: the scale grid, one row per operand row. Padding: zero bytes. Every shape.
/// The kernel shifts a byte into an FP32 exponent: 00 becomes +0 there and FF infinity, so keep both out of blocks.
/// Source: DeepGEMM csrc/jit_kernels/impls/smxx_layout.hpp:108-253 at 54e2261.
struct packed_ue8m0 {
  static constexpr std::string_view id = "packed-ue8m0";
  static constexpr u32 padding_bits = 0;
  static constexpr i64 packed = 4, col_run = 4, row_run = whole_run, row_step = 1;

  struct mapping {
    i64 batch = 1, rows = 0, cols = 0;
    FP8WIRE_HD constexpr i64 words() const noexcept { return ceil_div(cols, 4); }
    FP8WIRE_HD constexpr i64 stored_rows() const noexcept { return detail::round_up(rows, 4); }
    FP8WIRE_HD constexpr i64 size() const noexcept { return batch * words() * stored_rows() * 4; }
    FP8WIRE_HD constexpr i64 offset(index3 i) const noexcept {
      return ((i.batch * words() + i.col / 4) * stored_rows() + i.row) * 4 + i.col % 4;
    }
    FP8WIRE_HD constexpr index3 index(i64 offset) const noexcept {
      if (offset < 0 || offset >= size()) return {-1, -1, -1};
      const i64 word = offset / 4, row = word % stored_rows(), line = word / stored_rows();
      const i64 col = line % words() * 4 + offset % 4;
      if (row >= rows || col >= cols) return {-1, -1, -1};
      return {line / words(), row, col};
    }
    FP8WIRE_HD constexpr stored_shape shape() const noexcept { return {2, {words(), stored_rows()}}; }
  };

  FP8WIRE_HD static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    return detail::check_extents(batch, rows, cols, 4, 4);
  }
};
static_assert(layout<packed_ue8m0>);

FP8WIRE_ABI_END
#endif
