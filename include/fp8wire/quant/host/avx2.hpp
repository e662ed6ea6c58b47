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

  static constexpr row_kernel<In> kernel() noexcept { return wide_kernel<avx2, Cast, In>(32, false); }

  /// One row of a band: maxima of `seen`, codes of `cast` with the tables of the blocks, or both in turn, 32 elements
  /// each, so that one computes while the other waits for memory: in longer turns it runs out of what it may reorder.
  template <bool See, bool Codes>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void row(const In* seen, const In* cast, code_place place, i64 cols,
                                                i64 block_cols, block_state* blocks, look_ahead ahead) noexcept {
    for (i64 col = 0; col < cols;) {
      col = with_tables<See, Codes>(seen, cast, place, col, cols, block_cols, blocks, ahead);
      if (col < cols) col = without_table<See, Codes>(seen, cast, place, col, cols, block_cols, blocks, ahead);
    }
  }

  /// The largest magnitude seen by a block, as bits of In. Clears the maxima for the next band.
  FP8WIRE_AVX2 static u32 take_largest(block_state& block) noexcept {
    const vector zero = _mm256_setzero_si256();
    if constexpr (sizeof(In) == 2) {
      const vector both = _mm256_max_epu16(load(block.maxima), load(block.maxima + 32));
      const __m128i eight = _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      store(block.maxima, zero), store(block.maxima + 32, zero);
      // minpos finds the least of eight: of the complements.
      return 0xFFFFu & ~static_cast<u32>(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)))));
    } else {
      const vector both = _mm256_max_epu32(load(block.maxima), load(block.maxima + 32));
      __m128i four = _mm_max_epu32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
      four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
      store(block.maxima, zero), store(block.maxima + 32, zero);
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
  /// What 32 elements of a block are cast with, in registers.
  struct table_path {
    vector rounding, exponent, below;
  };
  FP8WIRE_AVX2_INLINE static bool has_table(const block_state& block) noexcept {
    if constexpr (Cast.table) return block.tabled;
    else return block.how == cast_how::lifted;
  }
  FP8WIRE_AVX2_INLINE static auto table_of(const block_state& block) noexcept {
    if constexpr (Cast.table)
      return table_path{twice(block.rounding), twice(block.exponent), _mm256_set1_epi8(static_cast<char>(block.below))};
    else return _mm256_set1_ps(block.lifted * casts::lifted_rest);
  }

  /// 32 BF16 elements by the block's table. `least` becomes the smallest half exponent field less one, zero counting as
  /// 255.
  FP8WIRE_AVX2_INLINE static vector codes32(const constants& fixed, const table_path& table, const In* from,
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
    least = _mm256_sub_epi8(field, fixed.one);
    const vector lowering = _mm256_shuffle_epi8(table.exponent, _mm256_subs_epu8(field, table.below));
    return _mm256_or_si256(_mm256_subs_epu8(step, lowering), _mm256_and_si256(high, fixed.sign));
  }
  FP8WIRE_AVX2_INLINE static bool missed(const table_path& table, vector least) noexcept {
    const vector unreached = _mm256_subs_epu8(table.below, least);
    return !_mm256_testz_si256(unreached, unreached);
  }
  FP8WIRE_AVX2_INLINE static vector codes32(const constants& fixed, __m256 factor, const In* from,
                                            vector& least) noexcept {
    least = _mm256_set1_epi8(-1);
    return casts::lifted32(fixed.lifting, from, factor, least);
  }
  FP8WIRE_AVX2_INLINE static bool missed(__m256, vector least) noexcept { return casts::missed(least); }

  /// The next 32 codes.
  FP8WIRE_AVX2_INLINE static void put(code_place place, vector codes) noexcept {
    if constexpr (Cast.compare) {
      const u32 differs = ~static_cast<u32>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, load(place.before))));
      __builtin_memcpy(place.changed, &differs, 4);
    }
    store(place.codes, codes, place.streamed);
  }

  /// The columns from `col` on; returns where it cannot go on: at a block that has no table, at 32 elements of which
  /// one is below the normal codes, at fewer than 32. No call in here, so that constants stay in registers.
  template <bool See, bool Codes>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 with_tables(const In* seen, const In* cast, code_place place, i64 col,
                                                       i64 cols, i64 block_cols, block_state* blocks,
                                                       look_ahead ahead) noexcept {
    const constants fixed = make_constants();
    block_state* block = blocks + col / block_cols;
    for (; col < cols; ++block) {
      if constexpr (Cast.cols_128) {
        for (; col % 128 == 0 && col + 128 <= cols; col += 128, ++block) {
          if (Codes && __builtin_expect(!has_table(*block), 0)) return col;
          const auto table = table_of(*block);
          vector low = load(block->maxima), high = load(block->maxima + 32);
          const i64 done = next128<See, Codes>(fixed, table, seen, cast, place, col, ahead, low, high);
          if constexpr (See) store(block->maxima, low), store(block->maxima + 32, high);
          if (__builtin_expect(done != 128, 0)) return col + done;
        }
        if (col == cols) break;
      }
      const i64 next = (block - blocks + 1) * block_cols, end = next < cols ? next : cols;
      if (Codes && __builtin_expect(!has_table(*block), 0)) return col;
      const auto table = table_of(*block);
      vector low = load(block->maxima), high = load(block->maxima + 32);
      while (col + 32 <= end && next32<See, Codes>(fixed, table, seen, cast, place, col, ahead, low, high)) col += 32;
      if constexpr (See) store(block->maxima, low), store(block->maxima + 32, high);
      if (col < end) return col;
    }
    return col;
  }
  /// 32 columns, or false where a code is missed, before it stores one.
  template <bool See, bool Codes, class Table>
  FP8WIRE_AVX2_INLINE static bool next32(const constants& fixed, const Table& table, const In* seen, const In* cast,
                                         code_place place, i64 col, look_ahead ahead, vector& low,
                                         vector& high) noexcept {
    if constexpr (See) {
      prefetch32<2>(seen + col + ahead.seen);
      see32(fixed, seen + col, low, high);
    }
    if constexpr (Codes) {
      prefetch32<0>(cast + col + ahead.cast);
      if constexpr (Cast.compare) __builtin_prefetch(place.before + col + ahead.before, 0, 0);
      vector least;
      const vector codes = codes32(fixed, table, cast + col, least);
      if (__builtin_expect(missed(table, least), 0)) return false;
      put(place.at<Cast>(col), codes);
    }
    return true;
  }
  /// 128 columns, or how many of them come before a code is missed. By hand: g++ 12 at -O2 unrolls nothing.
  template <bool See, bool Codes, class Table>
  FP8WIRE_AVX2_INLINE static i64 next128(const constants& fixed, const Table& table, const In* seen, const In* cast,
                                         code_place place, i64 col, look_ahead ahead, vector& low,
                                         vector& high) noexcept {
    if (!next32<See, Codes>(fixed, table, seen, cast, place, col, ahead, low, high)) return 0;
    if (!next32<See, Codes>(fixed, table, seen, cast, place, col + 32, ahead, low, high)) return 32;
    if (!next32<See, Codes>(fixed, table, seen, cast, place, col + 64, ahead, low, high)) return 64;
    if (!next32<See, Codes>(fixed, table, seen, cast, place, col + 96, ahead, low, high)) return 96;
    return 128;
  }

  /// Up to 128 columns of a block without its table. Returns where they end.
  template <bool See, bool Codes>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 without_table(const In* seen, const In* cast, code_place place, i64 col,
                                                         i64 cols, i64 block_cols, block_state* blocks,
                                                         look_ahead ahead) noexcept {
    block_state& block = blocks[col / block_cols];
    const i64 next = (col / block_cols + 1) * block_cols, end = next < cols ? next : cols;
    const i64 count = end - col < 128 ? end - col : 128, vectors = count / 32 * 32;
    if constexpr (See) {
      const constants fixed = make_constants();
      vector low = load(block.maxima), high = load(block.maxima + 32);
      for (i64 i = 0; i < vectors; i += 32) {
        prefetch32<2>(seen + col + i + ahead.seen);
        see32(fixed, seen + col + i, low, high);
      }
      if (vectors < count) {
        In padded[32] = {};
        __builtin_memcpy(padded, seen + col + vectors, sizeof(In) * static_cast<std::size_t>(count - vectors));
        see32(fixed, padded, low, high);
      }
      store(block.maxima, low), store(block.maxima + 32, high);
    }
    if constexpr (Codes) {
      prefetch128<0>(cast + col + ahead.cast);
      alignas(32) u8 codes[128];
      cast_some<casts>(block, cast + col, codes, count);
      for (i64 i = 0; i < vectors; i += 32) put(place.at<Cast>(col + i), load(codes + i));
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
