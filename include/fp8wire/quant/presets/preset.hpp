// SPDX-License-Identifier: Apache-2.0
/// What a preset is: a recipe under the name of the tool whose bytes it makes.
#ifndef FP8WIRE_QUANT_PRESETS_PRESET_HPP
#define FP8WIRE_QUANT_PRESETS_PRESET_HPP
#include <fp8wire/quant/recipe.hpp>

FP8WIRE_ABI_BEGIN

/// A preset is a struct with these members; `scale` tells variants of one name apart ("fp32", "pow2", "e8m0").
template <class Preset>
concept preset = any_recipe<typename Preset::recipe> && requires {
  { Preset::name } -> std::convertible_to<std::string_view>;    // as --recipe takes it: lower case, hyphens
  { Preset::scale } -> std::convertible_to<std::string_view>;
  { Preset::naming } -> std::convertible_to<std::string_view>;  // the naming it travels under unless told otherwise
  { Preset::source } -> std::convertible_to<std::string_view>;  // tool, file and commit
  { Preset::modelled } -> std::convertible_to<bool>;            // true until a run on a GPU has confirmed the bytes
};

namespace presets {

/// What a preset derives from; `Modelled` presets wait for a run on a GPU to confirm their bytes.
template <any_recipe Recipe, bool Modelled = false> struct entry {
  using recipe = Recipe;
  static constexpr bool modelled = Modelled;
};

}  // namespace presets
FP8WIRE_ABI_END
#endif
