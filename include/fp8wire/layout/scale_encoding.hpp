// SPDX-License-Identifier: Apache-2.0
/// Lossless changes of how scales are written: FP32 powers of two and E8M0, large blocks to small ones by repetition.
///
/// Codes stay as they are, so only a scale that means exactly the same number may be written. Whatever would lose a bit
/// is refused by the index of its block, and nothing is written then.
#ifndef FP8WIRE_LAYOUT_SCALE_ENCODING_HPP
#define FP8WIRE_LAYOUT_SCALE_ENCODING_HPP
#include <type_traits>

#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/format/e8m0.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// Whether E8M0 holds this FP32 number: +2^-127 (a subnormal) to +2^127. Zero, negative, Inf and NaN: no.
FP8WIRE_HD constexpr bool fits_e8m0(float scale) noexcept {
  const u32 bits = bits_of(scale);
  return bits == 0x00400000u || (f32::is_normal_power_of_two(bits) && (bits & f32::sign_mask) == 0);
}

/// The same number in E8M0. Expects: fits_e8m0(scale).
FP8WIRE_HD constexpr e8m0 exact_e8m0(float scale) noexcept { return {static_cast<u8>(bits_of(scale) >> 23)}; }

namespace detail {

template <class Scale> inline constexpr bool is_scale = std::is_same_v<Scale, float> || std::is_same_v<Scale, e8m0>;

template <class Out, class In> constexpr bool converts_exactly(In scale) noexcept {
  if constexpr (std::is_same_v<In, Out>) return true;
  else if constexpr (std::is_same_v<In, float>) return fits_e8m0(scale);
  else return scale.bits != e8m0::nan_code;
}

template <class Out, class In> constexpr Out convert_exactly(In scale) noexcept {
  if constexpr (std::is_same_v<In, Out>) return scale;
  else if constexpr (std::is_same_v<In, float>) return exact_e8m0(scale);
  else return to_float(scale);
}

}  // namespace detail

/// Writes scales in another encoding, each repeated row_times x col_times; answers the first block that cannot be, or
/// batch == -1 when all were written. Float and e8m0 in any combination; the codes they belong to stay valid unchanged.
/// in: block scales, row-major. out: every block repeated, the last row and column of blocks as often as fits.
/// Block 128 x 128 -> MXFP8: row_times 128, col_times 4 (K a multiple of 32). -> DeepGEMM's one row per row: 128, 1.
/// Refused: FP32 that is no positive power of two within E8M0, E8M0 byte FF. Same encoding: nothing is refused.
/// Throws precondition_error unless ceil(out.rows / row_times) == in.rows, the columns likewise.
/// Exact: the value of every block. Source: miles tools/convert_hf_to_mxfp8.py; DeepGEMM csrc/apis/layout.hpp:14-61.
template <class In, class Out>
constexpr index3 convert_scales(matrix_view<const In> in, matrix_view<Out> out, i64 row_times = 1, i64 col_times = 1) {
  static_assert(detail::is_scale<In> && detail::is_scale<Out>, "convert_scales: scales are float or fp8wire::e8m0");
  detail::expect_valid(in, "convert_scales: in");
  detail::expect_valid(out, "convert_scales: out");
  if (row_times < 1) detail::raise("convert_scales: row_times", row_times, 1);
  if (col_times < 1) detail::raise("convert_scales: col_times", col_times, 1);
  detail::expect_equal(out.batch, in.batch, "convert_scales: batches of out");
  detail::expect_equal(ceil_div(out.rows, row_times), in.rows, "convert_scales: block rows of out");
  detail::expect_equal(ceil_div(out.cols, col_times), in.cols, "convert_scales: block columns of out");
  for (i64 b = 0; b < in.batch; ++b)
    for (i64 row = 0; row < in.rows; ++row)
      for (i64 col = 0; col < in.cols; ++col)
        if (!detail::converts_exactly<Out>(in(b, row, col))) return {b, row, col};
  for (i64 b = 0; b < out.batch; ++b) {
    for (i64 row = 0; row < out.rows; ++row) {
      for (i64 col = 0; col < out.cols; ++col)
        out(b, row, col) = detail::convert_exactly<Out, In>(in(b, row / row_times, col / col_times));
    }
  }
  return {-1, -1, -1};
}

FP8WIRE_ABI_END
#endif
