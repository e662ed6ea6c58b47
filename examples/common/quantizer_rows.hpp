// SPDX-License-Identifier: Apache-2.0
/// How a preset type becomes a row of the table. Included only by the translation units that share the presets out.
#ifndef FP8WIRE_EXAMPLES_QUANTIZER_ROWS_HPP
#define FP8WIRE_EXAMPLES_QUANTIZER_ROWS_HPP
#include <array>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include <fp8wire/format/bf16.hpp>
#include <fp8wire/format/fp16.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/quantize.hpp>
#include <fp8wire/quant/verify.hpp>

#include "quantizer.hpp"

namespace programs {

template <class Recipe> struct through_bf16 {
  static constexpr fp8wire::numerics num = [] {
    fp8wire::numerics changed = Recipe::num;
    changed.f32_through_bf16 = true;
    return changed;
  }();
  using type = fp8wire::with_numerics<Recipe, num>;
};

/// Calls function(view) with the weights under their own type.
template <class Function> auto with_view(const weights& in, Function&& function) {
  const auto view = [&]<class In>(const In*) {
    return function(fp8wire::dense(static_cast<const In*>(in.data), in.extents.rows, in.extents.cols, in.extents.batch));
  };
  switch (in.type) {
    case fp8wire::dtype::bf16: return view(static_cast<const fp8wire::bf16*>(nullptr));
    case fp8wire::dtype::f16: return view(static_cast<const fp8wire::fp16*>(nullptr));
    default: return view(static_cast<const float*>(nullptr));
  }
}

/// A recipe's functions over untyped memory. Only FP32 weights tell a recipe from its --via-bf16 form, so that the others
/// share one instantiation.
template <class Base, bool ViaBf16> struct row_of {
  using recipe = std::conditional_t<ViaBf16, typename through_bf16<Base>::type, Base>;
  using stored = fp8wire::stored_t<recipe>;
  template <class In> using recipe_for = std::conditional_t<std::same_as<In, float>, recipe, Base>;

  static constexpr std::array<float, 256> values = [] {
    std::array<float, 256> table{};
    for (std::size_t code = 0; code < 256; ++code) table[code] = recipe::element::decode(static_cast<fp8wire::u8>(code));
    return table;
  }();

  template <class T, class In> static auto codes_of(T* codes, const fp8wire::matrix_view<In>& in) {
    return fp8wire::dense(codes, in.rows, in.cols, in.batch);
  }
  template <class T, class In> static auto scales_of(T* scales, const fp8wire::matrix_view<In>& in) {
    using block = typename recipe::block;
    return fp8wire::dense(scales, fp8wire::scale_rows<block>(in.rows), fp8wire::scale_cols<block>(in.cols), in.batch);
  }

  static fp8wire::u64 grid_id(float amax_floor) { return fp8wire::grid_id<recipe>(amax_floor); }
  static fp8wire::status quantize(const weights& weight, void* codes, void* scales, float amax_floor, workers& threads) {
    return with_view(weight, [&]<class In>(fp8wire::matrix_view<const In> in) {
      return fp8wire::quantize<recipe_for<In>, In>(
          in, {codes_of(static_cast<fp8wire::u8*>(codes), in), scales_of(static_cast<stored*>(scales), in)}, amax_floor, threads);
    });
  }
  static fp8wire::mismatch verify(const weights& weight, const void* codes, const void* scales, float amax_floor) {
    return with_view(weight, [&]<class In>(fp8wire::matrix_view<const In> in) {
      return fp8wire::verify<recipe_for<In>, In>(
          in, {codes_of(static_cast<const fp8wire::u8*>(codes), in), scales_of(static_cast<const stored*>(scales), in)},
          amax_floor);
    });
  }
  static fp8wire::result<std::vector<fp8wire::tensor_spec>> tensors(const fp8wire::naming& names, std::string_view weight,
                                                                    const std::vector<fp8wire::i64>& shape) {
    namespace namings = fp8wire::namings;
    static_assert(std::size(namings::all) == 6, "a naming was added: add it below");
    return with_naming<namings::vllm, namings::sglang, namings::nemo, namings::skyrl, namings::modelopt,
                       namings::compressed_tensors>(names, weight, shape);
  }

 private:
  /// The naming is a template argument of wire_format; the programs have it as a value.
  template <const fp8wire::naming&... Known>
  static fp8wire::result<std::vector<fp8wire::tensor_spec>> with_naming(const fp8wire::naming& names, std::string_view weight,
                                                                        const std::vector<fp8wire::i64>& shape) {
    fp8wire::result<std::vector<fp8wire::tensor_spec>> specs =
        fp8wire::make_error(fp8wire::errc::bad_argument, std::string(names.id), "no naming of that id");
    static_cast<void>(((names.id == Known.id && (specs = fp8wire::wire_format<Base, Known>::tensors(weight, shape), true)) || ...));
    return specs;
  }
};

template <class Preset, bool ViaBf16> quantizer make_row() {
  using base = typename Preset::recipe;
  using functions = row_of<base, ViaBf16>;
  using recipe = typename functions::recipe;
  constexpr bool exponents = std::same_as<typename functions::stored, fp8wire::e8m0>;
  constexpr bool halves = std::same_as<typename functions::stored, fp8wire::bf16>;
  quantizer row;
  row.name = Preset::name;
  row.scale = Preset::scale;
  row.naming = Preset::naming;
  row.source = Preset::source;
  row.element = recipe::element::id;
  row.modelled = Preset::modelled;
  row.microscaling = fp8wire::is_microscaling<recipe>;
  row.via_bf16 = recipe::num.f32_through_bf16;
  row.amax_floor = recipe::num.amax_floor;
  row.block_rows = recipe::block::rows;
  row.block_cols = recipe::block::cols;
  row.codes = recipe::element::stored_as;
  row.stored = exponents ? fp8wire::dtype::f8_e8m0 : halves ? fp8wire::dtype::bf16 : fp8wire::dtype::f32;
  row.values = functions::values.data();
  row.grid_id = functions::grid_id;
  row.tensors = functions::tensors;
  row.quantize = functions::quantize;
  row.verify = functions::verify;
  return row;
}

struct numbered_row {
  std::size_t number;
  quantizer row;
};

/// The rows of every preset whose number in the list is Part modulo Parts.
template <std::size_t Part, std::size_t Parts> std::vector<numbered_row> make_rows() {
  std::vector<numbered_row> rows;
  [&]<class... Presets>(fp8wire::presets::list<Presets...>) {
    [&]<std::size_t... Numbers>(std::index_sequence<Numbers...>) {
      const auto add = [&]<class Preset, std::size_t Number>() {
        if constexpr (Number % Parts == Part) {
          rows.push_back({Number, make_row<Preset, false>()});
          if constexpr (!Preset::recipe::num.f32_through_bf16) rows.push_back({Number, make_row<Preset, true>()});
        }
      };
      (add.template operator()<Presets, Numbers>(), ...);
    }(std::index_sequence_for<Presets...>{});
  }(fp8wire::presets::all{});
  return rows;
}

// One translation unit each, so that a build with several jobs compiles them side by side.
std::vector<numbered_row> rows_0();
std::vector<numbered_row> rows_1();
std::vector<numbered_row> rows_2();
std::vector<numbered_row> rows_3();

}  // namespace programs
#endif
