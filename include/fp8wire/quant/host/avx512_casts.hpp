// SPDX-License-Identifier: Apache-2.0
/// Elements to codes by FP32 arithmetic with AVX-512, whatever the build flags; built like avx2_casts.hpp.
#ifndef FP8WIRE_QUANT_HOST_AVX512_CASTS_HPP
#define FP8WIRE_QUANT_HOST_AVX512_CASTS_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

#if defined(FP8WIRE_AVX512)
#include <immintrin.h>

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

/// What all of the AVX-512 body is written in.
struct avx512_words {
  using vector = __m512i;
  // Masks of all lanes: the forms without a mask make g++ 12 warn of its own headers (GCC bug 105593), the code is the
  // same.
  static constexpr __mmask16 all16 = 0xFFFF;
  static constexpr __mmask32 all32 = 0xFFFFFFFF;

  template <class Value> FP8WIRE_AVX512_INLINE static vector load(const Value* from) noexcept {
    return _mm512_loadu_si512(from);
  }
  template <class Value> FP8WIRE_AVX512_INLINE static __m256i load_half(const Value* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  FP8WIRE_AVX512_INLINE static void store(u8* to, vector value) noexcept { _mm512_storeu_si512(to, value); }
  FP8WIRE_AVX512_INLINE static void store32(u8* to, __m256i value) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  /// As avx2_words::store.
  FP8WIRE_AVX512_INLINE static void store(u8* to, vector value, bool streamed) noexcept {
    if (streamed) _mm512_stream_si512(reinterpret_cast<vector*>(to), value);
    else store(to, value);
  }
  FP8WIRE_AVX512_INLINE static void store32(u8* to, __m256i value, bool streamed) noexcept {
    if (streamed) _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
    else store32(to, value);
  }
  /// Hints never fault, so that the end of the tensor needs no care.
  template <int Hint, class In> FP8WIRE_AVX512_INLINE static void prefetch64(const In* at) noexcept {
    __builtin_prefetch(at, 0, Hint), __builtin_prefetch(at + 32, 0, Hint);
    if constexpr (sizeof(In) == 4) __builtin_prefetch(at + 16, 0, Hint), __builtin_prefetch(at + 48, 0, Hint);
  }
  /// Hidden from the compiler, which would build constants of inner loops anew in every round to save a register.
  FP8WIRE_AVX512_INLINE static vector hidden(vector value) noexcept {
    asm("" : "+v"(value));
    return value;
  }
  FP8WIRE_AVX512_INLINE static __m512 ieee_result(__m512 value) noexcept {
    asm("" : "+v"(value));
    return value;
  }
  /// In words of the processor: -ffast-math makes g++ turn a division of vectors into an estimated reciprocal.
  FP8WIRE_AVX512_INLINE static __m512 quotient(__m512 dividend, __m512 divisor) noexcept {
    __m512 result;
    asm("vdivps %2, %1, %0" : "=v"(result) : "v"(dividend), "v"(divisor));
    return result;
  }
  FP8WIRE_AVX512_INLINE static __m512 as_float(vector bits) noexcept { return _mm512_castsi512_ps(bits); }
  FP8WIRE_AVX512_INLINE static vector as_bits(__m512 value) noexcept { return _mm512_castps_si512(value); }
};

template <row_cast Cast, class In> struct avx512_casts : avx512_words {
  static constexpr int mantissa_bits = Cast.mantissa_bits, dropped_bits = 23 - mantissa_bits;
  static constexpr int spare_bits = 7 - mantissa_bits, lift = 40;
  static constexpr int lifted_zero = ((128 - Cast.bias + 80 + dropped_bits) << 7) - (lift << spare_bits);

  /// Constants of the lifted arithmetic.
  struct lifting {
    vector power, shift, halves, half, less, lift, order, one;
  };
  FP8WIRE_AVX512_INLINE static lifting make_lifting() noexcept {
    lifting made;
    made.power = hidden(_mm512_set1_epi32(static_cast<int>(0xFF800000)));
    made.shift = hidden(_mm512_set1_epi32((127 + dropped_bits) << 23));
    made.halves = hidden(_mm512_set1_epi32(1 << 16 | 1 << spare_bits));
    made.half = hidden(_mm512_set1_epi16(0x7FFF));
    made.less = hidden(_mm512_set1_epi16(static_cast<short>(lifted_zero)));
    made.lift = hidden(_mm512_set1_epi8(lift));
    made.order = hidden(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    made.one = hidden(_mm512_set1_epi8(1));
    return made;
  }

  /// Sixteen elements as FP32 bits, as the recipe takes them in.
  FP8WIRE_AVX512_INLINE static vector load16(const In* from) noexcept {
    vector bits;
    if constexpr (std::same_as<In, float>) {
      bits = load(from);
      if constexpr (Cast.f32_through_bf16) {
        const vector odd = _mm512_and_si512(_mm512_maskz_srli_epi32(all16, bits, 16), _mm512_set1_epi32(1));
        const vector rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
        bits = _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
      }
    } else if constexpr (std::same_as<In, bf16>) {
      bits = _mm512_maskz_slli_epi32(all16, _mm512_maskz_cvtepu16_epi32(all16, load_half(from)), 16);
    } else {
      bits = as_bits(_mm512_maskz_cvtph_ps(all16, load_half(from)));
    }
    if constexpr (!Cast.keep_negative_zero) {
      const vector minus_zero = _mm512_set1_epi32(static_cast<int>(f32::sign_mask));
      bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(bits, minus_zero), _mm512_setzero_si512());
    }
    return bits;
  }

  /// As avx2_casts::lifted8 and lifted32, in wider vectors.
  FP8WIRE_AVX512_INLINE static vector lifted16(const lifting& fixed, const In* from, __m512 operand) noexcept {
    const __m512 element = as_float(load16(from));
    __m512 image;
    if constexpr (Cast.divide) image = quotient(element, operand);
    else image = _mm512_mul_ps(element, operand);
    image = ieee_result(image);
    const __m512 power = as_float(_mm512_and_si512(as_bits(image), fixed.power));
    return _mm512_madd_epi16(as_bits(_mm512_fmadd_ps(power, as_float(fixed.shift), image)), fixed.halves);
  }
  FP8WIRE_AVX512_INLINE static vector lifted_magnitudes(const lifting& fixed, vector halves) noexcept {
    return _mm512_srli_epi16(_mm512_subs_epu16(_mm512_and_si512(halves, fixed.half), fixed.less), spare_bits);
  }
  FP8WIRE_AVX512_INLINE static vector lifted64(const lifting& fixed, const In* from, __m512 operand,
                                               vector& least) noexcept {
    const vector low = _mm512_packs_epi32(lifted16(fixed, from, operand), lifted16(fixed, from + 16, operand));
    const vector high = _mm512_packs_epi32(lifted16(fixed, from + 32, operand), lifted16(fixed, from + 48, operand));
    const vector raised = _mm512_packus_epi16(lifted_magnitudes(fixed, low), lifted_magnitudes(fixed, high));
    least = _mm512_min_epu8(least, _mm512_sub_epi8(raised, fixed.one));
    const vector codes =
        _mm512_min_epu8(_mm512_subs_epu8(raised, fixed.lift), _mm512_set1_epi8(static_cast<char>(Cast.max_code)));
    vector signs = _mm512_and_si512(_mm512_packs_epi16(low, high), _mm512_set1_epi8(static_cast<char>(0x80)));
    if constexpr (Cast.fnuz) signs = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(codes, codes), signs);
    return _mm512_maskz_permutexvar_epi32(all16, fixed.order, _mm512_or_si512(codes, signs));
  }

