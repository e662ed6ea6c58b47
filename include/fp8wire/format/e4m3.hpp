// SPDX-License-Identifier: Apache-2.0
/// E4M3 in its OCP form (e4m3fn): largest 448, no Inf, NaN 7F and FF.
#ifndef FP8WIRE_FORMAT_E4M3_HPP
#define FP8WIRE_FORMAT_E4M3_HPP
#include <fp8wire/format/minifloat.hpp>

FP8WIRE_ABI_BEGIN

/// The element of nearly every FP8 weight; saturating, NaN is 7F.
/// Exact: `cvt.rn.satfinite.e4m3x2.f32` as emulated by cuda_fp8.hpp of CUDA 13.0, all 2^32 inputs.
struct e4m3 : minifloat<minifloat_shape{4, 3, 7, specials::fn}> {
  static constexpr std::string_view id = "e4m3fn";
  static constexpr dtype stored_as = dtype::f8_e4m3;
};

/// E4M3 as another converter encodes it: e4m3_as<casts::torch_before_2_12>.
template <cast_policy Policy> struct e4m3_as : minifloat<e4m3::shape, Policy> {
  static constexpr std::string_view id = detail::cast_id_of<e4m3, Policy>.view();
  static constexpr dtype stored_as = e4m3::stored_as;
};

FP8WIRE_ABI_END
#endif
