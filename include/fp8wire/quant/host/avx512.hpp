// SPDX-License-Identifier: Apache-2.0
/// Rows of weights to maxima and codes with AVX-512 (F, BW, VL, VBMI), whatever the build flags; built like avx2.hpp.
#ifndef FP8WIRE_QUANT_HOST_AVX512_HPP
#define FP8WIRE_QUANT_HOST_AVX512_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

#if defined(FP8WIRE_AVX512)
#include <immintrin.h>

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <row_cast Cast, class In> struct avx512 {
  using vector = __m512i;
  static constexpr i64 octaves_ahead = 8192 / i64{sizeof(In)};
  // Masks of all lanes: the forms without a mask make g++ 12 warn of its own headers (GCC bug 105593), the code is the
  // same.
  static constexpr __mmask16 all16 = 0xFFFF;
  static constexpr __mmask32 all32 = 0xFFFFFFFF;

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

  /// As avx2::cast_direct.
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static void cast_direct(const In* from, u8* codes, i64 count,
                                                          float operand) noexcept {
    const __m512 factor = _mm512_set1_ps(operand);
    i64 i = 0;
    for (; i + 32 <= count; i += 32) store32<false>(codes + i, cast32(from + i, factor));
    if (i < count) {
      In padded[32] = {};
      u8 some[32];
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      store32<false>(some, cast32(padded, factor));
      __builtin_memcpy(codes + i, some, static_cast<std::size_t>(count - i));
    }
  }

  /// As avx2::octaves.
  template <bool Stream>
  FP8WIRE_AVX512 FP8WIRE_NOINLINE static i64 octaves(const In* from, u8* codes, e8m0* scales, i64 blocks, int least,
                                                     const octave_steps& steps) noexcept {
    const constants fixed = make_constants();
    const __m128i below = _mm_set1_epi16(static_cast<short>(least)),
                  above = _mm_set1_epi16(static_cast<short>(steps.most - 1));
    i64 block = 0;
    for (; block + 8 <= blocks; block += 8, from += 256, codes += 256) {
      prefetch128<2>(from + octaves_ahead), prefetch128<2>(from + octaves_ahead + 128);
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
      octaves128<Stream, 0>(fixed, less, from, codes, scales + block);
      octaves128<Stream, 4>(fixed, less, from + 128, codes + 128, scales + block + 4);
    }
    return block;
  }

 private:
  template <class Value> FP8WIRE_AVX512_INLINE static vector load(const Value* from) noexcept {
    return _mm512_loadu_si512(from);
  }
  template <bool Stream> FP8WIRE_AVX512_INLINE static void store(u8* to, vector value) noexcept {
    if constexpr (Stream) _mm512_stream_si512(reinterpret_cast<vector*>(to), value);
    else _mm512_storeu_si512(to, value);
  }
  template <bool Stream> FP8WIRE_AVX512_INLINE static void store32(u8* to, __m256i value) noexcept {
    if constexpr (Stream) _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
    else _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  template <class Value> FP8WIRE_AVX512_INLINE static __m256i load_half(const Value* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  template <int Hint> FP8WIRE_AVX512_INLINE static void prefetch128(const In* at) noexcept {
    __builtin_prefetch(at, 0, Hint), __builtin_prefetch(at + 32, 0, Hint);
    __builtin_prefetch(at + 64, 0, Hint), __builtin_prefetch(at + 96, 0, Hint);
    if constexpr (sizeof(In) == 4) {
      __builtin_prefetch(at + 16, 0, Hint), __builtin_prefetch(at + 48, 0, Hint);
      __builtin_prefetch(at + 80, 0, Hint), __builtin_prefetch(at + 112, 0, Hint);
    }
  }

  struct constants {
    vector magnitude, even_bytes, odd_bytes, sign;
    vector power, shift, halves, half, less, lift, order;  // of lifted arithmetic
  };
  FP8WIRE_AVX512_INLINE static vector hidden(vector value) noexcept {
    asm("" : "+v"(value));
    return value;
  }
  FP8WIRE_AVX512_INLINE static constants make_constants() noexcept {
    alignas(64) u8 even[64];
    for (int i = 0; i < 64; ++i) even[i] = static_cast<u8>(2 * i);
    constants made;
    if constexpr (sizeof(In) == 2) made.magnitude = hidden(_mm512_set1_epi16(0x7FFF));
    else made.magnitude = hidden(_mm512_set1_epi32(0x7FFFFFFF));
    made.even_bytes = hidden(load(even));
    made.odd_bytes = hidden(_mm512_add_epi8(made.even_bytes, _mm512_set1_epi8(1)));
    made.sign = hidden(_mm512_set1_epi8(static_cast<char>(0x80)));
    if constexpr (Cast.direct && !Cast.table) {
      made.power = hidden(_mm512_set1_epi32(static_cast<int>(0xFF800000)));
      made.shift = hidden(_mm512_set1_epi32((127 + dropped_bits) << 23));
      made.halves = hidden(_mm512_set1_epi32(1 << 16 | 1 << spare_bits));
      made.half = hidden(_mm512_set1_epi16(0x7FFF));
      made.less = hidden(_mm512_set1_epi16(static_cast<short>(lifted_zero)));
      made.lift = hidden(_mm512_set1_epi8(lift));
      made.order = hidden(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    }
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

  static constexpr int mantissa_bits = Cast.mantissa_bits, dropped_bits = 23 - mantissa_bits;
  static constexpr int excess = (128 - Cast.bias) << mantissa_bits;
  /// The code of each |element| plus `excess`, modulo 256; the sum as in avx2::code8.
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
  /// As avx2::lifted8 and lifted32, in wider vectors.
  static constexpr int spare_bits = 7 - mantissa_bits, lift = 40;
  static constexpr int lifted_zero = ((128 - Cast.bias + 80 + dropped_bits) << 7) - (lift << spare_bits);
  FP8WIRE_AVX512_INLINE static vector lifted16(const constants& fixed, const In* from, __m512 operand) noexcept {
    const __m512 element = as_float(load16(from));
    __m512 image;
    if constexpr (Cast.divide) image = quotient(element, operand);
    else image = _mm512_mul_ps(element, operand);
    image = ieee_result(image);
    const __m512 power = as_float(_mm512_and_si512(as_bits(image), fixed.power));
    return _mm512_madd_epi16(as_bits(_mm512_fmadd_ps(power, as_float(fixed.shift), image)), fixed.halves);
  }
  FP8WIRE_AVX512_INLINE static vector lifted_magnitudes(const constants& fixed, vector halves) noexcept {
    return _mm512_srli_epi16(_mm512_subs_epu16(_mm512_and_si512(halves, fixed.half), fixed.less), spare_bits);
  }
  FP8WIRE_AVX512_INLINE static vector lifted64(const constants& fixed, const In* from, __m512 operand,
                                               vector& least) noexcept {
    const vector low = _mm512_packs_epi32(lifted16(fixed, from, operand), lifted16(fixed, from + 16, operand));
    const vector high = _mm512_packs_epi32(lifted16(fixed, from + 32, operand), lifted16(fixed, from + 48, operand));
    const vector raised = _mm512_packus_epi16(lifted_magnitudes(fixed, low), lifted_magnitudes(fixed, high));
    least = _mm512_min_epu8(least, _mm512_sub_epi8(raised, _mm512_set1_epi8(1)));
    const vector codes =
        _mm512_min_epu8(_mm512_subs_epu8(raised, fixed.lift), _mm512_set1_epi8(static_cast<char>(Cast.max_code)));
    vector signs = _mm512_and_si512(_mm512_packs_epi16(low, high), fixed.sign);
    if constexpr (Cast.fnuz) signs = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(codes, codes), signs);
    return _mm512_maskz_permutexvar_epi32(all16, fixed.order, _mm512_or_si512(codes, signs));
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

  FP8WIRE_AVX512_INLINE static vector minus_zero_flushed(vector bits) noexcept {
    if constexpr (Cast.keep_negative_zero) return bits;
    else
      return _mm512_maskz_mov_epi16(_mm512_cmpneq_epu16_mask(bits, _mm512_set1_epi16(static_cast<short>(0x8000))),
                                    bits);
  }

  /// 64 BF16 elements by the octave's 128 codes, plus eight for every exponent above it. `missed`: elements below it.
  FP8WIRE_AVX512_INLINE static vector look_up64(const constants& fixed, vector low_codes, vector high_codes,
                                                vector first, const In* from, __mmask64& missed) noexcept {
    const vector a = minus_zero_flushed(load(from)), b = minus_zero_flushed(load(from + 32));
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
      const vector a = lifted64(fixed, from, factor, least), b = lifted64(fixed, from + 64, factor, least);
      constexpr char below = (1 << mantissa_bits) + lift - 1;
      if (__builtin_expect(_mm512_cmplt_epu8_mask(least, _mm512_set1_epi8(below)) != 0, 0))
        return cast_cold<Stream>(block, from, place);
      put<Stream>(place, 0, a), put<Stream>(place, 64, b);
    }
  }
  template <bool Stream>
  FP8WIRE_AVX512 __attribute__((noinline, cold)) static void cast_cold(const block_state& block, const In* from,
                                                                       code_place place) noexcept {
    alignas(64) u8 some[128];
    cast_some<avx512>(block, from, some, 128);
    put<Stream>(place, 0, load(some)), put<Stream>(place, 64, load(some + 64));
  }
  template <bool Stream>
  FP8WIRE_AVX512_INLINE static void cast_few(const block_state& block, const In* from, code_place place,
                                             i64 count) noexcept {
    if constexpr (Cast.direct) {
      if (count == 32 && block.how != cast_how::reference)
        return put32<Stream>(place, 0, cast32(from, _mm512_set1_ps(block.operand)));
    }
    if constexpr (Cast.compare) {
      u8 some[32];
      cast_some<avx512>(block, from, some, count);
      replace_some(some, place, count);
    } else {
      cast_some<avx512>(block, from, place.codes, count);
    }
  }

  FP8WIRE_AVX512_INLINE static __m128i maxima8(const In* from) noexcept {
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
    const __m256i both = _mm256_max_epu16(_mm256_and_si256(load_half(from), magnitude),
                                          _mm256_and_si256(load_half(from + 16), magnitude));
    return _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }
  FP8WIRE_AVX512_INLINE static __m128i pair_max(__m128i a, __m128i b) noexcept {
    return _mm_max_epu16(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
  }
  template <bool Stream, int First>
  FP8WIRE_AVX512_INLINE static void octaves128(const constants& fixed, vector less, const In* from, u8* codes,
                                               const e8m0* scales) noexcept {
    __m256i least = _mm256_set1_epi8(-1);
    const __m256i a = octaves32<First>(fixed, less, from, least),
                  b = octaves32<First + 1>(fixed, less, from + 32, least);
    const __m256i c = octaves32<First + 2>(fixed, less, from + 64, least),
                  d = octaves32<First + 3>(fixed, less, from + 96, least);
    if (__builtin_expect(_mm256_cmplt_epu8_mask(least, _mm256_set1_epi8(47)) != 0, 0))
      return octaves_cold<Stream>(from, codes, scales);
    store32<Stream>(codes, a), store32<Stream>(codes + 32, b), store32<Stream>(codes + 64, c),
        store32<Stream>(codes + 96, d);
  }
  template <int Block>
  FP8WIRE_AVX512_INLINE static __m256i octaves32(const constants& fixed, vector less, const In* from,
                                                 __m256i& least) noexcept {
    const vector bits = minus_zero_flushed(load(from));
    const vector own =
        _mm512_shuffle_epi8(less, _mm512_set1_epi16(static_cast<short>((2 * Block + 1) << 8 | 2 * Block)));
    const vector odd = _mm512_and_si512(_mm512_srli_epi16(bits, 4), _mm512_set1_epi16(1));
    const vector raised = _mm512_add_epi16(_mm512_subs_epu16(_mm512_and_si512(bits, fixed.magnitude), own), odd);
    const __m256i codes = _mm512_maskz_cvtusepi16_epi8(all32, _mm512_srli_epi16(raised, 4));
    least = _mm256_min_epu8(least, _mm256_sub_epi8(codes, _mm256_set1_epi8(1)));
    const __m256i magnitude =
        _mm256_min_epu8(_mm256_subs_epu8(codes, _mm256_set1_epi8(40)), _mm256_set1_epi8(Cast.max_code));
    return signed32(magnitude, _mm512_movepi16_mask(bits));
  }
  template <bool Stream>
  FP8WIRE_AVX512 __attribute__((noinline, cold)) static void octaves_cold(const In* from, u8* codes,
                                                                          const e8m0* scales) noexcept {
    alignas(64) u8 some[128];
    for (int block = 0; block < 4; ++block) {
      const float operand = Cast.divide ? to_float(scales[block]) : reciprocal(scales[block]);
      cast_direct(from + 32 * block, some + 32 * block, 32, operand);
    }
    store<Stream>(codes, load(some)), store<Stream>(codes + 64, load(some + 64));
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
