// SPDX-License-Identifier: Apache-2.0
/// Rows of weights to maxima and codes with AVX-512 (F, BW, VL, VBMI), whatever the build flags; built like avx2.hpp.
#ifndef FP8WIRE_QUANT_HOST_AVX512_HPP
#define FP8WIRE_QUANT_HOST_AVX512_HPP
#include <fp8wire/quant/host/avx512_octaves.hpp>

#if defined(FP8WIRE_AVX512)

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <row_cast Cast, class In> struct avx512 : avx512_words {
  using casts = avx512_casts<Cast, In>;
  using octaves = std::conditional_t<std::same_as<In, float>, avx2_octaves<Cast, float>, avx512_octaves<Cast>>;

  static constexpr row_kernel<In> kernel() noexcept { return wide_kernel<avx512, Cast, In>(64); }

  /// As avx2::row.
  template <bool See, bool Codes, bool Stream>
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static void row(const In* seen, const In* cast, code_place place, i64 cols,
                                                  i64 block_cols, block_state* block, look_ahead ahead) noexcept {
    const constants fixed = make_constants();
    i64 col = 0;
    if constexpr (Cast.cols_128) {
      for (; col + 128 <= cols; col += 128, ++block) {
        if constexpr (See) {
          vector most = load(block->maxima);
          see128(fixed, seen + col, seen + col + ahead.seen, most);
          store<false>(block->maxima, most);
        }
        if constexpr (Codes) cast128<Stream>(fixed, *block, cast + col, place.at<Cast>(col), ahead);
      }
    }
    for (; col < cols; ++block) {
      const i64 end = cols - col < block_cols ? cols : col + block_cols;
      vector most = load(block->maxima);
      for (; col + 128 <= end; col += 128) {
        if constexpr (See) see128(fixed, seen + col, seen + col + ahead.seen, most);
        if constexpr (Codes) cast128<Stream>(fixed, *block, cast + col, place.at<Cast>(col), ahead);
      }
      for (; col + 32 <= end; col += 32) {
        if constexpr (See) see32(fixed, seen + col, most);
        if constexpr (Codes) cast_few<Stream>(*block, cast + col, place.at<Cast>(col), 32);
      }
      if (col < end) {
        if constexpr (See) see_tail(fixed, seen + col, end - col, most);
        if constexpr (Codes) cast_few<false>(*block, cast + col, place.at<Cast>(col), end - col);
        col = end;
      }
      if constexpr (See) store<false>(block->maxima, most);
    }
  }

  /// The largest magnitude seen by a block, as bits of In. Clears the maxima for the next band.
  FP8WIRE_AVX512 static u32 take_largest(block_state& block) noexcept {
    const __m256i low = load_half(block.maxima), high = load_half(block.maxima + 32);
    store<false>(block.maxima, _mm512_setzero_si512());
    if constexpr (sizeof(In) == 2) {
      const __m256i both = _mm256_max_epu16(low, high);
      const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      return 0xFFFFu & ~static_cast<u32>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)))));
    } else {
      const __m256i both = _mm256_max_epu32(low, high);
      __m128i four = _mm_max_epu32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
      return static_cast<u32>(_mm_cvtsi128_si32(four));
    }
  }

  static void fence() noexcept { asm volatile("sfence" : : : "memory"); }

 private:
  struct constants {
    vector magnitude, even_bytes, odd_bytes, sign;
    typename casts::lifting lifting;
  };
  FP8WIRE_AVX512_INLINE static constants make_constants() noexcept {
    alignas(64) u8 even[64];
    for (int i = 0; i < 64; ++i) even[i] = static_cast<u8>(2 * i);
    constants made;
    if constexpr (sizeof(In) == 2) made.magnitude = hidden(_mm512_set1_epi16(0x7FFF));
    else made.magnitude = hidden(_mm512_set1_epi32(0x7FFFFFFF));
    made.even_bytes = hidden(load(even));
    made.odd_bytes = hidden(_mm512_add_epi8(made.even_bytes, _mm512_set1_epi8(1)));
    made.sign = hidden(_mm512_set1_epi8(static_cast<char>(0x80)));
    if constexpr (Cast.direct && !Cast.table) made.lifting = casts::make_lifting();
    return made;
  }

  FP8WIRE_AVX512_INLINE static void see32(const constants& fixed, const In* from, vector& most) noexcept {
    if constexpr (sizeof(In) == 2) {
      most = _mm512_max_epu16(most, _mm512_and_si512(load(from), fixed.magnitude));
    } else {
      most = _mm512_maskz_max_epu32(all16, most, _mm512_and_si512(load(from), fixed.magnitude));
      most = _mm512_maskz_max_epu32(all16, most, _mm512_and_si512(load(from + 16), fixed.magnitude));
    }
  }
  FP8WIRE_AVX512_INLINE static void see128(const constants& fixed, const In* from, const In* next,
                                           vector& most) noexcept {
    prefetch128<2>(next);
    see32(fixed, from, most), see32(fixed, from + 32, most), see32(fixed, from + 64, most),
        see32(fixed, from + 96, most);
  }
  FP8WIRE_AVX512_INLINE static void see_tail(const constants& fixed, const In* from, i64 count, vector& most) noexcept {
    In padded[32] = {};
    __builtin_memcpy(padded, from, sizeof(In) * static_cast<std::size_t>(count));
    see32(fixed, padded, most);
  }

  /// 64 BF16 elements by the octave's 128 codes, plus eight for every exponent above it. `missed`: elements below it.
  FP8WIRE_AVX512_INLINE static vector look_up64(const constants& fixed, vector low_codes, vector high_codes,
                                                vector first, const In* from, __mmask64& missed) noexcept {
    const vector a = casts::minus_zero_flushed(load(from)), b = casts::minus_zero_flushed(load(from + 32));
    const vector low = _mm512_permutex2var_epi8(a, fixed.even_bytes, b),
                 high = _mm512_permutex2var_epi8(a, fixed.odd_bytes, b);
    const vector field = _mm512_permutex2var_epi8(_mm512_add_epi16(a, a), fixed.odd_bytes, _mm512_add_epi16(b, b));
    const __mmask64 reached = _mm512_cmpge_epu8_mask(field, first);
    missed |= _mm512_test_epi8_mask(_mm512_or_si512(low, field), _mm512_set1_epi8(-1)) & ~reached;
    const vector steps_up = _mm512_slli_epi16(_mm512_subs_epu8(field, first), 3);
    const vector codes = _mm512_maskz_add_epi8(reached, _mm512_permutex2var_epi8(low_codes, low, high_codes), steps_up);
    return _mm512_or_si512(codes, _mm512_and_si512(high, fixed.sign));
  }

  /// As avx2::put, 64 and 32 codes.
  template <bool Stream> FP8WIRE_AVX512_INLINE static void put(code_place place, i64 i, vector codes) noexcept {
    if constexpr (Cast.compare) {
      const u64 differs = _mm512_cmpneq_epu8_mask(codes, load(place.before + i));
      __builtin_memcpy(place.changed + i / 8, &differs, 8);
    }
    store<Stream>(place.codes + i, codes);
  }
  template <bool Stream> FP8WIRE_AVX512_INLINE static void put32(code_place place, i64 i, __m256i codes) noexcept {
    if constexpr (Cast.compare) {
      const u32 differs = _mm256_cmpneq_epu8_mask(codes, load_half(place.before + i));
      __builtin_memcpy(place.changed + i / 8, &differs, 4);
    }
    store32<Stream>(place.codes + i, codes);
  }

  template <bool Stream>
  FP8WIRE_AVX512_INLINE static void cast128(const constants& fixed, const block_state& block, const In* from,
                                            code_place place, look_ahead ahead) noexcept {
    prefetch128<3>(from + ahead.cast);
    if constexpr (Cast.compare) {
      __builtin_prefetch(place.before + ahead.before, 0, 2), __builtin_prefetch(place.before + ahead.before + 64, 0, 2);
    }
    if constexpr (Cast.table) {
      if (__builtin_expect(!block.tabled, 0)) return cast_cold<Stream>(block, from, place);
      const vector low = load(block.octave), high = load(block.octave + 64);
      const vector first = _mm512_set1_epi8(static_cast<char>(block.first));
      __mmask64 missed = 0;
      const vector a = look_up64(fixed, low, high, first, from, missed);
      const vector b = look_up64(fixed, low, high, first, from + 64, missed);
      if (__builtin_expect(missed != 0, 0)) return cast_cold<Stream>(block, from, place);
      put<Stream>(place, 0, a), put<Stream>(place, 64, b);
    } else {
      if (__builtin_expect(block.how != cast_how::lifted, 0)) return cast_cold<Stream>(block, from, place);
      const __m512 factor = _mm512_set1_ps(block.lifted);
      vector least = _mm512_set1_epi8(-1);
      const vector a = casts::lifted64(fixed.lifting, from, factor, least),
                   b = casts::lifted64(fixed.lifting, from + 64, factor, least);
      if (__builtin_expect(casts::missed(least), 0)) return cast_cold<Stream>(block, from, place);
      put<Stream>(place, 0, a), put<Stream>(place, 64, b);
    }
  }
  template <bool Stream>
  FP8WIRE_AVX512 __attribute__((noinline, cold)) static void cast_cold(const block_state& block, const In* from,
                                                                       code_place place) noexcept {
    alignas(64) u8 some[128];
    cast_some<casts>(block, from, some, 128);
    put<Stream>(place, 0, load(some)), put<Stream>(place, 64, load(some + 64));
  }
  template <bool Stream>
  FP8WIRE_AVX512_INLINE static void cast_few(const block_state& block, const In* from, code_place place,
                                             i64 count) noexcept {
    if constexpr (Cast.direct) {
      if (count == 32 && block.how != cast_how::reference)
        return put32<Stream>(place, 0, casts::cast32(from, _mm512_set1_ps(block.operand)));
    }
    if constexpr (Cast.compare) {
      u8 some[32];
      cast_some<casts>(block, from, some, count);
      replace_some(some, place, count);
    } else {
      cast_some<casts>(block, from, place.codes, count);
    }
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
