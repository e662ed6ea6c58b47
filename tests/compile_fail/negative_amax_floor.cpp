// SPDX-License-Identifier: Apache-2.0
// A floor below zero would be no floor.
// EXPECT: the amax floor of a recipe must be finite and not negative: use numerics\{.amax_floor = 1e-10f\}
#include <fp8wire/quant/recipe.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

#ifdef FIXED
constexpr fp8wire::numerics numbers{.amax_floor = 1e-4f};
#else
constexpr fp8wire::numerics numbers{.amax_floor = -1e-4f};
#endif
using floored = fp8wire::recipe<fp8wire::e4m3, fp8wire::block<128, 128>, fp8wire::rules::quotient, numbers>;
inline constexpr auto floor_of = floored::num.amax_floor;
