// SPDX-License-Identifier: Apache-2.0
// Byte 255 is NaN, not a scale.
// EXPECT: the smallest byte of an E8M0 rule is 0..254: 255 is NaN
#include <fp8wire/quant/rules/microscaling.hpp>

#ifdef FIXED
constexpr fp8wire::mx_policy policy{.smallest_byte = 1};
#else
constexpr fp8wire::mx_policy policy{.smallest_byte = 255};
#endif
inline constexpr bool poisons = fp8wire::rules::mx<policy>::nan_poisons_amax;
