// SPDX-License-Identifier: Apache-2.0
/// Weights to codes and scales on the host.
#ifndef FP8WIRE_QUANT_QUANTIZE_HPP
#define FP8WIRE_QUANT_QUANTIZE_HPP
#include <fp8wire/quant/host/dispatch.hpp>

FP8WIRE_ABI_BEGIN

/// What a quantizer says about a tensor: the logical index (batch, row, col in row-major order) of the first NaN or
/// Inf.
struct status {
  i64 first_nonfinite = -1;
  constexpr bool finite() const noexcept { return first_nonfinite < 0; }
};

namespace detail {

/// Shapes of a pair against the weights they belong to. Throws precondition_error with both numbers.
template <any_recipe Recipe, class In>
constexpr void expect_pair(const matrix_view<const In>& in, const const_pair_view<Recipe>& pair) {
  expect_valid(in, "weights: extents must be >= 0, fit 63 bits and have data");
  expect_valid(pair.codes, "codes: extents must be >= 0, fit 63 bits and have data");
  expect_valid(pair.scales, "scales: extents must be >= 0, fit 63 bits and have data");
  expect_equal(pair.codes.batch, in.batch, "codes: batch differs from the weights");
  expect_equal(pair.codes.rows, in.rows, "codes: rows differ from the weights");
  expect_equal(pair.codes.cols, in.cols, "codes: columns differ from the weights");
  expect_equal(pair.scales.batch, in.batch, "scales: batch differs from the weights");
  expect_equal(pair.scales.rows, scale_rows<typename Recipe::block>(in.rows),
               "scales: rows differ from the block grid");
  expect_equal(pair.scales.cols, scale_cols<typename Recipe::block>(in.cols),
               "scales: columns differ from the block grid");
}

constexpr void expect_floor(float amax_floor) {
  const u32 bits = bits_of(amax_floor);
  if (!f32::is_finite(bits) || (bits & f32::sign_mask && !f32::is_zero(bits)))
    raise("amax floor: must be finite and not negative; its bits", static_cast<i64>(bits), 0);
}

template <class In> constexpr i64 first_nonfinite(const matrix_view<const In>& in) noexcept {
  for (i64 b = 0; b < in.batch; ++b)
    for (i64 row = 0; row < in.rows; ++row)
      for (i64 col = 0; col < in.cols; ++col)
        if (!f32::is_finite(bits_of(to_float(in(b, row, col))))) return (b * in.rows + row) * in.cols + col;
  return -1;
}

}  // namespace detail

/// Quantizes a batch of matrices with one recipe. Cost: two reads of the weights, one write of the codes.
/// in: batch x rows x cols of float, bf16 or fp16, any strides. out.codes: the same shape, one byte each. out.scales:
/// batch x scale_rows x scale_cols, float, bf16 or e8m0. amax_floor: finite, >= 0. executor: serial, or
/// interop/openmp.hpp. body: which instructions do it; every one gives the same bytes. Expects: shapes agree, outputs
/// overlap nothing (overlap is unchecked). Throws: precondition_error, before any write. NaN, Inf, zero blocks, -0: as
/// the recipe's rule says; bytes are always written, and the status tells where the first NaN or Inf lies, so that the
/// caller can refuse the tensor. Empty tensors are fine. Ragged edges: `numerics::edge`. Exact: the bytes of the tool
/// that the preset names, see quant/presets; no compiler flag, FTZ or DAZ changes them. Threads: no shared state;
/// disjoint outputs may run concurrently.
template <any_recipe Recipe, class In, executor Executor = serial>
FP8WIRE_ALWAYS_INLINE constexpr status quantize(matrix_view<const In> in, pair_view<Recipe> out,
                                                float amax_floor = Recipe::num.amax_floor, Executor&& run = Executor{},
                                                isa body = best_isa()) {
  detail::expect_pair<Recipe, In>(in, out);
  detail::expect_floor(amax_floor);
  if (in.size() == 0) return {};
  bool nonfinite = false;
  if (__builtin_is_constant_evaluated()) {
    for (i64 band = 0; band < in.batch * out.scales.rows; ++band) {
      const i64 b = band / out.scales.rows, block_row = band % out.scales.rows;
      nonfinite |= reference::quantize_block_row<Recipe, In>(in.slice_of(b), block_row, out.codes.slice_of(b),
                                                             out.scales.slice_of(b), amax_floor);
    }
  } else {
    nonfinite =
        detail::FP8WIRE_CG::quantize_on_host<Recipe, In, false>({in, out.codes, out.scales, amax_floor}, run, body);
  }
  return {nonfinite ? detail::first_nonfinite<In>(in) : -1};
}

FP8WIRE_ABI_END
#endif
