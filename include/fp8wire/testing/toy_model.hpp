// SPDX-License-Identifier: Apache-2.0
/// A model of one megabyte that has whatever makes updates hard, and a learner that quantizes it, rightly or wrongly.
///
/// Fused projections, a square and a ragged matrix, routed experts in MXFP8 with one block a row, a router and norms
/// that stay BF16. Quantized by the scalar reference: slow, and needing no quantizer that is under test.
#ifndef FP8WIRE_TESTING_TOY_MODEL_HPP
#define FP8WIRE_TESTING_TOY_MODEL_HPP
#include <fp8wire/model/fusion.hpp>
#include <fp8wire/quant/presets/microscaling.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/reference.hpp>
#include <fp8wire/testing/fault_kinds.hpp>
#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN
namespace testing {

using toy_block = presets::vllm_block::recipe;
using toy_mx = presets::te_mxfp8::recipe;
using toy_block_wire = wire_format<toy_block, namings::vllm>;
using toy_mx_wire = wire_format<toy_mx, namings::sglang>;

enum class toy_encoding : u8 { block, mx, bf16, f32 };

struct toy_tensor {
  std::string name;
  std::vector<i64> shape;
  toy_encoding encoding = toy_encoding::block;
};

inline constexpr i64 toy_experts = 2;

/// In export order.
inline std::vector<toy_tensor> toy_tensors() {
  std::vector<toy_tensor> made = {{"model.embed_tokens.weight", {48, 64}, toy_encoding::bf16}};
  const std::string at = "model.layers.0.";
  const auto add = [&](const char* name, std::vector<i64> shape, toy_encoding encoding = toy_encoding::block) {
    made.push_back({at + name, std::move(shape), encoding});
  };
  add("input_layernorm.weight", {256}, toy_encoding::bf16);
  add("self_attn.q_proj.weight", {256, 256});
  add("self_attn.k_proj.weight", {128, 256});
  add("self_attn.v_proj.weight", {128, 256});
  add("self_attn.o_proj.weight", {256, 256});  // a square grid of blocks
  add("self_attn.k_scale", {1}, toy_encoding::f32);
  add("mlp.gate_proj.weight", {256, 256});
  add("mlp.up_proj.weight", {256, 256});
  add("mlp.down_proj.weight", {192, 320});  // ragged both ways: a grid of 2 x 3
  add("mlp.gate.weight", {toy_experts, 256}, toy_encoding::bf16);  // the router
  for (i64 e = 0; e < toy_experts; ++e) {
    const std::string expert = "mlp.experts." + std::to_string(e) + ".";
    for (const char* part : {"gate_proj.weight", "up_proj.weight"})
      made.push_back({at + expert + part, {32, 64}, toy_encoding::mx});
    made.push_back({at + expert + "down_proj.weight", {64, 32}, toy_encoding::mx});  // scales of [64, 1]
  }
  made.push_back({"model.layers.1.self_attn.o_proj.weight", {256, 256}, toy_encoding::block});
  return made;
}

/// What the learner sends and its engines expect.
inline manifest toy_manifest() {
  manifest made;
  for (const toy_tensor& one : toy_tensors()) {
    const std::string unit = fused_with(one.name);
    error wrong;
    switch (one.encoding) {
      case toy_encoding::block:
        wrong = made.add<toy_block_wire>(one.name, one.shape, toy_block::num.amax_floor, unit);
        break;
      case toy_encoding::mx: wrong = made.add<toy_mx_wire>(one.name, one.shape, toy_mx::num.amax_floor, unit); break;
      case toy_encoding::bf16: wrong = made.keep(one.name, dtype::bf16, one.shape); break;
      case toy_encoding::f32: wrong = made.keep(one.name, dtype::f32, one.shape); break;
    }
    if (wrong) detail::raise("the toy model is not a model", static_cast<i64>(wrong.code), 0);
  }
  return made;
}

/// FP32 master `i` of a tensor in a version: heavy-tailed, with bits that BF16 does not have, another in every version.
inline float toy_master(u64 version, u64 tensor, u64 i) noexcept {
  u64 state = version * 0x9E3779B97F4A7C15u + tensor * 0xD1B54A32D192ED03u + (i + 1) * 0x8CB92BA72F3D8DD7u;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  state = (state ^ state >> 27) * 0x94D049BB133111EBu;
  state ^= state >> 31;
  const float plain = static_cast<float>(static_cast<i64>(state >> 43) - (i64{1} << 20)) * 0x1p-22f;
  return (state & 0xFF) == 0 ? plain * 20.0f : plain;
}

/// Quantizes by the definition, one element after the other: what users' own tests may compare with.
/// Expects: shapes agree (unchecked). Cost: some 20 ns an element.
template <any_recipe Recipe, class In>
void quantize_by_reference(matrix_view<const In> in, pair_view<Recipe> out,
                           float amax_floor = Recipe::num.amax_floor) noexcept {
  for (i64 b = 0; b < in.batch; ++b)
    for (i64 row = 0; row < out.scales.rows; ++row)
      reference::quantize_block_row<Recipe, In>(in.slice_of(b), row, out.codes.slice_of(b), out.scales.slice_of(b),
                                                amax_floor);
}

/// Bytes of every entry of a manifest.
using entry_bytes = std::vector<std::vector<std::byte>>;

/// A weight's masters, exported as In, into bytes of an entry and of the one behind it.
template <any_recipe Recipe, class In>
void toy_quantize(const std::vector<float>& masters, const std::vector<i64>& shape, std::vector<std::byte>& codes,
                  std::vector<std::byte>& scales) {
  std::vector<In> weights(masters.size());
  for (std::size_t i = 0; i < masters.size(); ++i) {
    if constexpr (std::same_as<In, float>) weights[i] = masters[i];
    else weights[i] = to_bf16(masters[i]);
  }
  using stored = stored_t<Recipe>;
  quantize_by_reference<Recipe, In>(
      dense<const In>(weights.data(), shape[0], shape[1]),
      {dense(reinterpret_cast<u8*>(codes.data()), shape[0], shape[1]),
       dense(reinterpret_cast<stored*>(scales.data()), scale_rows<typename Recipe::block>(shape[0]),
             scale_cols<typename Recipe::block>(shape[1]))});
}

/// The grid of a learner that pads with the last element. Spelt out: nvcc 13 loses the name of with_numerics' argument.
using toy_block_padded =
    recipe<toy_block::element, toy_block::block, toy_block::rule,
           numerics{.amax_floor = toy_block::num.amax_floor, .edge = edge_pad::last_element}>;

/// The bytes of one version as the learner exports them. Faults of grids and of scales are made here, in all weights or
/// in one; any other kind changes nothing.
inline entry_bytes toy_export(const manifest& tensors, u64 version, fault kind = fault::none) {
  entry_bytes made;
  for (const manifest_entry& entry : tensors.entries()) made.emplace_back(static_cast<std::size_t>(entry.bytes));
  const std::vector<toy_tensor> all = toy_tensors();
  for (std::size_t t = 0; t < all.size(); ++t) {
    const toy_tensor& one = all[t];
    const std::size_t at = static_cast<std::size_t>(tensors.find(one.name));
    i64 count = 1;
    for (const i64 extent : one.shape) count *= extent;
    std::vector<float> masters(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < masters.size(); ++i) masters[i] = toy_master(version, t, i);
    switch (one.encoding) {
      case toy_encoding::bf16:
        for (std::size_t i = 0; i < masters.size(); ++i) {
          const bf16 value = to_bf16(masters[i]);
          __builtin_memcpy(made[at].data() + 2 * i, &value, 2);
        }
        break;
      case toy_encoding::f32: __builtin_memcpy(made[at].data(), masters.data(), made[at].size()); break;
      case toy_encoding::block: {
        masters.back() = 30.0f;  // where the last element stands out, padding with it shows
        const bool wrong_edge = kind == fault::grid_edge_padding, from_masters = kind == fault::grid_f32_master;
        if (wrong_edge) toy_quantize<toy_block_padded, bf16>(masters, one.shape, made[at], made[at + 1]);
        else if (from_masters) toy_quantize<toy_block, float>(masters, one.shape, made[at], made[at + 1]);
        else toy_quantize<toy_block, bf16>(masters, one.shape, made[at], made[at + 1]);
        break;
      }
      case toy_encoding::mx: {
        using floored = presets::ocp_mxfp8::recipe;
        if (kind == fault::grid_floor) toy_quantize<floored, bf16>(masters, one.shape, made[at], made[at + 1]);
        else toy_quantize<toy_mx, bf16>(masters, one.shape, made[at], made[at + 1]);
        break;
      }
    }
  }
  return made;
}

/// Puts one bad scale or code among good ones, as a broken quantizer would; true for kinds that do.
inline bool damage_pair(fault kind, dtype scale, std::span<std::byte> codes, std::span<std::byte> scales) noexcept {
  u32 bits = 0;
  switch (kind) {
    case fault::zero_scale: bits = 0; break;
    case fault::negative_scale: bits = 0xBF800000u; break;
    case fault::inf_scale: bits = f32::infinity; break;
    case fault::nan_scale: bits = f32::nan; break;
    case fault::scale_255:
      if (scale == dtype::f32 || scale == dtype::bf16 || scales.empty()) return false;
      return scales[scales.size() / 2] = std::byte{0xFF}, true;
    case fault::nan_code:
      if (codes.empty()) return false;
      return codes[codes.size() / 2] = std::byte{0x7F}, true;
    default: return false;
  }
  if (scale == dtype::bf16 && scales.size() >= 2) {
    const u16 upper = static_cast<u16>(bits >> 16);
    __builtin_memcpy(scales.data() + scales.size() / 4 * 2, &upper, 2);
    return true;
  }
  if (scale != dtype::f32 || scales.size() < 4) return false;
  __builtin_memcpy(scales.data() + scales.size() / 8 * 4, &bits, 4);
  return true;
}

}  // namespace testing
FP8WIRE_ABI_END
#endif
