// SPDX-License-Identifier: Apache-2.0
// make and apply run in kernels and must be noexcept.
// EXPECT: static noexcept make\(amax, limits\) and apply\(element, operand\)
#include <fp8wire/quant/recipe.hpp>

#ifdef FIXED
#define MAY_THROW noexcept
#else
#define MAY_THROW
#endif
struct throwing {
  using stored = float;
  static constexpr std::string_view id = "throwing";
  static constexpr bool nan_poisons_amax = false;
  static constexpr fp8wire::scale_pair<float> make(float amax, fp8wire::limits) MAY_THROW { return {amax, amax}; }
  static constexpr float apply(float element, float operand) noexcept { return fp8wire::ieee::div(element, operand); }
};
inline constexpr auto floor_of = fp8wire::recipe<fp8wire::e4m3, fp8wire::block<1, 32>, throwing>::num.amax_floor;
