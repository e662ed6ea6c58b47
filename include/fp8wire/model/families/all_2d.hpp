// SPDX-License-Identifier: Apache-2.0
/// all-2d: every matrix named *.weight but those that no family quantizes; what a bare file gets.
#ifndef FP8WIRE_MODEL_FAMILIES_ALL_2D_HPP
#define FP8WIRE_MODEL_FAMILIES_ALL_2D_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr family_rule all_2d_rules[] = {{"**", verdict::quantized, "matrix"}};
inline constexpr family all_2d{"all-2d", {}, all_2d_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
