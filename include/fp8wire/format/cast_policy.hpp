// SPDX-License-Identifier: Apache-2.0
/// What an encoder does where converters disagree: ties, overflow, Inf and NaN, field by field and tool by tool.
#ifndef FP8WIRE_FORMAT_CAST_POLICY_HPP
#define FP8WIRE_FORMAT_CAST_POLICY_HPP
#include <fp8wire/core/bits.hpp>
#include <fp8wire/detail/text.hpp>

FP8WIRE_ABI_BEGIN

/// All converters agree on finite values that do not overflow (but for ties of `nearest_away`); the fields are the
/// rest.
/// docs/numerics.md has the table of who does what.
struct cast_policy {
  enum class rounding : u8 { nearest_even, nearest_away };
  enum class overflow : u8 { saturate, special };  // special: Inf, or NaN where the format has no Inf
  enum class nan_to : u8 { positive_nan, signed_nan, positive_max, negative_max, signed_max, zero };

  rounding round = rounding::nearest_even;
  overflow beyond_largest = overflow::saturate;  // finite values that round beyond the largest
  overflow infinity = overflow::saturate;  // Inf itself
  nan_to nan = nan_to::positive_nan;
  bool quiet_nan_is_lowest = false;  // E5M2 NaN is 7E, not 7F
};

namespace casts {
using over = cast_policy::overflow;
using nan_to = cast_policy::nan_to;

/// CUDA `__NV_SATFINITE`, `cvt.rn.satfinite`, CUTLASS and Transformer Engine: the default.
inline constexpr cast_policy cuda_saturating{};
/// CUDA `__NV_NOSAT`.
inline constexpr cast_policy cuda_not_saturating{.beyond_largest = over::special, .infinity = over::special};
/// torch.Tensor.to before 2.12, and E5M2 still (2.15 ran); FNUZ forms too.
inline constexpr cast_policy torch_before_2_12{
    .beyond_largest = over::special, .infinity = over::special, .nan = nan_to::signed_nan};
/// torch.Tensor.to(float8_e4m3fn) from 2.12 on (2.15.0 ran): saturates, Inf too; NaN keeps its sign. So does torchao's
/// clamp followed by the older cast.
inline constexpr cast_policy torch_saturating{.nan = nan_to::signed_nan};
/// ml_dtypes astype.
inline constexpr cast_policy ml_dtypes{
    .beyond_largest = over::special, .infinity = over::special, .nan = nan_to::signed_nan, .quiet_nan_is_lowest = true};
/// ml_dtypes ConvertFrom with saturation: Inf is looked at first and stays special.
inline constexpr cast_policy ml_dtypes_saturating{
    .infinity = over::special, .nan = nan_to::signed_nan, .quiet_nan_is_lowest = true};
/// fminf(fmaxf(x, -max), max) before the cast turns NaN into -max: vLLM's and SGLang's group quantization.
inline constexpr cast_policy clamp_nan_to_lowest{.nan = nan_to::negative_max};
/// fmaxf(-max, fminf(x, max)) before the cast turns NaN into +max: vLLM's scaled_fp8_conversion.
inline constexpr cast_policy clamp_nan_to_largest{.nan = nan_to::positive_max};
/// MLX's Metal encoder, and Triton's clamp on SM90 (min.xorsign.abs): NaN becomes the largest value of its sign.
inline constexpr cast_policy clamp_nan_to_signed_largest{.nan = nan_to::signed_max};
/// Ascend's saturating conversion: NaN becomes zero.
inline constexpr cast_policy ascend_saturating{.nan = nan_to::zero};
/// microxcaling's default rounding.
inline constexpr cast_policy ties_away{.round = cast_policy::rounding::nearest_away};
}  // namespace casts

namespace detail {

/// The format's name and every field that is not the default; hashed into grid ids, so its wording is frozen.
constexpr short_text cast_id(std::string_view format, cast_policy policy) noexcept {
  constexpr std::string_view nan_names[] = {"nan", "signed_nan", "+max", "-max", "signed_max", "0"};
  short_text text;
  text << format;
  if (policy.round != cast_policy::rounding::nearest_even) text << "/ties=away";
  if (policy.beyond_largest != cast_policy::overflow::saturate) text << "/over=special";
  if (policy.infinity != cast_policy::overflow::saturate) text << "/inf=special";
  if (policy.nan != cast_policy::nan_to::positive_nan) text << "/nan=" << nan_names[static_cast<int>(policy.nan)];
  if (policy.quiet_nan_is_lowest) text << "/qnan=lowest";
  return text;
}

/// cast_id as a constant with an address.
template <class Format, cast_policy Policy> inline constexpr short_text cast_id_of = cast_id(Format::id, Policy);

}  // namespace detail
FP8WIRE_ABI_END
#endif
