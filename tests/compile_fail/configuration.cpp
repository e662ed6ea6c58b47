// SPDX-License-Identifier: Apache-2.0
// FP8 parameters that no step ever reaches.
// EXPECT: the configuration breaks the rule that this type names
// EXPECT: persistent_without_gather
#include <fp8wire/model/configuration.hpp>

using namespace fp8wire;

constexpr configuration chosen = [] {
  configuration made;
  made.policy = {.present = true, .recipe = fp8_recipe::blockwise, .scale = scale_type::fp32, .persistent = true};
  made.fp32_scales = toggle::on;
#ifdef FIXED
  made.policy.gather = true;
#endif
  return made;
}();
inline constexpr bool persistent = checked_configuration<chosen>::value.policy.persistent;
