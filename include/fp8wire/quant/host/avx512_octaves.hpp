// SPDX-License-Identifier: Apache-2.0
/// Blocks of 32 BF16 elements under E8M0 scales with AVX-512, eight blocks at a time in 16-bit integers.
#ifndef FP8WIRE_QUANT_HOST_AVX512_OCTAVES_HPP
#define FP8WIRE_QUANT_HOST_AVX512_OCTAVES_HPP
#include <fp8wire/quant/host/avx2_octaves.hpp>
#include <fp8wire/quant/host/avx512_casts.hpp>

#if defined(FP8WIRE_AVX512)

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <row_cast Cast> struct avx512_octaves : avx512_words {
  using casts = avx512_casts<Cast, bf16>;
  static constexpr i64 ahead = 4096;  // elements

  /// As avx2_octaves::run.
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static i64 run(const bf16* from, u8* codes, e8m0* scales, i64 blocks, int least,
                                                 const octave_steps& steps, bool streamed) noexcept {
    const constants fixed{hidden(_mm512_set1_epi16(0x7FFF))};
    const __m128i below = _mm_set1_epi16(static_cast<short>(least)),
                  above = _mm_set1_epi16(static_cast<short>(steps.most - 1));
    i64 block = 0;
    for (; block + 8 <= blocks; block += 8, from += 256, codes += 256) {
      for (i64 i = 0; i < 256; i += 64) prefetch64<2>(from + ahead + i);
      const __m128i a = pair_max(maxima8(from), maxima8(from + 32));
      const __m128i b = pair_max(maxima8(from + 64), maxima8(from + 96));
      const __m128i c = pair_max(maxima8(from + 128), maxima8(from + 160));
      const __m128i d = pair_max(maxima8(from + 192), maxima8(from + 224));
      const __m128i e = _mm_max_epu16(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
      const __m128i f = _mm_max_epu16(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
      const __m128i amax = _mm_max_epu16(_mm_unpacklo_epi64(e, f), _mm_unpackhi_epi64(e, f));
      const __m128i odd = _mm_or_si128(_mm_cmpgt_epi16(below, amax), _mm_cmpgt_epi16(amax, above));
      if (__builtin_expect(!_mm_testz_si128(odd, odd), 0)) break;
      const __m128i byte =
          _mm_add_epi16(_mm_srli_epi16(_mm_add_epi16(amax, _mm_set1_epi16(static_cast<short>(steps.raise))), 7),
                        _mm_set1_epi16(static_cast<short>(steps.offset)));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(scales + block), _mm_packus_epi16(byte, byte));
      const __m128i shift = _mm_slli_epi16(_mm_sub_epi16(byte, _mm_set1_epi16(12)), 7);
      const vector less = _mm512_maskz_broadcast_i32x4(all16, _mm_sub_epi16(shift, _mm_set1_epi16(7)));
      octaves128<0>(fixed, less, from, codes, scales + block, streamed);
      octaves128<4>(fixed, less, from + 128, codes + 128, scales + block + 4, streamed);
    }
    return block;
  }

 private:
  struct constants {
    vector magnitude;
  };
  FP8WIRE_AVX512_INLINE static __m128i maxima8(const bf16* from) noexcept {
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
    const __m256i both = _mm256_max_epu16(_mm256_and_si256(load_half(from), magnitude),
                                          _mm256_and_si256(load_half(from + 16), magnitude));
    return _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }
  FP8WIRE_AVX512_INLINE static __m128i pair_max(__m128i a, __m128i b) noexcept {
    return _mm_max_epu16(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
  }
  template <int First>
  FP8WIRE_AVX512_INLINE static void octaves128(const constants& fixed, vector less, const bf16* from, u8* codes,
                                               const e8m0* scales, bool streamed) noexcept {
    __m256i least = _mm256_set1_epi8(-1);
    const __m256i a = octaves32<First>(fixed, less, from, least),
                  b = octaves32<First + 1>(fixed, less, from + 32, least);
    const __m256i c = octaves32<First + 2>(fixed, less, from + 64, least),
                  d = octaves32<First + 3>(fixed, less, from + 96, least);
    if (__builtin_expect(_mm256_cmplt_epu8_mask(least, _mm256_set1_epi8(47)) != 0, 0))
      return octaves_cold(from, codes, scales, streamed);
    store32(codes, a, streamed), store32(codes + 32, b, streamed), store32(codes + 64, c, streamed),
        store32(codes + 96, d, streamed);
  }
  template <int Block>
  FP8WIRE_AVX512_INLINE static __m256i octaves32(const constants& fixed, vector less, const bf16* from,
                                                 __m256i& least) noexcept {
    const vector bits = casts::minus_zero_flushed(load(from));
    const vector own =
        _mm512_shuffle_epi8(less, _mm512_set1_epi16(static_cast<short>((2 * Block + 1) << 8 | 2 * Block)));
    const vector odd = _mm512_and_si512(_mm512_srli_epi16(bits, 4), _mm512_set1_epi16(1));
    const vector raised = _mm512_add_epi16(_mm512_subs_epu16(_mm512_and_si512(bits, fixed.magnitude), own), odd);
    const __m256i codes = _mm512_maskz_cvtusepi16_epi8(all32, _mm512_srli_epi16(raised, 4));
    least = _mm256_min_epu8(least, _mm256_sub_epi8(codes, _mm256_set1_epi8(1)));
    const __m256i magnitude =
        _mm256_min_epu8(_mm256_subs_epu8(codes, _mm256_set1_epi8(40)), _mm256_set1_epi8(Cast.max_code));
    return casts::signed32(magnitude, _mm512_movepi16_mask(bits));
  }

  FP8WIRE_AVX512 __attribute__((noinline, cold)) static void octaves_cold(const bf16* from, u8* codes,
                                                                          const e8m0* scales, bool streamed) noexcept {
    alignas(64) u8 some[128];
    for (int block = 0; block < 4; ++block) {
      const float operand = Cast.divide ? to_float(scales[block]) : reciprocal(scales[block]);
      casts::cast_direct(from + 32 * block, some + 32 * block, 32, operand);
    }
    store(codes, load(some), streamed), store(codes + 64, load(some + 64), streamed);
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
