// SPDX-License-Identifier: Apache-2.0
/// The one list of presets that programs, tests and grid matching share.
#ifndef FP8WIRE_QUANT_PRESETS_ALL_HPP
#define FP8WIRE_QUANT_PRESETS_ALL_HPP
#include <fp8wire/quant/presets/compressed_tensors.hpp>
#include <fp8wire/quant/presets/deepgemm.hpp>
#include <fp8wire/quant/presets/flashinfer.hpp>
#include <fp8wire/quant/presets/microscaling.hpp>
#include <fp8wire/quant/presets/nemo.hpp>
#include <fp8wire/quant/presets/sglang.hpp>
#include <fp8wire/quant/presets/skyrl.hpp>
#include <fp8wire/quant/presets/torchao.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

FP8WIRE_ABI_BEGIN
namespace presets {

/// A list of preset types; a name's first entry has its default scale, element and block.
template <preset... Presets> struct list {};

using all = list<vllm_block, vllm_block_pow2,                                                                      //
                 te_block, te_block_pow2, te_block_e5m2, te_block_e5m2_pow2, te_row_block, te_row_block_pow2,      //
                 te_sharded, te_sharded_pow2,                                                                      //
                 te_mxfp8, te_mxfp8_e5m2, te_mxfp8_columnwise, te_mxfp8_fma, te_mxfp8_sharded,                     //
                 skyrl_block, skyrl_block_pow2, skyrl_block_cpu, skyrl_block_cpu_pow2,                             //
                 deepgemm_block, deepgemm_block_pow2, deepgemm_block_e8m0,                                         //
                 deepgemm_block_cpu, deepgemm_block_cpu_pow2, deepgemm_block_cpu_e8m0,                             //
                 triton_block, sgl_kernel_block, sglang_approximate_block,                                         //
                 nemo_block, nemo_block_pow2, torchao_block,                                                       //
                 compressed_tensors_block, compressed_tensors_block_fp32, compressed_tensors_mxfp8,                //
                 vllm_mxfp8_fallback, nemo_mxfp8, vllm_mxfp8, skyrl_mxfp8, flashinfer_mxfp8,                       //
                 torchao_mxfp8_floor, torchao_mxfp8_rceil, torchao_mxfp8_ceil, torchao_mxfp8_even,                 //
                 ocp_mxfp8, fbgemm_mxfp8_even, microxcaling_mxfp8>;

/// What a user may say of a preset; an empty field means the name's default.
struct choice {
  std::string_view name, scale = {}, element = {}, block = {};
};

namespace detail {
template <class Preset> constexpr bool matches(const choice& wanted) noexcept {
  using recipe = typename Preset::recipe;
  // "e4m3" for every encoder of E4M3: how a tool treats NaN is the preset's business, not the user's.
  constexpr std::string_view element = recipe::element::id;
  std::size_t slash = 0;  // std::string_view::find is no constant expression to g++ 12 under -fsanitize=undefined
  while (slash < element.size() && element[slash] != '/') ++slash;
  const std::string_view stem = element.substr(0, slash);
  return Preset::name == wanted.name && (wanted.scale.empty() || Preset::scale == wanted.scale) &&
         (wanted.element.empty() || element == wanted.element ||
          stem == wanted.element || (stem == e4m3::id && wanted.element == "e4m3")) &&
         (wanted.block.empty() || block_name<typename recipe::block>() == wanted.block);
}
template <class Function, preset... Presets> constexpr void each(list<Presets...>, Function&& function) {
  (function.template operator()<Presets>(), ...);
}
template <class Function, preset... Presets>
constexpr bool first(list<Presets...>, const choice& wanted, Function&& function) {
  return ((matches<Presets>(wanted) && (function.template operator()<Presets>(), true)) || ...);
}
}  // namespace detail

/// Calls function.operator()<Preset>() for every preset, in the list's order.
template <class Function> constexpr void for_each(Function&& function) { detail::each(all{}, function); }

/// Calls function.operator()<Preset>() for the first preset that has all of the wanted fields.
/// Returns false, calling nothing, where there is none.
template <class Function> constexpr bool visit(const choice& wanted, Function&& function) {
  return detail::first(all{}, wanted, function);
}
/// The same by name and scale.
template <class Function> constexpr bool visit(std::string_view name, std::string_view scale, Function&& function) {
  return visit(choice{name, scale}, function);
}

}  // namespace presets
FP8WIRE_ABI_END
#endif
