// SPDX-License-Identifier: Apache-2.0
/// The one type a framework names: recipe, naming and the pair of layouts.
#ifndef FP8WIRE_MODEL_WIRE_FORMAT_HPP
#define FP8WIRE_MODEL_WIRE_FORMAT_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/model/fusion.hpp>
#include <fp8wire/model/naming.hpp>
#include <fp8wire/model/tensor_spec.hpp>
#include <fp8wire/quant/laid_pair.hpp>

FP8WIRE_ABI_BEGIN

/// 2-D [rows, cols] or 3-D [batch, rows, cols] of a weight.
/// Errors: wrong_shape for other ranks and negative extents, overflow where the elements do not fit 63 bits.
inline result<matrix_extents> extents_of(std::string_view weight, const std::vector<i64>& shape) {
  if (shape.size() != 2 && shape.size() != 3)
    return make_error(errc::wrong_shape, std::string(weight), "a quantized weight has 2 or 3 dimensions; its rank",
                      static_cast<i64>(shape.size()), 2);
  i64 count = 1;
  for (const i64 extent : shape) {
    if (extent < 0) return make_error(errc::wrong_shape, std::string(weight), "an extent is negative", extent, 0);
    if (!multiply_checked(count, extent, count))
      return make_error(errc::overflow, std::string(weight), "its elements do not fit 63 bits; an extent", extent, 0);
  }
  if (shape.size() == 2) return matrix_extents{1, shape[0], shape[1]};
  return matrix_extents{shape[0], shape[1], shape[2]};
}

namespace detail {

template <class Layout> inline constexpr bool has_roles = false;
template <class Plain, class GateUp> inline constexpr bool has_roles<layout_by_role<Plain, GateUp>> = true;

/// ";codes=...;scales=...", both roles where they differ.
template <class Layout> constexpr void append_layout(short_text& text) noexcept {
  if constexpr (has_roles<Layout>) {
    text << ";codes=" << Layout::plain::codes::id << "|" << Layout::gate_up::codes::id;
    text << ";scales=" << Layout::plain::scales::id << "|" << Layout::gate_up::scales::id;
  } else {
    text << ";codes=" << Layout::codes::id << ";scales=" << Layout::scales::id;
  }
}

/// How a file or a manifest shows one tensor of a layout: the stored shape, the batch in front where there is one.
template <class Mapping> std::vector<i64> shown_shape(const Mapping& mapping, bool batched) {
  const stored_shape stored = mapping.shape();
  std::vector<i64> shape;
  if (batched) shape.push_back(mapping.batch);
  shape.insert(shape.end(), stored.extents, stored.extents + stored.rank);
  return shape;
}

}  // namespace detail

/// Converter, planner, receiver and engine configuration all read names, dtypes and shapes from here, so that they
/// cannot disagree. `Layout` is a pair_layout, or one for each role (layout_by_role): codes and scales travel in it.
/// `Naming` is one of `namings`, or any object with static storage where it is chosen at run time.
template <any_recipe Recipe, const naming& Naming, class Layout = canonical_layout> struct wire_format {
  using recipe = Recipe;
  using layout = Layout;
  static constexpr bool microscaling = is_microscaling<Recipe>;
  /// The dtype that scales are labelled with: E8M0 bytes of MXFP8 travel as the naming says, usually U8. Those of
  /// larger blocks stand where loaders else find FP32 and copy values: as U8 they would be read as the numbers 0 to
  /// 255.
  static constexpr dtype scale_dtype() noexcept {
    if constexpr (std::same_as<stored_t<Recipe>, e8m0>) return microscaling ? Naming.mx_dtype : dtype::f8_e8m0;
    else return std::same_as<stored_t<Recipe>, bf16> ? dtype::bf16 : dtype::f32;
  }

  /// "codes;scales": what the bytes of the two tensors mean, for messages and manifests.
  static constexpr detail::short_text encoding(float amax_floor = Recipe::num.amax_floor) noexcept {
    static_assert(
        [] {
          detail::short_text longest = detail::grid_text<Recipe>(0.0f);
          detail::append_layout<Layout>(longest);
          return longest.view().size() < 480;
        }(),
        "the ids of recipe and layouts are too long for an encoding's text");
    detail::short_text text = detail::grid_text<Recipe>(amax_floor);
    detail::append_layout<Layout>(text);
    text << ";naming=" << Naming.id;
    return text;
  }
  /// Grid id, naming and layout in one number.
  static constexpr u64 id(float amax_floor = Recipe::num.amax_floor) noexcept {
    return hash(encoding(amax_floor).view());
  }
  /// Calls function.operator()<pair>() with the pair of layouts of that weight.
  template <class Function> static constexpr decltype(auto) with_layout(std::string_view weight, Function&& function) {
    if constexpr (detail::has_roles<Layout>) {
      if (is_gate_up(weight)) return function.template operator()<typename Layout::gate_up>();
      return function.template operator()<typename Layout::plain>();
    } else {
      return function.template operator()<Layout>();
    }
  }

  /// Whether a weight of that shape can be sent at all; MXFP8 wants whole blocks in every row.
  static error check(std::string_view weight, const std::vector<i64>& shape) {
    const auto extents = extents_of(weight, shape);
    if (!extents) return extents.error();
    if (microscaling && extents->cols % 32 != 0)
      return make_error(errc::wrong_shape, std::string(weight),
                        "MXFP8 needs an inner dimension that is a multiple of 32; the remainder of " +
                            std::to_string(extents->cols) + " / 32",
                        extents->cols % 32, 0, condition::c5_geometry);
    return {};
  }

  /// The two tensors that a weight becomes: codes under its own name, scales under the naming's.
  /// Canonical layout keeps the weight's rank for the scales, always: K == 32 gives [N, 1]. Other layouts show the
  /// shapes that they are stored in, padding included; packed scales are int32.
  /// Errors: those of `check`; wrong_shape (C5) where the layout does not take it.
  static result<std::vector<tensor_spec>> tensors(std::string_view weight, const std::vector<i64>& shape) {
    if (error wrong = check(weight, shape)) return wrong;
    const matrix_extents m = extents_of(weight, shape).value();
    return with_layout(weight, [&]<class Pair>() -> result<std::vector<tensor_spec>> {
      const auto pair = laid_pair<Recipe, Pair>::of(nullptr, nullptr, m.batch, m.rows, m.cols);
      shape_check taken = Pair::codes::accepts(m.batch, m.rows, m.cols);
      if (taken.ok()) taken = Pair::scales::accepts(m.batch, pair.scales.rows, pair.scales.cols);
      if (!taken.ok())
        return make_error(errc::wrong_shape, std::string(weight),
                          std::string("layout ").append(Pair::id).append(": ").append(taken.what), taken.got,
                          taken.expected, condition::c5_geometry);
      const bool batched = shape.size() == 3;
      return std::vector<tensor_spec>{
          {std::string(weight), Recipe::element::stored_as, detail::shown_shape(pair.codes.mapping(), batched)},
          {Naming.scale_of(weight, microscaling), Pair::scales::packed > 1 ? dtype::int32 : scale_dtype(),
           detail::shown_shape(pair.scales.mapping(), batched)}};
    });
  }
};

/// Anything with the members of a wire_format.
template <class Wire>
concept any_wire_format =
    any_recipe<typename Wire::recipe> && requires(std::string_view weight, const std::vector<i64>& shape) {
      { Wire::id(0.0f) } -> std::same_as<u64>;
      { Wire::tensors(weight, shape) } -> std::same_as<result<std::vector<tensor_spec>>>;
    };

FP8WIRE_ABI_END
#endif
