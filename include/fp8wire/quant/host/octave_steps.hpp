// SPDX-License-Identifier: Apache-2.0
/// An E8M0 rule over the bits of an amax: the byte is the amax's exponent field, plus one from some mantissa on.
#ifndef FP8WIRE_QUANT_HOST_OCTAVE_STEPS_HPP
#define FP8WIRE_QUANT_HOST_OCTAVE_STEPS_HPP
#include <fp8wire/quant/host/block_state.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// byte = ((bits + raise) >> mantissa bits of In) + offset for the magnitude bits of an amax in [least, most).
struct octave_steps {
  bool valid = false;
  int raise = 0, offset = 0;
  int least = 0, most = 0;  // where bytes, products and codes stay clear of the ends of their ranges
};

/// Finds the step from the rule itself, at compile time, and keeps it only if the formula repeats what the rule makes
/// for mantissas at both ends and in the middle of the range, its operand included: for every one of BF16, for those
/// around the step and 64 others of FP32, whose rules are known to rise.
template <any_recipe Recipe, class In> constexpr octave_steps find_octave_steps() noexcept {
  using facts = host_facts<Recipe, In>;
  constexpr bool wide = std::same_as<In, float>;
  constexpr bool rises =
      requires { requires std::same_as<std::remove_cvref_t<decltype(Recipe::rule::policy)>, mx_policy>; };
  octave_steps steps;
  if constexpr (std::same_as<stored_t<Recipe>, e8m0> && Recipe::block::rows == 1 && Recipe::block::cols == 32 &&
                facts::bare_e4m3 && facts::direct && Recipe::num.edge == edge_pad::zero &&
                (std::same_as<In, bf16> || (wide && rises && !Recipe::num.f32_through_bf16))) {
    constexpr int bits = wide ? 23 : 7, octave = 1 << bits, one = 127 << bits;
    constexpr auto make = [](int of) {
      return Recipe::rule::make(float_of(static_cast<u32>(of) << (23 - bits)), limits_of<Recipe, In>());
    };
    const int low = make(one).stored.bits;
    int step = 0;  // the first mantissa whose byte is another
    for (int half = octave; half > 0; half /= 2)
      if (step + half <= octave && make(one + step + half - 1).stored.bits == low) step += half;
    steps.raise = octave - step;
    steps.offset = low - 127;
    // FP32 images are lifted by 2^80, and those of the least element have to be normal numbers.
    steps.least = (wide ? 82 - steps.offset : 40) << bits;
    steps.most = (wide ? 182 - steps.offset : 230) << bits;
    steps.valid = true;
    const auto repeats = [&](int of) {
      const int byte = ((of + steps.raise) >> bits) + steps.offset;
      const auto scale = make(of);
      const float power = facts::op == element_op::divide ? to_float(scale.stored) : reciprocal(scale.stored);
      return scale.stored.bits == byte && bits_of(scale.operand) == bits_of(power);
    };
    for (const int field : {steps.least >> bits, 127, (steps.most >> bits) - 1}) {
      const int first = field << bits;
      for (int i = 0; i < (wide ? 64 : 128); ++i)
        if (!repeats(first + (wide ? i * (octave / 64) : i))) steps.valid = false;
      for (const int mantissa : {step - 1, step, octave - 1})
        if (mantissa >= 0 && mantissa < octave && !repeats(first + mantissa)) steps.valid = false;
    }
  }
  return steps;
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
