// SPDX-License-Identifier: Apache-2.0
/// Elements to codes by FP32 arithmetic with AVX2 and FMA, whatever the build flags.
///
/// Everything is a static member with the target attribute: lambdas and untargeted functions cannot hold vector types.
/// `asm("" : "+x")` keeps a product or quotient what IEEE says: g++ contracts intrinsics, -ffast-math reassociates
/// them.
#ifndef FP8WIRE_QUANT_HOST_AVX2_CASTS_HPP
#define FP8WIRE_QUANT_HOST_AVX2_CASTS_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

#if defined(FP8WIRE_AVX2)
#include <immintrin.h>

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

/// What all of the AVX2 body is written in.
struct avx2_words {
  using vector = __m256i;

  template <class Value> FP8WIRE_AVX2_INLINE static vector load(const Value* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const vector*>(from));
  }
  template <class Value> FP8WIRE_AVX2_INLINE static __m128i load_half(const Value* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  FP8WIRE_AVX2_INLINE static void store(u8* to, vector value) noexcept {
    _mm256_storeu_si256(reinterpret_cast<vector*>(to), value);
  }
  /// Past the caches where `streamed`. A branch a line costs nothing that a second body would save.
  FP8WIRE_AVX2_INLINE static void store(u8* to, vector value, bool streamed) noexcept {
    if (streamed) _mm256_stream_si256(reinterpret_cast<vector*>(to), value);
    else store(to, value);
  }
  /// Hints never fault, so that the end of the tensor needs no care.
  template <int Hint, class In> FP8WIRE_AVX2_INLINE static void prefetch32(const In* at) noexcept {
    __builtin_prefetch(at, 0, Hint);
    if constexpr (sizeof(In) == 4) __builtin_prefetch(at + 16, 0, Hint);
  }
  template <int Hint, class In> FP8WIRE_AVX2_INLINE static void prefetch128(const In* at) noexcept {
    prefetch32<Hint>(at), prefetch32<Hint>(at + 32), prefetch32<Hint>(at + 64), prefetch32<Hint>(at + 96);
  }
  /// Hidden from the compiler, which would build constants of inner loops anew in every round to save a register.
  FP8WIRE_AVX2_INLINE static vector hidden(vector value) noexcept {
    asm("" : "+x"(value));
    return value;
  }
  FP8WIRE_AVX2_INLINE static vector bytes(int value) noexcept {
    return hidden(_mm256_set1_epi8(static_cast<char>(value)));
  }
  FP8WIRE_AVX2_INLINE static vector twice(const u8* entries) noexcept {
    return _mm256_broadcastsi128_si256(load_half(entries));
  }
  FP8WIRE_AVX2_INLINE static __m256 ieee_result(__m256 value) noexcept {
    asm("" : "+x"(value));
    return value;
  }
  /// In words of the processor: -ffast-math makes g++ turn a division of vectors into an estimated reciprocal.
  FP8WIRE_AVX2_INLINE static __m256 quotient(__m256 dividend, __m256 divisor) noexcept {
    __m256 result;
    asm("vdivps %2, %1, %0" : "=x"(result) : "x"(dividend), "x"(divisor));
    return result;
  }
  FP8WIRE_AVX2_INLINE static __m256 as_float(vector bits) noexcept { return _mm256_castsi256_ps(bits); }
  FP8WIRE_AVX2_INLINE static vector as_bits(__m256 value) noexcept { return _mm256_castps_si256(value); }
};

