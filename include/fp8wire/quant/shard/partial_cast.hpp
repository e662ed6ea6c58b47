// SPDX-License-Identifier: Apache-2.0
/// One rank's part of a tensor as codes, under scales that were made for the whole of it.
#ifndef FP8WIRE_QUANT_SHARD_PARTIAL_CAST_HPP
#define FP8WIRE_QUANT_SHARD_PARTIAL_CAST_HPP
#include <fp8wire/quant/shard/block_runs.hpp>

FP8WIRE_ABI_BEGIN

/// Writes the codes of a rectangle, and nothing beyond it. Returns how many differ from what lay there before.
/// of, part, values: as for partial_amax. operands: batch x scale_rows x scale_cols, from block_scales. codes:
/// part.rows x part.cols, any strides, apart from the values (unchecked).
/// Throws: precondition_error with both numbers, before any write. Empty parts do nothing.
/// Exact: the codes of quantize. Threads: no shared state; disjoint parts may run concurrently.
template <any_recipe Recipe, class In>
constexpr i64 partial_cast(const matrix_extents& of, const slice& part, matrix_view<const In> values,
                           matrix_view<const float> operands, matrix_view<u8> codes) {
  detail::expect_part(of, part);
  detail::expect_valid(values, "shard: values must have extents >= 0 and data");
  detail::expect_valid(codes, "shard: codes must have extents >= 0 and data");
  detail::expect_equal(values.rows, part.rows, "shard: rows of the values differ from the part");
  detail::expect_equal(values.cols, part.cols, "shard: columns of the values differ from the part");
  detail::expect_equal(codes.rows, part.rows, "shard: rows of the codes differ from the part");
  detail::expect_equal(codes.cols, part.cols, "shard: columns of the codes differ from the part");
  detail::expect_grid<Recipe>(of, operands, "operands: one for each block of the tensor");
  if (part.empty()) return 0;

  i64 changed = 0;
  detail::for_each_run<typename Recipe::block>(of, part, [&](const detail::block_run& run) {
    const float operand = operands(run.batch, run.block_row, run.block_col);
    const In* const from = &values(run.row, run.col);
    u8* const to = &codes(run.row, run.col);
    for (i64 i = 0; i < run.count; ++i) {
      const u8 code = reference::encode<Recipe, In>(from[i * values.col_stride], operand);
      u8& place = to[i * codes.col_stride];
      changed += place != code ? 1 : 0;
      place = code;
    }
  });
  return changed;
}

/// The same of a flat range. shard: its range.length weights, codes: its range.length codes, the first of them the
/// tensor's element range.start; both may be null where the range is empty.
template <any_recipe Recipe, class In>
constexpr i64 partial_cast(const matrix_extents& of, flat_range range, const In* shard,
                           matrix_view<const float> operands, u8* codes) {
  detail::expect_range(of, range);
  detail::expect_grid<Recipe>(of, operands, "operands: one for each block of the tensor");
  i64 changed = 0;
  for (const slice& part : parts_of(range, of.cols))
    changed += partial_cast<Recipe, In>(of, part, detail::view_of_part(shard, range, part, of.cols), operands,
                                        detail::view_of_part(codes, range, part, of.cols));
  return changed;
}

FP8WIRE_ABI_END
#endif
