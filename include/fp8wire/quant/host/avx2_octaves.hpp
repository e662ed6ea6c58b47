// SPDX-License-Identifier: Apache-2.0
/// Blocks of 32 elements under E8M0 scales with AVX2, eight blocks at a time.
#ifndef FP8WIRE_QUANT_HOST_AVX2_OCTAVES_HPP
#define FP8WIRE_QUANT_HOST_AVX2_OCTAVES_HPP
#include <fp8wire/quant/host/avx2_casts.hpp>

#if defined(FP8WIRE_AVX2)

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

/// Four blocks that hold elements with subnormal codes.
template <row_cast Cast, class In>
FP8WIRE_AVX2 __attribute__((noinline, cold)) void avx2_octaves_cold(const In* from, u8* codes, const e8m0* scales,
                                                                    bool streamed) noexcept {
  alignas(32) u8 some[128];
  for (int block = 0; block < 4; ++block) {
    const float operand = Cast.divide ? to_float(scales[block]) : reciprocal(scales[block]);
    avx2_casts<Cast, In>::cast_direct(from + 32 * block, some + 32 * block, 32, operand);
  }
  for (int i = 0; i < 128; i += 32) avx2_words::store(codes + i, avx2_words::load(some + i), streamed);
}

template <row_cast Cast, class In> struct avx2_octaves {};

