// SPDX-License-Identifier: Apache-2.0
/// How a preset type becomes a row of the table. Included only by the translation units that share the presets out.
#ifndef FP8WIRE_EXAMPLES_QUANTIZER_ROWS_HPP
#define FP8WIRE_EXAMPLES_QUANTIZER_ROWS_HPP
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include <fp8wire/format/bf16.hpp>
#include <fp8wire/format/fp16.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/quantize.hpp>
#include <fp8wire/quant/verify.hpp>

#include "quantizer.hpp"

namespace programs {

/// Calls function(view) with the weights under their own type.
template <class Function> auto with_view(const weights& in, Function&& function) {
  const auto view = [&]<class In>(const In* data) {
    return function(fp8wire::dense(data, in.extents.rows, in.extents.cols, in.extents.batch));
  };
  switch (in.type) {
    case fp8wire::dtype::bf16: return view(static_cast<const fp8wire::bf16*>(in.data));
    case fp8wire::dtype::f16: return view(static_cast<const fp8wire::fp16*>(in.data));
    default: return view(static_cast<const float*>(in.data));
  }
}

/// A recipe's functions over untyped memory.
template <class Recipe> struct row_of {
  using stored = fp8wire::stored_t<Recipe>;
  static constexpr fp8wire::numerics through_bf16 = [] {
    fp8wire::numerics changed = Recipe::num;
    changed.f32_through_bf16 = true;
    return changed;
  }();
  using via = fp8wire::with_numerics<Recipe, through_bf16>;

  static constexpr std::array<float, 256> values = [] {
    std::array<float, 256> table{};
    for (std::size_t code = 0; code < 256; ++code)
      table[code] = Recipe::element::decode(static_cast<fp8wire::u8>(code));
    return table;
  }();

  template <class T, class In> static auto codes_of(T* codes, const fp8wire::matrix_view<In>& in) {
    return fp8wire::dense(codes, in.rows, in.cols, in.batch);
  }
  template <class T, class In> static auto scales_of(T* scales, const fp8wire::matrix_view<In>& in) {
    using block = typename Recipe::block;
    return fp8wire::dense(scales, fp8wire::scale_rows<block>(in.rows), fp8wire::scale_cols<block>(in.cols), in.batch);
  }

  static std::string grid_text(float amax_floor, bool via_bf16) {
    return std::string(via_bf16 ? fp8wire::detail::grid_text<via>(amax_floor).view()
                                : fp8wire::detail::grid_text<Recipe>(amax_floor).view());
  }
  static bool quantize(const weights& weight, void* codes, void* scales, float amax_floor, bool via_bf16,
                       workers& threads) {
    if (via_bf16 && weight.type == fp8wire::dtype::f32)
      return quantize_rounded(weight, codes, scales, amax_floor, threads);
    return with_view(weight, [&]<class In>(fp8wire::matrix_view<const In> in) {
      const fp8wire::pair_view<Recipe> out{codes_of(static_cast<fp8wire::u8*>(codes), in),
                                           scales_of(static_cast<stored*>(scales), in)};
      return fp8wire::quantize<Recipe, In>(in, out, amax_floor, threads).finite();
    });
  }
  /// FP32 weights as the BF16 weights that they round to: the same bytes as the recipe with f32_through_bf16, without a
  /// second instantiation of every quantizer. verify() compares with that recipe.
  static bool quantize_rounded(const weights& weight, void* codes, void* scales, float amax_floor, workers& threads) {
    const auto* data = static_cast<const float*>(weight.data);
    const fp8wire::i64 rows = weight.extents.batch * weight.extents.rows, cols = weight.extents.cols;
    std::vector<fp8wire::bf16> rounded(static_cast<std::size_t>(rows * cols));
    std::atomic<bool> finite = true;
    threads.run(rows, [&](fp8wire::i64 row) {
      for (fp8wire::i64 i = row * cols; i < (row + 1) * cols; ++i) {
        if (!fp8wire::f32::is_finite(fp8wire::bits_of(data[i]))) finite = false;
        rounded[static_cast<std::size_t>(i)] = fp8wire::to_bf16(data[i]);
      }
    });
    quantize({fp8wire::dtype::bf16, rounded.data(), weight.extents}, codes, scales, amax_floor, false, threads);
    return finite;  // of the weights themselves: the largest ones round to Inf
  }
  static fp8wire::mismatch verify(const weights& weight, const void* codes, const void* scales, float amax_floor,
                                  bool via_bf16) {
    return with_view(weight, [&]<class In>(fp8wire::matrix_view<const In> in) {
      const auto code_view = codes_of(static_cast<const fp8wire::u8*>(codes), in);
      const auto scale_view = scales_of(static_cast<const stored*>(scales), in);
      if constexpr (std::same_as<In, float>)
        if (via_bf16) return fp8wire::verify<via, In>(in, {code_view, scale_view}, amax_floor);
      return fp8wire::verify<Recipe, In>(in, {code_view, scale_view}, amax_floor);
    });
  }
  static fp8wire::result<std::vector<fp8wire::tensor_spec>> tensors(std::string_view weight,
                                                                    const std::vector<fp8wire::i64>& shape) {
    return fp8wire::wire_format<Recipe, chosen_naming>::tensors(weight, shape);
  }
  static block_outcome block_of(fp8wire::dtype input, float amax, float amax_floor) {
    const fp8wire::u32 bits = fp8wire::bits_of(amax);
    const auto outcome = [&]<class In>(In weight) -> block_outcome {
      const auto pair = fp8wire::reference::block_scale<Recipe, In>(bits, amax_floor);
      return {fp8wire::detail::stored_bits(pair.stored), fp8wire::reference::encode<Recipe, In>(weight, pair.operand)};
    };
    if (input == fp8wire::dtype::bf16) return outcome(fp8wire::to_bf16(amax));
    return outcome(amax);
  }
};

template <class Preset> quantizer make_row() {
  using recipe = typename Preset::recipe;
  using functions = row_of<recipe>;
  constexpr bool exponents = std::same_as<typename functions::stored, fp8wire::e8m0>;
  constexpr bool halves = std::same_as<typename functions::stored, fp8wire::bf16>;
  quantizer row;
  row.name = Preset::name;
  row.scale = Preset::scale;
  row.naming = Preset::naming;
  row.source = Preset::source;
  row.element = recipe::element::id;
  row.block = fp8wire::block_name<typename recipe::block>();
  row.modelled = Preset::modelled;
  row.microscaling = fp8wire::is_microscaling<recipe>;
  row.always_via_bf16 = recipe::num.f32_through_bf16;
  row.pads_edges = recipe::num.edge != fp8wire::edge_pad::zero;
  row.amax_floor = recipe::num.amax_floor;
  row.block_rows = recipe::block::rows;
  row.block_cols = recipe::block::cols;
  row.codes = recipe::element::stored_as;
  row.stored = exponents ? fp8wire::dtype::f8_e8m0 : halves ? fp8wire::dtype::bf16 : fp8wire::dtype::f32;
  row.values = functions::values.data();
  row.grid_text = functions::grid_text;
  row.tensors = functions::tensors;
  row.quantize = functions::quantize;
  row.verify = functions::verify;
  row.block_of = functions::block_of;
  return row;
}

struct numbered_row {
  std::size_t number;
  quantizer row;
};

/// Presets that share their kernels, so that one translation unit compiles both.
enum class row_group { microscaling, multiplied, divided };
template <class Recipe> constexpr row_group group_of() noexcept {
  if (fp8wire::is_microscaling<Recipe>) return row_group::microscaling;
  const bool multiplied = std::derived_from<typename Recipe::rule, fp8wire::rules::multiplies>;
  return multiplied ? row_group::multiplied : row_group::divided;
}

/// The rows of every preset of a group.
template <row_group Group> std::vector<numbered_row> make_rows() {
  std::vector<numbered_row> rows;
  std::size_t number = 0;
  fp8wire::presets::for_each([&]<class Preset>() {
    if constexpr (group_of<typename Preset::recipe>() == Group) rows.push_back({number, make_row<Preset>()});
    ++number;
  });
  return rows;
}

// One translation unit each, so that a build with several jobs compiles them side by side.
std::vector<numbered_row> microscaling_rows();
std::vector<numbered_row> multiplied_rows();
std::vector<numbered_row> divided_rows();

}  // namespace programs
#endif