  FP8WIRE_AVX512_INLINE static bool missed(vector least) noexcept {
    constexpr char below = (1 << mantissa_bits) + lift - 1;
    return _mm512_cmplt_epu8_mask(least, _mm512_set1_epi8(below)) != 0;
  }

  FP8WIRE_AVX512_INLINE static vector minus_zero_flushed(vector bits) noexcept {
    if constexpr (Cast.keep_negative_zero) return bits;
    else
      return _mm512_maskz_mov_epi16(_mm512_cmpneq_epu16_mask(bits, _mm512_set1_epi16(static_cast<short>(0x8000))),
                                    bits);
  }

  /// As avx2_casts::cast_direct.
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static void cast_direct(const In* from, u8* codes, i64 count,
                                                          float operand) noexcept {
    const __m512 factor = _mm512_set1_ps(operand);
    i64 i = 0;
    for (; i + 32 <= count; i += 32) store32(codes + i, cast32(from + i, factor));
    if (i < count) {
      In padded[32] = {};
      u8 some[32];
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      store32(some, cast32(padded, factor));
      __builtin_memcpy(codes + i, some, static_cast<std::size_t>(count - i));
    }
  }

  static constexpr int excess = (128 - Cast.bias) << mantissa_bits;
  /// The code of each |element| plus `excess`, modulo 256; the sum as in avx2_casts::code8.
  FP8WIRE_AVX512_INLINE static __m128i code16(vector bits, __m512 operand) noexcept {
    const __m512 magnitude = as_float(_mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF)));
    __m512 image;
    if constexpr (Cast.divide) image = quotient(magnitude, operand);
    else image = _mm512_mul_ps(magnitude, operand);
    image = ieee_result(image);
    const __m512 lowest = _mm512_set1_ps(float_of(static_cast<u32>(128 - Cast.bias) << 23));
    const __m512 power =
        _mm512_maskz_max_ps(all16, as_float(_mm512_and_si512(as_bits(image), _mm512_set1_epi32(0x7F800000))), lowest);
    const __m512 sum =
        _mm512_fmadd_ps(power, _mm512_set1_ps(float_of(static_cast<u32>(127 + dropped_bits) << 23)), image);
    return _mm512_maskz_cvtepi32_epi8(
        all16, _mm512_add_epi32(as_bits(sum), _mm512_maskz_srli_epi32(all16, as_bits(power), dropped_bits)));
  }
  FP8WIRE_AVX512_INLINE static __m256i cast32(const In* from, __m512 operand) noexcept {
    const vector a = load16(from), b = load16(from + 16), zero = _mm512_setzero_si512();
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(code16(a, operand)), code16(b, operand), 1);
    __m256i codes = _mm256_sub_epi8(both, _mm256_set1_epi8(static_cast<char>(excess & 0xFF)));
    codes = _mm256_min_epu8(codes, _mm256_set1_epi8(static_cast<char>(Cast.max_code)));
    const u32 low = _mm512_cmplt_epi32_mask(a, zero), high = _mm512_cmplt_epi32_mask(b, zero);
    return signed32(codes, high << 16 | low);
  }
  FP8WIRE_AVX512_INLINE static __m256i signed32(__m256i codes, u32 negative) noexcept {
    if constexpr (Cast.fnuz) negative &= _mm256_test_epi8_mask(codes, codes);
    return _mm256_mask_add_epi8(codes, negative, codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
