// SPDX-License-Identifier: Apache-2.0
/// What the host path keeps about one block: its running maxima, and then how its elements become codes.
///
/// BF16 has 8 significant bits and E4M3 codes step at most once in 8 neighbouring mantissas, so that within a block the
/// code is a table of one octave plus 8 per exponent. The table is filled with the rule's own arithmetic, once per
/// block, and serves every order of operations; docs/performance.md has the derivation.
#ifndef FP8WIRE_QUANT_HOST_BLOCK_STATE_HPP
#define FP8WIRE_QUANT_HOST_BLOCK_STATE_HPP
#include <fp8wire/quant/host/element_op.hpp>
#include <fp8wire/quant/host/isa.hpp>
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// How elements that the table does not cover are cast.
enum class cast_how : u8 {
  reference,  // one by one, by the definition
  direct,  // vectors of FP32: the rule's multiplication or division, then rounding
  lifted  // the same with `lifted` for an operand, which keeps products of all elements but zeros normal numbers
};

struct alignas(64) block_state {
  u8 maxima[64];  // magnitude bits, arranged as the kernel likes; zero between bands
  u8 rounding[16];  // octave folded: what sixteen groups of eight mantissas add before the shift that rounds
  u8 exponent[16];  // what to subtract, by half the exponent field counted from `below`
  u8 below;  // half exponent fields up to this one lie below the normal codes
  bool tabled;  // rounding, exponent, below and octave are filled
  cast_how how;
  u16 first;  // exponent field of `octave`, even
  float operand;
  float lifted;  // operand, so that images are 2^80 times what they are
  void (*definition)(const void* from, u8* codes, i64 count,
                     float operand) noexcept;  // casts by the recipe's own words
  alignas(64) u8 octave[128];  // codes of the 128 mantissas at exponent field `first`
};

/// What of a recipe vector code can serve; everything else is the definition's.
template <any_recipe Recipe, class In> struct host_facts {
  using element = typename Recipe::element;
  static constexpr element_op op = element_op_of<typename Recipe::rule>();
  static constexpr bool minifloat_element = requires { element::shape.mantissa_bits, element::policy.round; };
  static constexpr bool even_element = [] {
    if constexpr (minifloat_element) return element::policy.round == cast_policy::rounding::nearest_even;
    else return false;
  }();
  static constexpr bool bare_e4m3 = [] {
    if constexpr (even_element) return same_for_finite<element, e4m3>;
    else return false;
  }();
  static constexpr bool direct = even_element && op != element_op::other && op != element_op::divide_in_bf16;
  // Filling a table costs about as much as casting a thousand elements.
  static constexpr bool large_block = Recipe::block::rows == whole || Recipe::block::cols == whole ||
                                      i64{Recipe::block::rows} * Recipe::block::cols >= 4096;
  static constexpr bool table = std::same_as<In, bf16> && bare_e4m3 && op != element_op::other && large_block;
  static constexpr bool served = (direct || table) && (Recipe::block::cols == whole || Recipe::block::cols % 32 == 0);
};

namespace FP8WIRE_CG {

/// Codes of `count` elements by the definition. from: of In.
template <any_recipe Recipe, class In>
FP8WIRE_NOINLINE void cast_by_reference(const void* from, u8* codes, i64 count, float operand) noexcept {
  const In* elements = static_cast<const In*>(from);
  for (i64 i = 0; i < count; ++i) codes[i] = reference::encode<Recipe, In>(elements[i], operand);
}

template <any_recipe Recipe, class In> struct block_setup {
  using element = typename Recipe::element;
  using rule = typename Recipe::rule;
  using facts = host_facts<Recipe, In>;

  /// Decides how a block is cast. `amax`: what its elements do not exceed. `vectors`: all of them are finite.
  /// `fill(state)` computes the octave's codes.
  template <class Fill>
  static void prepare(block_state& state, u32 amax, float operand, bool vectors, const Fill& fill) noexcept {
    state.operand = operand;
    state.definition = cast_by_reference<Recipe, In>;
    state.how = cast_how::reference;
    state.tabled = false;
    const u32 operand_bits = bits_of(operand);
    if (!vectors || !f32::is_finite(amax) || operand_bits == 0 || operand_bits >= f32::infinity) return;
    // Larger ones could lift a subnormal element, which this rule flushes, above zero.
    if (facts::op == element_op::multiply_flushed && operand_bits > bits_of(0x1p64f)) return;
    const float top = rule::apply(float_of(amax), operand);
    // Up to here codes count on within a byte, and saturation brings them back.
    if (bits_of(top) >= bits_of(0x1p20f)) return;
    if constexpr (facts::minifloat_element) {
      if (element::policy.beyond_largest == cast_policy::overflow::special && element::encode(top) > element::max_code)
        return;
    }
    if constexpr (facts::direct) {
      constexpr bool divides = facts::op == element_op::divide;
      state.how = cast_how::direct;
      state.lifted = operand * (divides ? 0x1p-80f : 0x1p80f);
      // The least element is 2^-149.
      const float least = divides ? 0x1p-46f : 0x1p-57f, most = divides ? 0x1p57f : 0x1p46f;
      if (operand_bits >= bits_of(least) && operand_bits <= bits_of(most)) state.how = cast_how::lifted;
    }
    if constexpr (facts::table) tabulate(state, amax, bits_of(top), fill);
  }

 private:
  template <class Fill> static void tabulate(block_state& state, u32 amax, u32 top, const Fill& fill) noexcept {
    constexpr int smallest_normal = 121;  // exponent field of 2^-6
    const int amax_field = static_cast<int>(amax >> 23);
    if (amax_field < 40 || amax_field > 230) return;
    if (top > bits_of(464.0f)) return;  // the table does not saturate; up to here 448 is the nearest
    // The rule commutes with powers of two here, so that this field's values are normal codes and the one below's are
    // not all.
    const int unit_field =
        static_cast<int>(bits_of(rule::apply(float_of(amax & f32::exponent_mask), state.operand)) >> 23);
    if (unit_field < 40) return;
    const int first = (amax_field - (unit_field - smallest_normal) + 1) & ~1;
    const int below = first / 2 - 1;
    if (first < 24 || first > 230 || amax_field / 2 - below > 15) return;
    state.first = static_cast<u16>(first);
    state.below = static_cast<u8>(below);
    fill(state);
    const int base = state.octave[0] - 1;
    for (int group = 0; group < 16; ++group) {
      const u8* codes = state.octave + 8 * group;
      int last_low = 7;  // the last of the eight that still has the group's first code
      while (codes[last_low] != codes[0]) --last_low;
      state.rounding[group] = static_cast<u8>(16 * (codes[0] - base) - 8 * group + 14 - last_low);
    }
    state.exponent[0] = 255;  // subtracts everything: zero stays zero
    for (int step = 1; step < 16; ++step) {
      const int keep = 0xE0 - base - 16 * (step - 1);
      state.exponent[step] = static_cast<u8>(keep < 0 ? 0 : keep);
    }
    state.tabled = true;
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
