// SPDX-License-Identifier: Apache-2.0
// A storage type is not an element format.
// EXPECT: the element of a recipe must be a format: give it static noexcept encode\(float\), decode\(code\)
#include <fp8wire/quant/recipe.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

#ifdef FIXED
using element = fp8wire::e4m3;
#else
using element = unsigned char;
#endif
using wanted = fp8wire::recipe<element, fp8wire::block<128, 128>, fp8wire::rules::quotient>;
inline constexpr auto floor_of = wanted::num.amax_floor;