template <row_cast Cast> struct avx2_octaves<Cast, bf16> : avx2_words {
  using casts = avx2_casts<Cast, bf16>;
  static constexpr i64 ahead = 4096;  // elements

  /// Blocks of 32 BF16 elements under E8M0 scales, eight at a time in 16-bit integers: what a power of two scales keeps
  /// its mantissa, so that a code is the magnitude less the scale's exponent, rounded to three bits. Returns how many
  /// blocks are done: all, or those before eight that hold an amax outside [least, steps.most), which take another way.
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 run(const bf16* from, u8* codes, e8m0* scales, i64 blocks, int least,
                                               const octave_steps& steps, bool streamed) noexcept {
    const constants fixed{hidden(_mm256_set1_epi16(0x7FFF)), hidden(_mm256_set1_epi16(1)), bytes(1), bytes(40)};
    const __m128i below = _mm_set1_epi16(static_cast<short>(least)),
                  above = _mm_set1_epi16(static_cast<short>(steps.most - 1));
    i64 block = 0;
    for (; block + 8 <= blocks; block += 8, from += 256, codes += 256) {
      prefetch128<2>(from + ahead), prefetch128<2>(from + ahead + 128);
      const __m128i a = pair_max(maxima8(fixed, from), maxima8(fixed, from + 32));
      const __m128i b = pair_max(maxima8(fixed, from + 64), maxima8(fixed, from + 96));
      const __m128i c = pair_max(maxima8(fixed, from + 128), maxima8(fixed, from + 160));
      const __m128i d = pair_max(maxima8(fixed, from + 192), maxima8(fixed, from + 224));
      const __m128i e = _mm_max_epu16(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
      const __m128i f = _mm_max_epu16(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
      const __m128i amax = _mm_max_epu16(_mm_unpacklo_epi64(e, f), _mm_unpackhi_epi64(e, f));
      const __m128i odd = _mm_or_si128(_mm_cmpgt_epi16(below, amax), _mm_cmpgt_epi16(amax, above));
      if (__builtin_expect(!_mm_testz_si128(odd, odd), 0)) break;
      const __m128i byte =
          _mm_add_epi16(_mm_srli_epi16(_mm_add_epi16(amax, _mm_set1_epi16(static_cast<short>(steps.raise))), 7),
                        _mm_set1_epi16(static_cast<short>(steps.offset)));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(scales + block), _mm_packus_epi16(byte, byte));
      // Codes come out 40 too large, so that 1 ... 47 tells the subnormal ones, which lose bits, from zeros.
      const __m128i shift = _mm_slli_epi16(_mm_sub_epi16(byte, _mm_set1_epi16(12)), 7);
      const vector less = _mm256_broadcastsi128_si256(_mm_sub_epi16(shift, _mm_set1_epi16(7)));
      octaves128<0>(fixed, less, from, codes, scales + block, streamed);
      octaves128<4>(fixed, less, from + 128, codes + 128, scales + block + 4, streamed);
    }
    return block;
  }

 private:
  struct constants {
    vector magnitude, ulp, one, lift;
  };
  FP8WIRE_AVX2_INLINE static __m128i maxima8(const constants& fixed, const bf16* from) noexcept {
    const vector both = _mm256_max_epu16(_mm256_and_si256(load(from), fixed.magnitude),
                                         _mm256_and_si256(load(from + 16), fixed.magnitude));
    return _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }
  FP8WIRE_AVX2_INLINE static __m128i pair_max(__m128i a, __m128i b) noexcept {
    return _mm_max_epu16(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
  }
  template <int First>
  FP8WIRE_AVX2_INLINE static void octaves128(const constants& fixed, vector less, const bf16* from, u8* codes,
                                             const e8m0* scales, bool streamed) noexcept {
    vector least = _mm256_set1_epi8(-1);
    const vector a = octaves32<First>(fixed, less, from, least);
    const vector b = octaves32<First + 1>(fixed, less, from + 32, least);
    const vector c = octaves32<First + 2>(fixed, less, from + 64, least);
    const vector d = octaves32<First + 3>(fixed, less, from + 96, least);
    if (__builtin_expect(casts::missed(least), 0)) return avx2_octaves_cold<Cast>(from, codes, scales, streamed);
    store(codes, a, streamed), store(codes + 32, b, streamed), store(codes + 64, c, streamed),
        store(codes + 96, d, streamed);
  }
  template <int Block>
  FP8WIRE_AVX2_INLINE static vector octaves32(const constants& fixed, vector less, const bf16* from,
                                              vector& least) noexcept {
    const vector even = casts::minus_zero_flushed(load(from)), odd = casts::minus_zero_flushed(load(from + 16));
    const vector own =
        _mm256_shuffle_epi8(less, _mm256_set1_epi16(static_cast<short>((2 * Block + 1) << 8 | 2 * Block)));
    const vector low = octaves16(fixed, even, own), high = octaves16(fixed, odd, own);
    const vector raised = _mm256_packus_epi16(low, high);
    least = _mm256_min_epu8(least, _mm256_sub_epi8(raised, fixed.one));
    const vector codes = casts::with_sign(_mm256_subs_epu8(raised, fixed.lift), _mm256_packs_epi16(even, odd));
    return _mm256_permute4x64_epi64(codes, 0xD8);
  }
  FP8WIRE_AVX2_INLINE static vector octaves16(const constants& fixed, vector bits, vector less) noexcept {
    const vector odd = _mm256_and_si256(_mm256_srli_epi16(bits, 4), fixed.ulp);
    return _mm256_srli_epi16(_mm256_add_epi16(_mm256_subs_epu16(_mm256_and_si256(bits, fixed.magnitude), less), odd),
                             4);
  }
};

/// The same of FP32 elements, which are multiplied.
template <row_cast Cast> struct avx2_octaves<Cast, float> : avx2_words {
  static constexpr row_cast multiplying = [] {
    row_cast cast = Cast;
    cast.divide = false;  // by a power of two: multiplying by its reciprocal is the same
    return cast;
  }();
  using casts = avx2_casts<multiplying, float>;
  static constexpr i64 ahead = 2048;  // elements

  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 run(const float* from, u8* codes, e8m0* scales, i64 blocks, int least,
                                               const octave_steps& steps, bool streamed) noexcept {
    const typename casts::lifting fixed = casts::make_lifting();
    const vector magnitude = hidden(_mm256_set1_epi32(0x7FFFFFFF));
    const vector below = _mm256_set1_epi32(least), above = _mm256_set1_epi32(steps.most - 1);
    i64 block = 0;
    for (; block + 8 <= blocks; block += 8, from += 256, codes += 256) {
      prefetch128<2>(from + ahead), prefetch128<2>(from + ahead + 128);
      const vector a = pair_max(maxima8(magnitude, from), maxima8(magnitude, from + 32));
      const vector b = pair_max(maxima8(magnitude, from + 64), maxima8(magnitude, from + 96));
      const vector c = pair_max(maxima8(magnitude, from + 128), maxima8(magnitude, from + 160));
      const vector d = pair_max(maxima8(magnitude, from + 192), maxima8(magnitude, from + 224));
      const vector e = _mm256_max_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
      const vector f = _mm256_max_epu32(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
      const vector amax =
          _mm256_max_epu32(_mm256_permute2x128_si256(e, f, 0x20), _mm256_permute2x128_si256(e, f, 0x31));
      const vector odd = _mm256_or_si256(_mm256_cmpgt_epi32(below, amax), _mm256_cmpgt_epi32(amax, above));
      if (__builtin_expect(!_mm256_testz_si256(odd, odd), 0)) break;
      const vector byte =
          _mm256_add_epi32(_mm256_srli_epi32(_mm256_add_epi32(amax, _mm256_set1_epi32(steps.raise)), 23),
                           _mm256_set1_epi32(steps.offset));
      const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(byte), _mm256_extracti128_si256(byte, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(scales + block), _mm_packus_epi16(words, words));
      alignas(32) float factors[8];
      _mm256_store_si256(reinterpret_cast<vector*>(factors),
                         _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254 + 80), byte), 23));
      octaves128(fixed, from, codes, factors, scales + block, streamed);
      octaves128(fixed, from + 128, codes + 128, factors + 4, scales + block + 4, streamed);
    }
    return block;
  }

 private:
  FP8WIRE_AVX2_INLINE static vector maxima8(vector magnitude, const float* from) noexcept {
    return _mm256_max_epu32(
        _mm256_max_epu32(_mm256_and_si256(load(from), magnitude), _mm256_and_si256(load(from + 8), magnitude)),
        _mm256_max_epu32(_mm256_and_si256(load(from + 16), magnitude), _mm256_and_si256(load(from + 24), magnitude)));
  }
  FP8WIRE_AVX2_INLINE static vector pair_max(vector a, vector b) noexcept {
    return _mm256_max_epu32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  }
  FP8WIRE_AVX2_INLINE static void octaves128(const typename casts::lifting& fixed, const float* from, u8* codes,
                                             const float* factors, const e8m0* scales, bool streamed) noexcept {
    vector least = _mm256_set1_epi8(-1);
    const vector a = casts::lifted32(fixed, from, _mm256_broadcast_ss(factors), least);
    const vector b = casts::lifted32(fixed, from + 32, _mm256_broadcast_ss(factors + 1), least);
    const vector c = casts::lifted32(fixed, from + 64, _mm256_broadcast_ss(factors + 2), least);
    const vector d = casts::lifted32(fixed, from + 96, _mm256_broadcast_ss(factors + 3), least);
    if (__builtin_expect(casts::missed(least), 0)) return avx2_octaves_cold<Cast>(from, codes, scales, streamed);
    store(codes, a, streamed), store(codes + 32, b, streamed), store(codes + 64, c, streamed),
        store(codes + 96, d, streamed);
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
