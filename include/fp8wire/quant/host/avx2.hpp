// SPDX-License-Identifier: Apache-2.0
/// Rows of weights to maxima and codes with AVX2 and FMA, whatever the build flags.
#ifndef FP8WIRE_QUANT_HOST_AVX2_HPP
#define FP8WIRE_QUANT_HOST_AVX2_HPP
#include <fp8wire/quant/host/avx2_octaves.hpp>

#if defined(FP8WIRE_AVX2)

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <row_cast Cast, class In> struct avx2 : avx2_words {
  using casts = avx2_casts<Cast, In>;
  using octaves = avx2_octaves<Cast, In>;

  static constexpr row_kernel<In> kernel() noexcept { return wide_kernel<avx2, Cast, In>(32); }

  /// One row of a band: maxima of `seen`, codes of `cast` with the tables of the blocks, or both interleaved, so that
  /// one waits for memory while the other computes.
  template <bool See, bool Codes, bool Stream>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void row(const In* seen, const In* cast, code_place place, i64 cols,
                                                i64 block_cols, block_state* block, look_ahead ahead) noexcept {
    const constants fixed = make_constants();
    i64 col = 0;
    if constexpr (Cast.cols_128) {
      for (; col + 128 <= cols; col += 128, ++block) {
        vector low = load(block->maxima), high = load(block->maxima + 32);
        if constexpr (See) see128(fixed, seen + col, seen + col + ahead.seen, low, high);
        if constexpr (See) store<false>(block->maxima, low), store<false>(block->maxima + 32, high);
        if constexpr (Codes) cast128<Stream>(fixed, *block, cast + col, place.at<Cast>(col), ahead);
      }
    }
    for (; col < cols; ++block) {
      const i64 end = cols - col < block_cols ? cols : col + block_cols;
      vector low = load(block->maxima), high = load(block->maxima + 32);
      for (; col + 128 <= end; col += 128) {
        if constexpr (See) see128(fixed, seen + col, seen + col + ahead.seen, low, high);
        if constexpr (Codes) cast128<Stream>(fixed, *block, cast + col, place.at<Cast>(col), ahead);
      }
      for (; col + 32 <= end; col += 32) {
        if constexpr (See) see32(fixed, seen + col, low, high);
        if constexpr (Codes) cast_few<Stream>(fixed, *block, cast + col, place.at<Cast>(col), 32);
      }
      if (col < end) {
        if constexpr (See) see_tail(fixed, seen + col, end - col, low, high);
        if constexpr (Codes) cast_few<false>(fixed, *block, cast + col, place.at<Cast>(col), end - col);
        col = end;
      }
      if constexpr (See) store<false>(block->maxima, low), store<false>(block->maxima + 32, high);
    }
  }

  /// The largest magnitude seen by a block, as bits of In. Clears the maxima for the next band.
  FP8WIRE_AVX2 static u32 take_largest(block_state& block) noexcept {
    const vector zero = _mm256_setzero_si256();
    if constexpr (sizeof(In) == 2) {
      const vector both = _mm256_max_epu16(load(block.maxima), load(block.maxima + 32));
      const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      store<false>(block.maxima, zero), store<false>(block.maxima + 32, zero);
      // minpos finds the least of eight: of the complements.
      return 0xFFFFu & ~static_cast<u32>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)))));
    } else {
      const vector both = _mm256_max_epu32(load(block.maxima), load(block.maxima + 32));
      __m128i four = _mm_max_epu32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
      store<false>(block.maxima, zero), store<false>(block.maxima + 32, zero);
      return static_cast<u32>(_mm_cvtsi128_si32(four));
    }
  }

  /// Orders streamed stores before whatever announces them.
  static void fence() noexcept { asm volatile("sfence" : : : "memory"); }

 private:
  /// Constants of the inner loops. Hidden from the compiler, which would build them anew in every round to save a
  /// register.
  struct constants {
    vector magnitude, split, nibble, raise, field, one, sign;
    typename casts::lifting lifting;
  };
  FP8WIRE_AVX2_INLINE static constants make_constants() noexcept {
    constants made;
    if constexpr (sizeof(In) == 2) made.magnitude = hidden(_mm256_set1_epi16(0x7FFF));
    else made.magnitude = hidden(_mm256_set1_epi32(0x7FFFFFFF));
    made.split =
        hidden(_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
    made.nibble = bytes(15), made.raise = bytes(0xE0), made.field = bytes(0x7F), made.one = bytes(1),
    made.sign = bytes(0x80);
    if constexpr (Cast.direct && !Cast.table) made.lifting = casts::make_lifting();
    return made;
  }

  FP8WIRE_AVX2_INLINE static void see32(const constants& fixed, const In* from, vector& low, vector& high) noexcept {
    if constexpr (sizeof(In) == 2) {
      low = _mm256_max_epu16(low, _mm256_and_si256(load(from), fixed.magnitude));
      high = _mm256_max_epu16(high, _mm256_and_si256(load(from + 16), fixed.magnitude));
    } else {
      low = _mm256_max_epu32(low, _mm256_and_si256(load(from), fixed.magnitude));
      high = _mm256_max_epu32(high, _mm256_and_si256(load(from + 8), fixed.magnitude));
      low = _mm256_max_epu32(low, _mm256_and_si256(load(from + 16), fixed.magnitude));
      high = _mm256_max_epu32(high, _mm256_and_si256(load(from + 24), fixed.magnitude));
    }
  }
  FP8WIRE_AVX2_INLINE static void see128(const constants& fixed, const In* from, const In* next, vector& low,
                                         vector& high) noexcept {
    prefetch128<2>(next);
    see32(fixed, from, low, high), see32(fixed, from + 32, low, high);
    see32(fixed, from + 64, low, high), see32(fixed, from + 96, low, high);
  }
  FP8WIRE_AVX2_INLINE static void see_tail(const constants& fixed, const In* from, i64 count, vector& low,
                                           vector& high) noexcept {
    In padded[32] = {};
    __builtin_memcpy(padded, from, sizeof(In) * static_cast<std::size_t>(count));
    see32(fixed, padded, low, high);
  }

  /// A block's table in registers.
  struct lookup {
    vector rounding, exponent, below;
  };

  /// 32 BF16 elements by the block's table. `least` keeps the smallest half exponent field less one, zero counting as
  /// 255.
  FP8WIRE_AVX2_INLINE static vector look_up32(const constants& fixed, const lookup& table, const In* from,
                                              vector& least) noexcept {
    // Lanes hold elements 0-7|16-23 and 8-15|24-31: after the unpacking of halves, bytes lie in order.
    const vector even = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(from)), load_half(from + 16), 1);
    const vector odd = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(from + 8)), load_half(from + 24), 1);
    const vector a = _mm256_shuffle_epi8(casts::minus_zero_flushed(even), fixed.split);
    const vector b = _mm256_shuffle_epi8(casts::minus_zero_flushed(odd), fixed.split);
    const vector low = _mm256_unpacklo_epi64(a, b), high = _mm256_unpackhi_epi64(a, b);
    const vector rounding =
        _mm256_shuffle_epi8(table.rounding, _mm256_and_si256(_mm256_srli_epi16(low, 3), fixed.nibble));
    const vector step = _mm256_or_si256(_mm256_srli_epi16(_mm256_avg_epu8(low, rounding), 3), fixed.raise);
    const vector field = _mm256_and_si256(high, fixed.field);
    least = _mm256_min_epu8(least, _mm256_sub_epi8(field, fixed.one));
    const vector lowering = _mm256_shuffle_epi8(table.exponent, _mm256_subs_epu8(field, table.below));
    return _mm256_or_si256(_mm256_subs_epu8(step, lowering), _mm256_and_si256(high, fixed.sign));
  }

  /// The next 32 codes, past the caches where they are streamed.
  template <bool Stream> FP8WIRE_AVX2_INLINE static void put(code_place place, i64 i, vector codes) noexcept {
    if constexpr (Cast.compare) {
      const u32 differs = ~static_cast<u32>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, load(place.before + i))));
      __builtin_memcpy(place.changed + i / 8, &differs, 4);
    }
    store<Stream>(place.codes + i, codes);
  }
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void put128(code_place place, vector a, vector b, vector c, vector d) noexcept {
    put<Stream>(place, 0, a), put<Stream>(place, 32, b), put<Stream>(place, 64, c), put<Stream>(place, 96, d);
  }

  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void cast128(const constants& fixed, const block_state& block, const In* from,
                                          code_place place, look_ahead ahead) noexcept {
    prefetch128<3>(from + ahead.cast);
    if constexpr (Cast.compare) {
      __builtin_prefetch(place.before + ahead.before, 0, 2), __builtin_prefetch(place.before + ahead.before + 64, 0, 2);
    }
    if constexpr (Cast.table) {
      if (__builtin_expect(!block.tabled, 0)) return cast_cold<Stream>(block, from, place);
      const lookup table = {twice(block.rounding), twice(block.exponent),
                            _mm256_set1_epi8(static_cast<char>(block.below))};
      vector least = _mm256_set1_epi8(-1);
      const vector a = look_up32(fixed, table, from, least), b = look_up32(fixed, table, from + 32, least);
      const vector c = look_up32(fixed, table, from + 64, least), d = look_up32(fixed, table, from + 96, least);
      // Below the normal codes the table does not reach. All or nothing: a line that was streamed must not be touched
      // again.
      const vector unreached = _mm256_subs_epu8(table.below, least);
      if (__builtin_expect(!_mm256_testz_si256(unreached, unreached), 0)) return cast_cold<Stream>(block, from, place);
      put128<Stream>(place, a, b, c, d);
    } else {
      if (__builtin_expect(block.how != cast_how::lifted, 0)) return cast_cold<Stream>(block, from, place);
      const __m256 factor = _mm256_set1_ps(block.lifted);
      vector least = _mm256_set1_epi8(-1);
      const vector a = casts::lifted32(fixed.lifting, from, factor, least),
                   b = casts::lifted32(fixed.lifting, from + 32, factor, least);
      const vector c = casts::lifted32(fixed.lifting, from + 64, factor, least),
                   d = casts::lifted32(fixed.lifting, from + 96, factor, least);
      if (__builtin_expect(casts::missed(least), 0)) return cast_cold<Stream>(block, from, place);
      put128<Stream>(place, a, b, c, d);
    }
  }
  template <bool Stream>
  FP8WIRE_AVX2 __attribute__((noinline, cold)) static void cast_cold(const block_state& block, const In* from,
                                                                     code_place place) noexcept {
    alignas(32) u8 some[128];
    cast_some<casts>(block, from, some, 128);
    for (int i = 0; i < 128; i += 32) put<Stream>(place, i, load(some + i));
  }
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void cast_few([[maybe_unused]] const constants& fixed, const block_state& block,
                                           const In* from, code_place place, i64 count) noexcept {
    if constexpr (Cast.direct && !Cast.table) {
      if (count == 32 && block.how == cast_how::lifted) {
        vector least = _mm256_set1_epi8(-1);
        const vector codes = casts::lifted32(fixed.lifting, from, _mm256_set1_ps(block.lifted), least);
        if (__builtin_expect(!casts::missed(least), 1)) return put<Stream>(place, 0, codes);
      }
    }
    if constexpr (Cast.direct) {
      if (count == 32 && block.how != cast_how::reference)
        return put<Stream>(place, 0, casts::cast32(from, _mm256_set1_ps(block.operand)));
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
