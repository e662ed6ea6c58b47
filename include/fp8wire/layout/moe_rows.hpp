// SPDX-License-Identifier: Apache-2.0
/// Row maps of fused MoE weights: [gate; up] to [up; gate], halves interleaved, halves or rows padded.
///
/// Canonical w13 is gate (w1) first, then up (w3). Padding I to a tile must pad each half on its own: one contiguous
/// copy of 2 I rows into a larger buffer leaves the up half at the wrong rows.
#ifndef FP8WIRE_LAYOUT_MOE_ROWS_HPP
#define FP8WIRE_LAYOUT_MOE_ROWS_HPP
#include <fp8wire/layout/row_map.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {
FP8WIRE_HD constexpr shape_check check_halves(i64 rows) noexcept {
  if (rows % 2 != 0) return {"rows do not split into a gate and an up half", rows, rows + 1};
  return {};
}
}  // namespace detail

/// [gate; up] -> [up; gate], the order of trtllm-gen, TensorRT-LLM's w3_w1 and FlashInfer's CUTLASS MoE.
/// Works on code rows and, where a half has whole blocks, on scale rows. Shape: an even number of rows.
struct swap_halves {
  static constexpr std::string_view id = "swap-halves";
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return rows; }
  FP8WIRE_HD static constexpr i64 to(i64 rows, i64 row) noexcept {
    return row < rows / 2 ? row + rows / 2 : row - rows / 2;
  }
  FP8WIRE_HD static constexpr i64 from(i64 rows, i64 stored) noexcept { return to(rows, stored); }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64 rows) noexcept { return detail::check_halves(rows); }
};

/// Row i of the first half to 2i, of the second to 2i + 1. Shape: an even number of rows.
/// Source: FlashInfer flashinfer/fused_moe/core.py:417-570 at fb28d72 (gated activations of MXFP8).
struct interleave_halves {
  static constexpr std::string_view id = "interleave-halves";
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return rows; }
  FP8WIRE_HD static constexpr i64 to(i64 rows, i64 row) noexcept {
    return row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1;
  }
  FP8WIRE_HD static constexpr i64 from(i64 rows, i64 stored) noexcept { return stored / 2 + stored % 2 * (rows / 2); }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64 rows) noexcept { return detail::check_halves(rows); }
};

/// Rows padded at the end to a multiple, with the padding of the inner layout. Every shape.
template <i64 Multiple> struct pad_rows {
  static_assert(Multiple > 1, "pad_rows: a multiple of 1 pads nothing");
  static constexpr detail::short_text id_text = detail::short_text{} << "pad-rows-" << Multiple;
  static constexpr std::string_view id = id_text.view();
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return detail::round_up(rows, Multiple); }
  FP8WIRE_HD static constexpr i64 to(i64, i64 row) noexcept { return row; }
  FP8WIRE_HD static constexpr i64 from(i64 rows, i64 stored) noexcept { return stored < rows ? stored : -1; }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64) noexcept { return {}; }
};

/// Each half padded at its end to a multiple, so that the second starts at a multiple. Shape: an even number of rows.
template <i64 Multiple> struct pad_halves {
  static_assert(Multiple > 1, "pad_halves: a multiple of 1 pads nothing");
  static constexpr detail::short_text id_text = detail::short_text{} << "pad-halves-" << Multiple;
  static constexpr std::string_view id = id_text.view();
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return 2 * detail::round_up(rows / 2, Multiple); }
  FP8WIRE_HD static constexpr i64 to(i64 rows, i64 row) noexcept {
    return row < rows / 2 ? row : row - rows / 2 + stored_rows(rows) / 2;
  }
  FP8WIRE_HD static constexpr i64 from(i64 rows, i64 stored) noexcept {
    const i64 half = rows / 2, stored_half = stored_rows(rows) / 2;
    const i64 second = stored < stored_half ? 0 : 1, inside = stored - second * stored_half;
    return inside < half ? inside + second * half : -1;
  }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64 rows) noexcept { return detail::check_halves(rows); }
};

static_assert(row_map<swap_halves> && row_map<interleave_halves> && row_map<pad_rows<128>> && row_map<pad_halves<128>>);

FP8WIRE_ABI_END
#endif
