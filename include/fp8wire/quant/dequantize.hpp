// SPDX-License-Identifier: Apache-2.0
/// Codes and scales back to weights on the host.
#ifndef FP8WIRE_QUANT_DEQUANTIZE_HPP
#define FP8WIRE_QUANT_DEQUANTIZE_HPP
#include <fp8wire/quant/quantize.hpp>

FP8WIRE_ABI_BEGIN

/// weight = value of the code * stored scale, rounded to FP32 once and then to Out.
/// in: batch x rows x cols codes and their scales. out: the same shape of float, bf16 or fp16, any strides.
/// NaN codes give NaN; a NaN scale (E8M0 255) makes its block NaN. Throws: precondition_error, before any write.
/// Exact: equal to torch's `codes.float() * scales` (block scales repeated) followed by `.to(dtype)`, NaN signs aside.
/// Threads: as quantize.
template <any_recipe Recipe, class Out, executor Executor = serial>
FP8WIRE_ALWAYS_INLINE constexpr void dequantize(const_pair_view<Recipe> in, matrix_view<Out> out,
                                                Executor&& run = Executor{}, isa body = best_isa()) {
  detail::expect_pair<Recipe, Out>(out, in);
  if (out.size() == 0) return;
  if (__builtin_is_constant_evaluated()) {
    const i64 height = detail::block_extent(Recipe::block::rows, out.rows);
    const i64 width = detail::block_extent(Recipe::block::cols, out.cols);
    for (i64 b = 0; b < out.batch; ++b)
      for (i64 row = 0; row < out.rows; ++row)
        for (i64 col = 0; col < out.cols; ++col)
          out(b, row, col) = from_float<Out>(
              reference::decode<Recipe>(in.codes(b, row, col), in.scales(b, row / height, col / width)));
  } else {
    detail::FP8WIRE_CG::dequantize_on_host<Recipe, Out>({in.codes, in.scales, out}, run, body);
  }
}

FP8WIRE_ABI_END
#endif
