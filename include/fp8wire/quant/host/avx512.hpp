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

  static constexpr row_kernel<In> kernel() noexcept { return wide_kernel<avx512, Cast, In>(64, true); }

  /// As avx2::row, in turns of 64 elements.
  template <bool See, bool Codes>
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static void row(const In* seen, const In* cast, code_place place, i64 cols,
                                                  i64 block_cols, block_state* blocks, look_ahead ahead) noexcept {
    for (i64 col = 0; col < cols;) {
      col = with_tables<See, Codes>(seen, cast, place, col, cols, block_cols, blocks, ahead);
      if (col < cols) col = without_table<See, Codes>(seen, cast, place, col, cols, block_cols, blocks, ahead);
    }
  }

  /// The largest magnitude seen by a block, as bits of In. Clears the maxima for the next band.
  FP8WIRE_AVX512 static u32 take_largest(block_state& block) noexcept {
    const __m256i low = load_half(block.maxima), high = load_half(block.maxima + 32);
    store(block.maxima, _mm512_setzero_si512());
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

  /// What 64 elements of a block are cast with, in registers.
  struct table_path {
    vector low_codes, high_codes, first;
  };
  FP8WIRE_AVX512_INLINE static bool has_table(const block_state& block) noexcept {
    if constexpr (Cast.table) return block.tabled;
    else return block.how == cast_how::lifted;
  }
  FP8WIRE_AVX512_INLINE static auto table_of(const block_state& block) noexcept {
    if constexpr (Cast.table)
      return table_path{load(block.octave), load(block.octave + 64), _mm512_set1_epi8(static_cast<char>(block.first))};
    else return _mm512_set1_ps(block.lifted);
  }

  /// 64 BF16 elements by the octave's 128 codes, plus eight for every exponent above it. False where elements are below
  /// it.
  FP8WIRE_AVX512_INLINE static bool codes64(const constants& fixed, const table_path& table, const In* from,
                                            vector& codes) noexcept {
    const vector a = casts::minus_zero_flushed(load(from)), b = casts::minus_zero_flushed(load(from + 32));
    const vector low = _mm512_permutex2var_epi8(a, fixed.even_bytes, b),
                 high = _mm512_permutex2var_epi8(a, fixed.odd_bytes, b);
    const vector field = _mm512_permutex2var_epi8(_mm512_add_epi16(a, a), fixed.odd_bytes, _mm512_add_epi16(b, b));
    const __mmask64 reached = _mm512_cmpge_epu8_mask(field, table.first);
    const __mmask64 not_zero = _mm512_test_epi8_mask(_mm512_or_si512(low, field), _mm512_set1_epi8(-1));
    const vector steps_up = _mm512_slli_epi16(_mm512_subs_epu8(field, table.first), 3);
    const vector octave = _mm512_permutex2var_epi8(table.low_codes, low, table.high_codes);
    codes = _mm512_or_si512(_mm512_maskz_add_epi8(reached, octave, steps_up), _mm512_and_si512(high, fixed.sign));
    return (not_zero & ~reached) == 0;
  }
  FP8WIRE_AVX512_INLINE static bool codes64(const constants& fixed, __m512 factor, const In* from,
                                            vector& codes) noexcept {
    vector least = _mm512_set1_epi8(-1);
    codes = casts::lifted64(fixed.lifting, from, factor, least);
    return !casts::missed(least);
  }

  /// The next 64 codes, and the next 32.
  FP8WIRE_AVX512_INLINE static void put(code_place place, vector codes) noexcept {
    if constexpr (Cast.compare) {
      const u64 differs = _mm512_cmpneq_epu8_mask(codes, load(place.before));
      __builtin_memcpy(place.changed, &differs, 8);
    }
    store(place.codes, codes, place.streamed);
  }
  FP8WIRE_AVX512_INLINE static void put32(code_place place, __m256i codes) noexcept {
    if constexpr (Cast.compare) {
      const u32 differs = _mm256_cmpneq_epu8_mask(codes, load_half(place.before));
      __builtin_memcpy(place.changed, &differs, 4);
    }
    store32(place.codes, codes, place.streamed);
  }

  /// As avx2::with_tables. 32 columns at the end of a block are cast by the arithmetic that needs no table.
  template <bool See, bool Codes>
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static i64 with_tables(const In* seen, const In* cast, code_place place, i64 col,
                                                         i64 cols, i64 block_cols, block_state* blocks,
                                                         look_ahead ahead) noexcept {
    const constants fixed = make_constants();
    block_state* block = blocks + col / block_cols;
    for (; col < cols; ++block) {
      if constexpr (Cast.cols_128) {
        for (; col % 128 == 0 && col + 128 <= cols; col += 128, ++block) {
          if (Codes && __builtin_expect(!has_table(*block), 0)) return col;
          const auto table = table_of(*block);
          vector most = load(block->maxima);
          i64 done = next64<See, Codes>(fixed, table, seen, cast, place, col, ahead, most) ? 64 : 0;
          if (done != 0 && next64<See, Codes>(fixed, table, seen, cast, place, col + 64, ahead, most)) done = 128;
          if constexpr (See) store(block->maxima, most);
          if (__builtin_expect(done != 128, 0)) return col + done;
        }
        if (col == cols) break;
      }
      const i64 next = (block - blocks + 1) * block_cols, end = next < cols ? next : cols;
      if (Codes && __builtin_expect(!has_table(*block), 0)) return col;
      const auto table = table_of(*block);
      vector most = load(block->maxima);
      while (col + 64 <= end && next64<See, Codes>(fixed, table, seen, cast, place, col, ahead, most)) col += 64;
      if (col + 32 <= end && col + 64 > end && (Cast.direct || !Codes)) {
        if constexpr (See) see32(fixed, seen + col, most);
        if constexpr (Codes && Cast.direct)
          put32(place.at<Cast>(col), casts::cast32(cast + col, _mm512_set1_ps(block->operand)));
        col += 32;
      }
      if constexpr (See) store(block->maxima, most);
      if (col < end) return col;
    }
    return col;
  }
  /// 64 columns, or false where a code is missed, before it stores one.
  template <bool See, bool Codes, class Table>
  FP8WIRE_AVX512_INLINE static bool next64(const constants& fixed, const Table& table, const In* seen, const In* cast,
                                           code_place place, i64 col, look_ahead ahead, vector& most) noexcept {
    if constexpr (See) {
      if (ahead.hints) prefetch64<2>(seen + col + ahead.seen);
      see32(fixed, seen + col, most), see32(fixed, seen + col + 32, most);
    }
    if constexpr (Codes) {
      if (ahead.hints) prefetch64<0>(cast + col + ahead.cast);
      if (Cast.compare && ahead.hints) __builtin_prefetch(place.before + col + ahead.before, 0, 0);
      vector codes;
      if (__builtin_expect(!codes64(fixed, table, cast + col, codes), 0)) return false;
      put(place.at<Cast>(col), codes);
    }
    return true;
  }

  /// As avx2::without_table.
  template <bool See, bool Codes>
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static i64 without_table(const In* seen, const In* cast, code_place place, i64 col,
                                                           i64 cols, i64 block_cols, block_state* blocks,
                                                           look_ahead ahead) noexcept {
    block_state& block = blocks[col / block_cols];
    const i64 next = (col / block_cols + 1) * block_cols, end = next < cols ? next : cols;
    const i64 count = end - col < 128 ? end - col : 128, vectors = count / 32 * 32;
    if constexpr (See) {
      const constants fixed = make_constants();
      vector most = load(block.maxima);
      prefetch64<2>(seen + col + ahead.seen), prefetch64<2>(seen + col + ahead.seen + 64);
      for (i64 i = 0; i < vectors; i += 32) see32(fixed, seen + col + i, most);
      if (vectors < count) {
        In padded[32] = {};
        __builtin_memcpy(padded, seen + col + vectors, sizeof(In) * static_cast<std::size_t>(count - vectors));
        see32(fixed, padded, most);
      }
      store(block.maxima, most);
    }
    if constexpr (Codes) {
      prefetch64<0>(cast + col + ahead.cast), prefetch64<0>(cast + col + ahead.cast + 64);
      alignas(64) u8 codes[128];
      cast_some<casts>(block, cast + col, codes, count);
      for (i64 i = 0; i < vectors; i += 32) put32(place.at<Cast>(col + i), load_half(codes + i));
      if (vectors < count) put_few<Cast>(codes + vectors, place.at<Cast>(col + vectors), count - vectors);
    }
    return col + count;
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
