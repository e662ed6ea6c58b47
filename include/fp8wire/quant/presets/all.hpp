// SPDX-License-Identifier: Apache-2.0
/// The one list of presets that programs, tests and grid matching share.
#ifndef FP8WIRE_QUANT_PRESETS_ALL_HPP
#define FP8WIRE_QUANT_PRESETS_ALL_HPP
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// A list of preset types; a name's first entry is its default scale.
template <preset... Presets> struct list {};

using all = list<vllm_block, te_block, te_block_pow2, te_mxfp8>;

namespace detail {
template <class Function, preset... Presets> constexpr void each(list<Presets...>, Function&& function) {
  (function.template operator()<Presets>(), ...);
}
template <class Function, preset... Presets>
constexpr bool first(list<Presets...>, std::string_view name, std::string_view scale, Function&& function) {
  const auto matches = [&]<class Preset>() {
    return Preset::name == name && (scale.empty() || Preset::scale == scale);
  };
  return ((matches.template operator()<Presets>() && (function.template operator()<Presets>(), true)) || ...);
}
}  // namespace detail

/// Calls function.operator()<Preset>() for every preset, in the list's order.
template <class Function> constexpr void for_each(Function&& function) { detail::each(all{}, function); }

/// Calls function.operator()<Preset>() for the preset of that name; `scale` empty means the name's default.
/// Returns false, calling nothing, where there is none.
template <class Function> constexpr bool visit(std::string_view name, std::string_view scale, Function&& function) {
  return detail::first(all{}, name, scale, function);
}

}  // namespace presets
FP8WIRE_ABI_END
#endif
