// SPDX-License-Identifier: Apache-2.0
/// E5M2: largest 57344, with Inf and NaN as IEEE has them.
#ifndef FP8WIRE_FORMAT_E5M2_HPP
#define FP8WIRE_FORMAT_E5M2_HPP
#include <fp8wire/format/minifloat.hpp>

FP8WIRE_ABI_BEGIN

/// The gradients' element; saturating (Inf becomes 57344), NaN is 7F.
/// Exact: `cvt.rn.satfinite.e5m2x2.f32` as emulated by cuda_fp8.hpp of CUDA 13.0, all 2^32 inputs.
struct e5m2 : minifloat<minifloat_shape{5, 2, 15, specials::ieee}> {
  static constexpr std::string_view id = "e5m2";
  static constexpr dtype stored_as = dtype::f8_e5m2;
};

/// E5M2 as another converter encodes it: e5m2_as<casts::ml_dtypes>.
template <cast_policy Policy> struct e5m2_as : minifloat<e5m2::shape, Policy> {
  static constexpr std::string_view id = detail::cast_id_of<e5m2, Policy>.view();
  static constexpr dtype stored_as = e5m2::stored_as;
};

FP8WIRE_ABI_END
#endif
