// SPDX-License-Identifier: Apache-2.0
/// A few vectors of weights in one thread's registers: their maxima and their codes.
#ifndef FP8WIRE_QUANT_KERNEL_VECTORS_HPP
#define FP8WIRE_QUANT_KERNEL_VECTORS_HPP
#include <type_traits>

#include <fp8wire/quant/kernel/element.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Magnitudes order as unsigned integers, NaN above Inf: two of a 16-bit type fit a word and are compared at once.
template <class In> using magnitude_t = std::conditional_t<sizeof(In) == 2, u16, u32>;

/// The FP32 bits of |x| from a magnitude of In.
template <class In> FP8WIRE_HD constexpr u32 widened(u32 magnitude) noexcept {
  if constexpr (std::same_as<In, float>) return magnitude;
  else return bits_of(to_float(In{static_cast<u16>(magnitude)}));
}

/// One operand for all columns of a thread's vector.
struct same_operand {
  float operand;
  FP8WIRE_BODY float operator()(int) const { return operand; }
};

/// `Bands` vectors of Bytes bytes, each of adjacent weights of one row.
template <class Recipe, class In, int Bytes, int Bands> struct vectors {
  static constexpr int width = Bytes / static_cast<int>(sizeof(In));
  static constexpr int bands = Bands;
  static constexpr int count = Bytes / 4;  // words of a vector
  static constexpr bool rounded = std::same_as<In, float> && Recipe::num.f32_through_bf16;
  using vector = words<count>;
  using codes_vector = sized_t<width>;

  vector at[static_cast<std::size_t>(bands)];

  /// Band `band`, as loaded.
  FP8WIRE_BODY void take(int band, const vector& loaded) {
    at[band] = loaded;
    if constexpr (rounded) {
      FP8WIRE_UNROLL
      for (int w = 0; w < count; ++w) at[band].at[w] = bits_of(to_float(to_bf16(float_of(loaded.at[w]))));
    }
  }

  /// Magnitudes of word `word` of band `band`, packed as in the weights.
  FP8WIRE_BODY u32 magnitudes(int band, int word) const {
    return at[band].at[word] & (sizeof(In) == 2 ? 0x7FFF7FFFu : 0x7FFFFFFFu);
  }
  /// The larger of two packed magnitudes, half by half.
  template <class Context> static FP8WIRE_BODY u32 larger(Context&, u32 a, u32 b) {
    if constexpr (sizeof(In) == 2) return Context::max_halves(a, b);
    else return a > b ? a : b;
  }
  /// The largest magnitude in a packed word.
  static FP8WIRE_BODY u32 folded(u32 packed) {
    if constexpr (sizeof(In) == 2) return (packed & 0xFFFF) > packed >> 16 ? packed & 0xFFFF : packed >> 16;
    else return packed;
  }
  template <class Context> FP8WIRE_BODY u32 band_magnitudes(Context& c, int band) const {
    u32 largest = magnitudes(band, 0);
    FP8WIRE_UNROLL
    for (int w = 1; w < count; ++w) largest = larger(c, largest, magnitudes(band, w));
    return largest;
  }
  /// The largest magnitudes of all bands, packed.
  template <class Context> FP8WIRE_BODY u32 all_magnitudes(Context& c) const {
    u32 largest = band_magnitudes(c, 0);
    FP8WIRE_UNROLL
    for (int i = 1; i < bands; ++i) largest = larger(c, largest, band_magnitudes(c, i));
    return largest;
  }
  /// Whether a folded magnitude is Inf or NaN.
  static FP8WIRE_BODY bool nonfinite(u32 magnitude_bits) {
    if constexpr (std::same_as<In, float>) return magnitude_bits >= f32::infinity;
    else return magnitude_bits >= (std::same_as<In, bf16> ? 0x7F80u : 0x7C00u);
  }

  /// Element `col` of band `band` as it enters the recipe. The weights are finite here.
  template <class Context> FP8WIRE_BODY float value(Context&, int band, int col) const {
    if constexpr (std::same_as<In, float>) {
      return entering<Recipe, float>(float_of(at[band].at[col]));  // rounding a BF16 to BF16 changes nothing
    } else {
      const u32 word = at[band].at[col / 2];
      const In weight{static_cast<u16>(col % 2 == 0 ? word & 0xFFFF : word >> 16)};
      if constexpr (std::same_as<In, fp16>) return entering<Recipe, float>(Context::widen(weight));
      else return entering<Recipe, In>(weight);
    }
  }

  /// The codes of band `band`; operand(col) is that of the thread's column `col`.
  template <class Context, class Operand>
  FP8WIRE_BODY codes_vector codes(Context& c, int band, const Operand& operand) const {
    constexpr int made_words = width < 4 ? 1 : width / 4;
    u32 made[static_cast<std::size_t>(made_words)];
    FP8WIRE_UNROLL
    for (int w = 0; w < made_words; ++w) {
      const int col = 4 * w;
      const u32 low = codes2<Recipe>(c, value(c, band, col), value(c, band, col + 1), operand(col), operand(col + 1));
      const u32 high =
          codes2<Recipe>(c, value(c, band, col + 2), value(c, band, col + 3), operand(col + 2), operand(col + 3));
      made[w] = low | high << 16;
    }
    if constexpr (width == 4) {
      return made[0];
    } else if constexpr (width == 8) {
      return made[0] | static_cast<u64>(made[1]) << 32;
    } else {
      codes_vector all;
      FP8WIRE_UNROLL
      for (int w = 0; w < made_words; ++w) all.at[w] = made[w];
      return all;
    }
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