template <row_cast Cast, class In> struct avx2_casts : avx2_words {
  static constexpr int mantissa_bits = Cast.mantissa_bits, dropped_bits = 23 - mantissa_bits;
  static constexpr int spare_bits = 7 - mantissa_bits, lift = 40;
  // Images are 2^80 times what they are. From FP16, whose bits stand for 2^112 times less in FP32, 2^40 times less: no
  // lift is needed there, and the power of two that is missing would not fit into the operand.
  static constexpr int lifted_by = std::same_as<In, fp16> ? -40 : 80;
  static constexpr int lifted_zero = ((128 - Cast.bias + lifted_by + dropped_bits) << 7) - (lift << spare_bits);
  static constexpr float lifted_rest = !std::same_as<In, fp16> ? 1.0f : Cast.divide ? 0x1p8f : 0x1p-8f;

  /// Constants of the lifted arithmetic.
  struct lifting {
    vector power, shift, halves, half, less, lift, order, one, placed;
  };
  FP8WIRE_AVX2_INLINE static lifting make_lifting() noexcept {
    lifting made;
    made.power = hidden(_mm256_set1_epi32(static_cast<int>(0xFF800000)));
    made.shift = hidden(_mm256_set1_epi32((127 + dropped_bits) << 23));
    made.halves = hidden(_mm256_set1_epi32(1 << 16 | 1 << spare_bits));
    made.half = hidden(_mm256_set1_epi16(0x7FFF));
    made.less = hidden(_mm256_set1_epi16(static_cast<short>(lifted_zero)));
    made.lift = bytes(lift);
    made.order = hidden(_mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    made.one = hidden(_mm256_set1_epi8(1));
    made.placed = hidden(_mm256_set1_epi32(static_cast<int>(0x8FFFE000)));
    return made;
  }

  /// Eight elements as FP32 bits, as the recipe takes them in.
  FP8WIRE_AVX2_INLINE static vector load8(const In* from) noexcept {
    vector bits;
    if constexpr (std::same_as<In, float>) {
      bits = load(from);
      if constexpr (Cast.f32_through_bf16) {
        const vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const vector rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
        bits = _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
      }
    } else if constexpr (std::same_as<In, bf16>) {
      bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(from)), 16);
    } else {
      // Finite FP16 without F16C, whose flag clang 14 cannot ask for: rebias, and put subnormals right by a
      // subtraction.
      const vector half = _mm256_cvtepu16_epi32(load_half(from));
      const vector sign = _mm256_slli_epi32(_mm256_and_si256(half, _mm256_set1_epi32(0x8000)), 16);
      const vector magnitude = _mm256_slli_epi32(_mm256_and_si256(half, _mm256_set1_epi32(0x7FFF)), 13);
      const vector normal = _mm256_add_epi32(magnitude, _mm256_set1_epi32(112 << 23));
      const __m256 above = as_float(_mm256_add_epi32(normal, _mm256_set1_epi32(1 << 23)));
      const __m256 subnormal = _mm256_sub_ps(above, _mm256_set1_ps(0x1p-14f));
      const vector is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(1 << 23), magnitude);
      bits = _mm256_or_si256(_mm256_blendv_epi8(normal, as_bits(subnormal), is_subnormal), sign);
    }
    return plus_zero8(bits);
  }
  /// FP32 bits in which a recipe without -0 finds none.
  FP8WIRE_AVX2_INLINE static vector plus_zero8(vector bits) noexcept {
    const vector minus_zero = _mm256_set1_epi32(static_cast<int>(f32::sign_mask));
    if constexpr (Cast.keep_negative_zero) return bits;
    else return _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, minus_zero), bits);
  }
  /// Eight elements as the lifted arithmetic takes them: FP16 fields where FP32 has its own, subnormal ones included.
  FP8WIRE_AVX2_INLINE static vector lifted_element8(const lifting& fixed, const In* from) noexcept {
    if constexpr (std::same_as<In, fp16>)
      return plus_zero8(_mm256_and_si256(_mm256_slli_epi32(_mm256_cvtepi16_epi32(load_half(from)), 13), fixed.placed));
    else return load8(from);
  }

  /// The code of each element as 16-bit sign and magnitude, in `spare_bits` more bits and from another zero: the
  /// image's power of two is added to it far above its last bit, where the adder rounds, and multiplying and adding the
  /// halves of the sum puts the exponent before the mantissa. Takes images that are zero or normal.
  FP8WIRE_AVX2_INLINE static vector lifted8(const lifting& fixed, const In* from, __m256 operand) noexcept {
    const __m256 element = as_float(lifted_element8(fixed, from));
    __m256 image;
    if constexpr (Cast.divide) image = quotient(element, operand);
    else image = _mm256_mul_ps(element, operand);
    image = ieee_result(image);
    const __m256 power = as_float(_mm256_and_si256(as_bits(image), fixed.power));
    return _mm256_madd_epi16(as_bits(_mm256_fmadd_ps(power, as_float(fixed.shift), image)), fixed.halves);
  }
  FP8WIRE_AVX2_INLINE static vector lifted_magnitudes(const lifting& fixed, vector halves) noexcept {
    return _mm256_srli_epi16(_mm256_subs_epu16(_mm256_and_si256(halves, fixed.half), fixed.less), spare_bits);
  }
  /// 32 codes. `least` keeps the smallest magnitude less one, zero counting as 255; magnitudes are `lift` too large, so
  /// that those which would be subnormal, and lose bits, can be told from zeros: see missed.
  FP8WIRE_AVX2_INLINE static vector lifted32(const lifting& fixed, const In* from, __m256 operand,
                                             vector& least) noexcept {
    const vector low = _mm256_packs_epi32(lifted8(fixed, from, operand), lifted8(fixed, from + 8, operand));
    const vector high = _mm256_packs_epi32(lifted8(fixed, from + 16, operand), lifted8(fixed, from + 24, operand));
    const vector raised = _mm256_packus_epi16(lifted_magnitudes(fixed, low), lifted_magnitudes(fixed, high));
    least = _mm256_min_epu8(least, _mm256_sub_epi8(raised, fixed.one));
    const vector codes = with_sign(_mm256_subs_epu8(raised, fixed.lift), _mm256_packs_epi16(low, high));
    return _mm256_permutevar8x32_epi32(codes, fixed.order);
  }
  FP8WIRE_AVX2_INLINE static bool missed(vector least) noexcept {
    const vector below = _mm256_subs_epu8(_mm256_set1_epi8((1 << mantissa_bits) + lift - 1), least);
    return !_mm256_testz_si256(below, below);
  }

  FP8WIRE_AVX2_INLINE static vector minus_zero_flushed(vector bits) noexcept {
    if constexpr (Cast.keep_negative_zero) return bits;
    else return _mm256_andnot_si256(_mm256_cmpeq_epi16(bits, _mm256_set1_epi16(static_cast<short>(0x8000))), bits);
  }

  /// `count` codes, elements by FP32 arithmetic. Expects: a rule that promises a multiplication or a division.
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void cast_direct(const In* from, u8* codes, i64 count, float operand) noexcept {
    const __m256 factor = _mm256_set1_ps(operand);
    i64 i = 0;
    for (; i + 32 <= count; i += 32) store(codes + i, cast32(from + i, factor));
    if (i < count) {
      In padded[32] = {};
      alignas(32) u8 some[32];
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      store(some, cast32(padded, factor));
      __builtin_memcpy(codes + i, some, static_cast<std::size_t>(count - i));
    }
  }

  /// The code of each |element|, plus `excess`, in the low 16 bits. The product's exponent, but at least that of the
  /// lowest normal code, makes a power of two whose sum with the product has its last bit where the code has: the adder
  /// rounds.
  static constexpr int excess = (128 - Cast.bias) << mantissa_bits;
  FP8WIRE_AVX2_INLINE static vector code8(vector bits, __m256 operand) noexcept {
    const __m256 magnitude = as_float(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
    __m256 image;
    if constexpr (Cast.divide) image = quotient(magnitude, operand);
    else image = _mm256_mul_ps(magnitude, operand);
    image = ieee_result(image);
    const __m256 lowest = _mm256_set1_ps(float_of(static_cast<u32>(128 - Cast.bias) << 23));
    const __m256 power =
        _mm256_max_ps(as_float(_mm256_and_si256(as_bits(image), _mm256_set1_epi32(0x7F800000))), lowest);
    const __m256 sum =
        _mm256_fmadd_ps(power, _mm256_set1_ps(float_of(static_cast<u32>(127 + dropped_bits) << 23)), image);
    const vector code = _mm256_add_epi32(as_bits(sum), _mm256_srli_epi32(as_bits(power), dropped_bits));
    return _mm256_and_si256(code, _mm256_set1_epi32(0xFFFF));
  }
  FP8WIRE_AVX2_INLINE static vector cast32(const In* from, __m256 operand) noexcept {
    const vector a = load8(from), b = load8(from + 8), c = load8(from + 16), d = load8(from + 24);
    const vector bias = _mm256_set1_epi16(static_cast<short>(excess));
    const vector low = _mm256_sub_epi16(_mm256_packus_epi32(code8(a, operand), code8(b, operand)), bias);
    const vector high = _mm256_sub_epi16(_mm256_packus_epi32(code8(c, operand), code8(d, operand)), bias);
    const vector signs = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const vector codes = with_sign(_mm256_packus_epi16(low, high), signs);
    return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  /// Saturates magnitudes of codes and gives them the top bit of `signs`.
  FP8WIRE_AVX2_INLINE static vector with_sign(vector codes, vector signs) noexcept {
    codes = _mm256_min_epu8(codes, _mm256_set1_epi8(static_cast<char>(Cast.max_code)));
    signs = _mm256_and_si256(signs, _mm256_set1_epi8(static_cast<char>(0x80)));
    if constexpr (Cast.fnuz) signs = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, _mm256_setzero_si256()), signs);
    return _mm256_or_si256(codes, signs);
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
