// SPDX-License-Identifier: Apache-2.0
// A rule that lacks a member is told what a rule has.
// EXPECT: the rule of a recipe must be a scale rule: give it stored \(float, bf16 or e8m0\), id, nan_poisons_amax, and
#include <fp8wire/quant/recipe.hpp>

struct half_a_rule {
  using stored = float;
  static constexpr std::string_view id = "half";
  static constexpr bool nan_poisons_amax = false;
  static constexpr fp8wire::scale_pair<float> make(float amax, fp8wire::limits) noexcept { return {amax, amax}; }
#ifdef FIXED
  static constexpr float apply(float element, float operand) noexcept { return fp8wire::ieee::div(element, operand); }
#endif
};
using broken = fp8wire::recipe<fp8wire::e4m3, fp8wire::block<128, 128>, half_a_rule>;
inline constexpr auto id = fp8wire::detail::grid_text<broken>(broken::num.amax_floor);
