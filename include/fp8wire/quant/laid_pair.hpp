// SPDX-License-Identifier: Apache-2.0
/// Codes and scales of one tensor as a pair of layouts stores them.
#ifndef FP8WIRE_QUANT_LAID_PAIR_HPP
#define FP8WIRE_QUANT_LAID_PAIR_HPP
#include <fp8wire/layout/laid_out.hpp>
#include <fp8wire/layout/pair_layout.hpp>
#include <fp8wire/quant/recipe.hpp>

FP8WIRE_ABI_BEGIN

/// What a scale is once it is laid out: packed layouts hold E8M0 bytes, one for each row of the weight.
template <any_recipe Recipe, class Layout>
using laid_scale_t = std::conditional_t<(Layout::scales::packed > 1), e8m0, stored_t<Recipe>>;

/// Rows of the scale matrix as Layout stores it.
template <any_recipe Recipe, class Layout> constexpr i64 laid_scale_rows(i64 rows) noexcept {
  return Layout::scales::packed > 1 ? rows : scale_rows<typename Recipe::block>(rows);
}

/// Codes and scales of one tensor in a pair of layouts.
template <any_recipe Recipe, class Layout> struct laid_pair {
  laid_out<typename Layout::codes, u8> codes;
  laid_out<typename Layout::scales, laid_scale_t<Recipe, Layout>> scales;

  /// batch x rows x cols of weights; codes and scales point to as many bytes as their layouts need.
  static constexpr laid_pair of(u8* codes, laid_scale_t<Recipe, Layout>* scales, i64 batch, i64 rows,
                                i64 cols) noexcept {
    return {{codes, batch, rows, cols},
            {scales, batch, laid_scale_rows<Recipe, Layout>(rows), scale_cols<typename Recipe::block>(cols)}};
  }
};

FP8WIRE_ABI_END
#endif
