// SPDX-License-Identifier: Apache-2.0
/// Quantizes and says which codes changed against an earlier version, in the same pass over memory.
#ifndef FP8WIRE_QUANT_DELTA_HPP
#define FP8WIRE_QUANT_DELTA_HPP
#include <fp8wire/quant/quantize.hpp>

FP8WIRE_ABI_BEGIN

/// Bytes of one row of a change bitmap: bit `col % 8` of byte `col / 8` is the element's.
constexpr i64 bitmap_cols(i64 cols) noexcept { return ceil_div(cols, 8); }

/// As quantize, and sets a bit for every code that differs from `before`. Scales are written whole: there are few.
/// before: the codes of the earlier version, the shape of the weights; it may be out.codes itself.
/// changed: batch x rows x bitmap_cols(cols) bytes; bits beyond the last column are 0.
/// Throws: precondition_error, before any write. Exact: codes and scales are those of quantize. Threads: as quantize.
template <any_recipe Recipe, class In, executor Executor = serial>
FP8WIRE_ALWAYS_INLINE status quantize_delta(matrix_view<const In> in, matrix_view<const u8> before,
                                            pair_view<Recipe> out, matrix_view<u8> changed,
                                            float amax_floor = Recipe::num.amax_floor, Executor&& run = Executor{},
                                            isa body = best_isa()) {
  detail::expect_pair<Recipe, In>(in, out);
  detail::expect_floor(amax_floor);
  detail::expect_valid(before, "codes before: extents must be >= 0, fit 63 bits and have data");
  detail::expect_valid(changed, "change bitmap: extents must be >= 0, fit 63 bits and have data");
  detail::expect_equal(before.batch, in.batch, "codes before: batch differs from the weights");
  detail::expect_equal(before.rows, in.rows, "codes before: rows differ from the weights");
  detail::expect_equal(before.cols, in.cols, "codes before: columns differ from the weights");
  detail::expect_equal(changed.batch, in.batch, "change bitmap: batch differs from the weights");
  detail::expect_equal(changed.rows, in.rows, "change bitmap: rows differ from the weights");
  detail::expect_equal(changed.cols, bitmap_cols(in.cols), "change bitmap: columns are not one bit an element");
  if (in.size() == 0) return {};
  const bool bad = detail::FP8WIRE_CG::quantize_on_host<Recipe, In, true>(
      {in, out.codes, out.scales, amax_floor, before, changed}, run, body);
  return {bad ? detail::first_nonfinite<In>(in) : -1};
}

FP8WIRE_ABI_END
#endif
