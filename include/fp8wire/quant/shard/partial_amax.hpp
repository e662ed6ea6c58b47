// SPDX-License-Identifier: Apache-2.0
/// What one rank's part of a tensor adds to the amaxes of its blocks; a maximum over the ranks makes them whole.
#ifndef FP8WIRE_QUANT_SHARD_PARTIAL_AMAX_HPP
#define FP8WIRE_QUANT_SHARD_PARTIAL_AMAX_HPP
#include <fp8wire/quant/shard/block_runs.hpp>

FP8WIRE_ABI_BEGIN

/// Raises the amaxes of the blocks that a rectangle touches. Returns the tensor's row-major index of the part's first
/// NaN or Inf, or -1.
/// of: the whole tensor. part: rows counted through the batch, any cut, also within blocks. values: part.rows x
/// part.cols of float, bf16 or fp16, any strides. amaxes: batch x scale_rows x scale_cols of the whole tensor, zeros
/// before a tensor's first part: FP32 magnitudes as bits, so that the MAX of unsigned integers is the MAX of the
/// recipe, NaN that poisons included. An entry never falls: parts of one process may share the grid.
/// Edge padding with the last element: whoever holds that element raises the ragged blocks.
/// Throws: precondition_error with both numbers, before any write. Empty parts do nothing.
/// Exact: over parts that cover the tensor, the amaxes of quantize. Threads: one grid, one thread.
template <any_recipe Recipe, class In>
constexpr i64 partial_amax(const matrix_extents& of, const slice& part, matrix_view<const In> values,
                           matrix_view<u32> amaxes) {
  detail::expect_part(of, part);
  detail::expect_valid(values, "shard: values must have extents >= 0 and data");
  detail::expect_equal(values.rows, part.rows, "shard: rows of the values differ from the part");
  detail::expect_equal(values.cols, part.cols, "shard: columns of the values differ from the part");
  detail::expect_grid<Recipe>(of, amaxes, "amaxes: one for each block of the tensor");
  if (part.empty()) return -1;

  i64 bad = -1;
  detail::for_each_run<typename Recipe::block>(of, part, [&](const detail::block_run& run) {
    u32 largest = amaxes(run.batch, run.block_row, run.block_col), seen = 0;
    const In* const from = &values(run.row, run.col);
    for (i64 i = 0; i < run.count; ++i) {
      const In weight = from[i * values.col_stride];
      const u32 original = f32::magnitude(bits_of(to_float(weight)));
      const u32 magnitude = f32::magnitude(bits_of(reference::load<Recipe>(weight)));
      seen = original > seen ? original : seen;
      const bool counts = Recipe::rule::nan_poisons_amax || !f32::is_nan(magnitude);
      largest = counts && magnitude > largest ? magnitude : largest;
    }
    amaxes(run.batch, run.block_row, run.block_col) = largest;
    if (bad < 0 && !f32::is_finite(seen)) {
      i64 col = run.col;
      while (f32::is_finite(bits_of(to_float(values(run.row, col))))) ++col;
      bad = (part.row + run.row) * of.cols + part.col + col;
    }
  });

  if constexpr (Recipe::num.edge == edge_pad::last_element) {
    if (part.col + part.cols == of.cols) {
      const bool ragged_rows = of.rows % detail::block_extent(Recipe::block::rows, of.rows) != 0,
                 ragged_cols = of.cols % detail::block_extent(Recipe::block::cols, of.cols) != 0;
      for (i64 batch = part.row / of.rows; (batch + 1) * of.rows <= part.row + part.rows; ++batch) {
        const i64 row = (batch + 1) * of.rows - 1 - part.row;
        const u32 magnitude = f32::magnitude(bits_of(reference::load<Recipe>(values(row, part.cols - 1))));
        if (f32::is_nan(magnitude) && !Recipe::rule::nan_poisons_amax) continue;
        const auto raise_to = [&](u32& amax) { amax = magnitude > amax ? magnitude : amax; };
        for (i64 i = 0; ragged_rows && i < amaxes.cols; ++i) raise_to(amaxes(batch, amaxes.rows - 1, i));
        for (i64 i = 0; ragged_cols && i < amaxes.rows; ++i) raise_to(amaxes(batch, i, amaxes.cols - 1));
      }
    }
  }
  return bad;
}

/// The same of a flat range, as distributed optimizers cut them. shard: range.length elements, the first of them the
/// tensor's element range.start; may be null where the range is empty.
template <any_recipe Recipe, class In>
constexpr i64 partial_amax(const matrix_extents& of, flat_range range, const In* shard, matrix_view<u32> amaxes) {
  detail::expect_range(of, range);
  detail::expect_grid<Recipe>(of, amaxes, "amaxes: one for each block of the tensor");
  i64 bad = -1;
  for (const slice& part : parts_of(range, of.cols)) {
    const i64 found = partial_amax<Recipe, In>(of, part, detail::view_of_part(shard, range, part, of.cols), amaxes);
    if (bad < 0) bad = found;
  }
  return bad;
}

FP8WIRE_ABI_END
#endif
