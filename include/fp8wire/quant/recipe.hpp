// SPDX-License-Identifier: Apache-2.0
/// A recipe: element, block, scale rule and numerics, everything that decides the bytes, as one type.
#ifndef FP8WIRE_QUANT_RECIPE_HPP
#define FP8WIRE_QUANT_RECIPE_HPP
#include <fp8wire/core/hash.hpp>
#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/detail/text.hpp>
#include <fp8wire/format/e4m3.hpp>
#include <fp8wire/quant/block.hpp>
#include <fp8wire/quant/rules/rule.hpp>

FP8WIRE_ABI_BEGIN

/// What a ragged edge block sees beyond the matrix: nothing, or (NeMo) the matrix's last element.
enum class edge_pad : u8 { zero, last_element };
/// What a caller of the quantizer should do with NaN and Inf: refuse the tensor, or keep the bytes the rule made.
enum class nonfinite : u8 { refuse, as_tool };

/// What a scale rule cannot know. Scalars and enumerations only: nvcc 13.0 rejects members with constructors.
struct numerics {
  float amax_floor = 0;               // the smallest amax that a rule is given; -0 counts as 0
  edge_pad edge = edge_pad::zero;
  nonfinite bad = nonfinite::refuse;  // decides whether bytes are made, never which: not part of the grid id
  bool keep_negative_zero = true;     // false: -0 elements become code 00, as an fma with +0 does
  bool f32_through_bf16 = false;      // FP32 weights are rounded to BF16 first, as trainers that export BF16 do
};

/// An element format: encode, decode, the largest value, a stable id and the dtype it is stored as.
template <class Element>
concept element_format = requires(float value, u8 code) {
  { Element::encode(value) } noexcept -> std::same_as<u8>;
  { Element::decode(code) } noexcept -> std::same_as<float>;
  { Element::is_nan(code) } noexcept -> std::same_as<bool>;
  { Element::max } -> std::convertible_to<float>;
  { Element::id } -> std::convertible_to<std::string_view>;
  { Element::stored_as } -> std::convertible_to<dtype>;
};

/// Two programs that name the same recipe produce the same bytes.
/// The checks say what to do instead of naming a concept alone: nvcc prints no more than that.
template <class Element, class Block, class Rule, numerics Numerics = numerics{}> struct recipe {
  static_assert(
      element_format<Element>,
      "the element of a recipe must be a format: give it static noexcept encode(float), decode(code), is_nan(code), "
      "and max, id, stored_as (or use fp8wire::e4m3)");
  static_assert(block_shape<Block>, "the block of a recipe must have int rows and cols: use fp8wire::block<128, 128>");
  static_assert(
      scale_rule<Rule>,
      "the rule of a recipe must be a scale rule: give it stored (float, bf16 or e8m0), id, nan_poisons_amax, and "
      "static noexcept make(amax, limits) and apply(element, operand) as in quant/rules/rule.hpp");
  static_assert(f32::is_finite(bits_of(Numerics.amax_floor)) && (f32::is_zero(bits_of(Numerics.amax_floor)) ||
                                                                 (bits_of(Numerics.amax_floor) & f32::sign_mask) == 0),
                "the amax floor of a recipe must be finite and not negative: use numerics{.amax_floor = 1e-10f}");
  using element = Element;
  using block = Block;
  using rule = Rule;
  static constexpr numerics num = Numerics;
};

template <class Recipe>
concept any_recipe = element_format<typename Recipe::element> && block_shape<typename Recipe::block> &&
                     scale_rule<typename Recipe::rule> && requires { numerics{Recipe::num}; };

/// What a recipe's rule is told about its element and the input type.
template <any_recipe Recipe, class In> FP8WIRE_HD constexpr limits limits_of() noexcept {
  using element = typename Recipe::element;
  constexpr bool rounded = std::same_as<In, float> && Recipe::num.f32_through_bf16;
  constexpr float input_max = rounded ? input_traits<bf16>::largest : input_traits<In>::largest;
  // A binade holds 2^mantissa_bits codes, in every format.
  constexpr int codes_per_binade = element::encode(2.0f) - element::encode(1.0f);
  constexpr int mantissa_bits = 63 - leading_zeros(static_cast<u64>(codes_per_binade));
  constexpr limits made{element::max, input_max, mantissa_bits};
  return made;
}

/// The same recipe under other numerics.
template <any_recipe Recipe, numerics Numerics>
using with_numerics = recipe<typename Recipe::element, typename Recipe::block, typename Recipe::rule, Numerics>;

/// FP32, BF16 or E8M0.
template <any_recipe Recipe> using stored_t = typename Recipe::rule::stored;

/// The OCP microscaling family: E8M0 scales over 32 elements of a row. Its rows hold whole blocks, or the tensor is
/// refused.
template <any_recipe Recipe>
inline constexpr bool is_microscaling =
    std::same_as<stored_t<Recipe>, e8m0> && Recipe::block::rows == 1 && Recipe::block::cols == 32;

namespace detail {

template <class Stored> constexpr std::string_view stored_id() noexcept {
  if constexpr (std::same_as<Stored, e8m0>) return "e8m0";
  else if constexpr (std::same_as<Stored, bf16>) return "bf16";
  else return "f32";
}

constexpr short_text& operator<<(short_text& text, edge_pad edge) noexcept {
  return text << (edge == edge_pad::zero ? "zero" : "last_element");
}

/// The canonical text whose hash is the grid id. Its wording is frozen: tests pin the hashes.
template <any_recipe Recipe> constexpr short_text grid_text(float amax_floor) noexcept {
  using rule = typename Recipe::rule;
  const u32 floor_bits = f32::is_zero(bits_of(amax_floor)) ? 0 : bits_of(amax_floor);
  short_text text;
  text << "fp8wire grid 1;element=" << Recipe::element::id << ";block=" << i64{Recipe::block::rows} << "x"
       << i64{Recipe::block::cols} << ";rule=" << rule::id
       << ";nan=" << (rule::nan_poisons_amax ? "poisons" : "ignored") << ";stored=" << stored_id<stored_t<Recipe>>()
       << ";floor=";
  text.hex(floor_bits, 8) << ";edge=";
  text << Recipe::num.edge;
  text << ";minus_zero=" << (Recipe::num.keep_negative_zero ? "kept" : "flushed")
       << ";f32=" << (Recipe::num.f32_through_bf16 ? "through_bf16" : "direct");
  return text;
}

}  // namespace detail

/// 64-bit id of everything that decides the bytes, the amax floor in use among it; both ends of a wire compare it.
template <any_recipe Recipe> constexpr u64 grid_id(float amax_floor = Recipe::num.amax_floor) noexcept {
  return hash(detail::grid_text<Recipe>(amax_floor).view());
}

/// Codes (one byte an element) and scales of one tensor, both batch x rows x cols views.
/// Multiply a code's value by its block's scale to get the weight back (others call it weight_scale_inv, or descale).
template <any_recipe Recipe> struct pair_view {
  matrix_view<u8> codes;
  matrix_view<stored_t<Recipe>> scales;
};
/// The same, read only.
template <any_recipe Recipe> struct const_pair_view {
  matrix_view<const u8> codes;
  matrix_view<const stored_t<Recipe>> scales;
  constexpr const_pair_view(matrix_view<const u8> c, matrix_view<const stored_t<Recipe>> s) noexcept
      : codes(c), scales(s) {}
  constexpr const_pair_view(const pair_view<Recipe>& pair) noexcept
      : codes(pair.codes), scales(pair.scales) {}  // NOLINT
};

FP8WIRE_ABI_END
#endif
