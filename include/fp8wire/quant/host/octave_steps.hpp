// SPDX-License-Identifier: Apache-2.0
/// An E8M0 rule over BF16 seen as integers: the byte is the amax's exponent field, plus one from some mantissa on.
#ifndef FP8WIRE_QUANT_HOST_OCTAVE_STEPS_HPP
#define FP8WIRE_QUANT_HOST_OCTAVE_STEPS_HPP
#include <fp8wire/quant/host/block_state.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// byte = ((bits + raise) >> 7) + offset for the 15 magnitude bits of an amax between `least` and `most`.
struct octave_steps {
  bool valid = false;
  int raise = 0, offset = 0;
  int least = 0, most = 0;  // where bytes, products and codes stay clear of the ends of their ranges
};

/// Finds the step from the rule itself, at compile time, and keeps it only if the formula repeats what the rule makes
/// for every mantissa at both ends and in the middle of the range, its operand included.
template <any_recipe Recipe> constexpr octave_steps find_octave_steps() noexcept {
  using facts = host_facts<Recipe, bf16>;
  octave_steps steps;
  if constexpr (std::same_as<stored_t<Recipe>, e8m0> && Recipe::block::rows == 1 && Recipe::block::cols == 32 &&
                facts::bare_e4m3 && facts::direct && Recipe::num.edge == edge_pad::zero) {
    constexpr auto make = [](int bits) {
      return Recipe::rule::make(float_of(static_cast<u32>(bits) << 16), limits_of<Recipe, bf16>());
    };
    constexpr int one = 127 << 7;
    const int low = make(one).stored.bits;
    int step = 0;
    while (step < 128 && make(one + step).stored.bits == low) ++step;
    steps.raise = 128 - step;
    steps.offset = low - 127;
    steps.least = 40 << 7;
    steps.most = 230 << 7;
    steps.valid = true;
    for (const int field : {40, 127, 229}) {
      for (int mantissa = 0; mantissa < 128; ++mantissa) {
        const int bits = field << 7 | mantissa, byte = ((bits + steps.raise) >> 7) + steps.offset;
        const auto scale = make(bits);
        const float power = facts::op == element_op::divide ? to_float(scale.stored) : reciprocal(scale.stored);
        if (scale.stored.bits != byte || bits_of(scale.operand) != bits_of(power)) steps.valid = false;
      }
    }
  }
  return steps;
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
