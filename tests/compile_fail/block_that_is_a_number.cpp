// SPDX-License-Identifier: Apache-2.0
// A block is a shape of two extents.
// EXPECT: the block of a recipe must have int rows and cols: use fp8wire::block<128, 128>
#include <fp8wire/quant/recipe.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

#ifdef FIXED
using shape = fp8wire::block<128, 128>;
#else
using shape = int;
#endif
inline constexpr auto floor_of = fp8wire::recipe<fp8wire::e4m3, shape, fp8wire::rules::quotient>::num.amax_floor;
