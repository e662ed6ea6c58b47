// SPDX-License-Identifier: Apache-2.0
/// AMD's FNUZ forms of E4M3 and E5M2, and the exact way there from the OCP forms.
#ifndef FP8WIRE_FORMAT_FNUZ_HPP
#define FP8WIRE_FORMAT_FNUZ_HPP
#include <fp8wire/format/e4m3.hpp>
#include <fp8wire/format/e5m2.hpp>

FP8WIRE_ABI_BEGIN

/// E4M3FNUZ: bias 8, largest 240, 80 is the only NaN, no -0; saturating.
/// Exact: ml_dtypes' and torch's float8_e4m3fnuz up to the largest value; e4m3fnuz_as<casts::ml_dtypes> beyond it too.
struct e4m3fnuz : minifloat<minifloat_shape{4, 3, 8, specials::fnuz}> {
  static constexpr std::string_view id = "e4m3fnuz";
  static constexpr dtype stored_as = dtype::f8_e4m3fnuz;
};
/// E5M2FNUZ: bias 16, largest 57344, 80 is the only NaN, no -0; saturating.
struct e5m2fnuz : minifloat<minifloat_shape{5, 2, 16, specials::fnuz}> {
  static constexpr std::string_view id = "e5m2fnuz";
  static constexpr dtype stored_as = dtype::f8_e5m2fnuz;
};

/// The FNUZ forms as another converter encodes them.
template <cast_policy Policy> struct e4m3fnuz_as : minifloat<e4m3fnuz::shape, Policy> {
  static constexpr std::string_view id = detail::cast_id_of<e4m3fnuz, Policy>.view();
  static constexpr dtype stored_as = e4m3fnuz::stored_as;
};
template <cast_policy Policy> struct e5m2fnuz_as : minifloat<e5m2fnuz::shape, Policy> {
  static constexpr std::string_view id = detail::cast_id_of<e5m2fnuz, Policy>.view();
  static constexpr dtype stored_as = e5m2fnuz::stored_as;
};

/// The FNUZ code of half the value of an OCP code; double the scale, once, and every weight keeps its value.
/// The bits stay, since the bias is one larger; -0 becomes 00, which FNUZ would read as NaN; Inf and NaN become 80.
/// Exact: no finite value changes, subnormals included.
template <class Format>
  requires(Format::shape.kind != specials::fnuz)
FP8WIRE_HD constexpr u8 to_fnuz(u8 code) noexcept {
  if (Format::is_nan(code) || (Format::shape.kind == specials::ieee && (code & 0x7F) == Format::infinity_code))
    return 0x80;
  return code == 0x80 ? u8{0} : code;
}

FP8WIRE_ABI_END
#endif
