// SPDX-License-Identifier: Apache-2.0
/// How far two recipes are apart on given weights: which blocks have another scale, which elements another code.
#ifndef FP8WIRE_QUANT_GRID_DIFFERENCE_HPP
#define FP8WIRE_QUANT_GRID_DIFFERENCE_HPP
#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN

/// What grid_difference found. A block can count under both reasons; `first_*` name the first block or element that
/// differs.
struct grid_differences {
  i64 blocks = 0, elements = 0;  // compared
  i64 scale_blocks = 0;  // blocks whose stored scales are different numbers
  i64 code_blocks = 0;  // blocks with at least one different code
  i64 code_only_blocks = 0;  // of those, the ones whose scales are the same number: the element arithmetic differs
  i64 codes = 0;  // elements with different codes
  i64 first_batch = -1, first_row = -1, first_col = -1;  // element, or the first element of a block whose scale differs

  constexpr bool same() const noexcept { return scale_blocks == 0 && codes == 0; }
};

/// Quantizes `in` under both recipes, block by block, and counts what differs; allocates nothing.
/// in: batch x rows x cols of float, bf16 or fp16, any strides. floor_a, floor_b: finite, >= 0.
/// Scales of different encodings are compared as numbers (a NaN equals a NaN), codes as bytes.
/// Throws: precondition_error on an invalid view. Threads: no state.
template <any_recipe First, any_recipe Second, class In>
constexpr grid_differences grid_difference(matrix_view<const In> in, float floor_a = First::num.amax_floor,
                                           float floor_b = Second::num.amax_floor) {
  static_assert(First::block::rows == Second::block::rows && First::block::cols == Second::block::cols,
                "grid_difference compares recipes of one block shape: give both the same block<Rows, Cols>");
  detail::expect_valid(in, "grid_difference: extents must be >= 0, fit 63 bits and have data");
  grid_differences found;
  const auto number = [](auto scale) {
    const u32 bits = bits_of(to_float(scale));
    return f32::is_nan(bits) ? f32::nan : bits;
  };
  const auto note = [&](i64 batch, i64 row, i64 col) {
    if (found.first_batch >= 0) return;
    found.first_batch = batch, found.first_row = row, found.first_col = col;
  };
  if (in.rows == 0 || in.cols == 0) return found;
  for (i64 b = 0; b < in.batch; ++b) {
    const matrix_view<const In> matrix = in.slice_of(b);
    for (i64 block_row = 0; block_row < scale_rows<typename First::block>(in.rows); ++block_row) {
      for (i64 block_col = 0; block_col < scale_cols<typename First::block>(in.cols); ++block_col) {
        bool nonfinite = false;
        const slice area = reference::block_area<First, In>(matrix, block_row, block_col);
        const auto scale_a =
            reference::block_scale<First, In>(reference::block_amax<First, In>(matrix, area, nonfinite), floor_a);
        const auto scale_b =
            reference::block_scale<Second, In>(reference::block_amax<Second, In>(matrix, area, nonfinite), floor_b);
        const bool same_scale = number(scale_a.stored) == number(scale_b.stored);
        if (!same_scale) note(b, area.row, area.col);
        i64 codes = 0;
        for (i64 row = area.row; row < area.row + area.rows; ++row) {
          for (i64 col = area.col; col < area.col + area.cols; ++col) {
            const In weight = matrix(row, col);
            if (reference::encode<First, In>(weight, scale_a.operand) ==
                reference::encode<Second, In>(weight, scale_b.operand))
              continue;
            ++codes;
            note(b, row, col);
          }
        }
        ++found.blocks;
        found.elements += area.rows * area.cols;
        found.scale_blocks += same_scale ? 0 : 1;
        found.code_blocks += codes != 0 ? 1 : 0;
        found.code_only_blocks += codes != 0 && same_scale ? 1 : 0;
        found.codes += codes;
      }
    }
  }
  return found;
}

FP8WIRE_ABI_END
#endif
