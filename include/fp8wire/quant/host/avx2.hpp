// SPDX-License-Identifier: Apache-2.0
/// Rows of weights to maxima and codes with AVX2 and FMA, whatever the build flags.
///
/// Everything is a static member with the target attribute: lambdas and untargeted functions cannot hold vector types.
/// `asm("" : "+x")` keeps a product or quotient what IEEE says: g++ contracts intrinsics, -ffast-math reassociates
/// them.
#ifndef FP8WIRE_QUANT_HOST_AVX2_HPP
#define FP8WIRE_QUANT_HOST_AVX2_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

#if defined(FP8WIRE_AVX2)
#include <immintrin.h>

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <row_cast Cast, class In> struct avx2 {
  using vector = __m256i;
  static constexpr i64 octaves_ahead = 8192 / i64{sizeof(In)};

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
        if constexpr (Codes) cast_few<Stream>(*block, cast + col, place.at<Cast>(col), 32);
      }
      if (col < end) {
        if constexpr (See) see_tail(fixed, seen + col, end - col, low, high);
        if constexpr (Codes) cast_few<false>(*block, cast + col, place.at<Cast>(col), end - col);
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

  /// `count` codes, elements by FP32 arithmetic. Expects: a rule that promises a multiplication or a division.
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void cast_direct(const In* from, u8* codes, i64 count, float operand) noexcept {
    const __m256 factor = _mm256_set1_ps(operand);
    i64 i = 0;
    for (; i + 32 <= count; i += 32) store<false>(codes + i, cast32(from + i, factor));
    if (i < count) {
      In padded[32] = {};
      alignas(32) u8 some[32];
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      store<false>(some, cast32(padded, factor));
      __builtin_memcpy(codes + i, some, static_cast<std::size_t>(count - i));
    }
  }

  /// Blocks of 32 BF16 elements under E8M0 scales, eight at a time in 16-bit integers: what a power of two scales keeps
  /// its mantissa, so that a code is the magnitude less the scale's exponent, rounded to three bits. Returns how many
  /// blocks are done: all, or those before eight that hold an amax outside [least, steps.most), which take another way.
  template <bool Stream>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 octaves(const In* from, u8* codes, e8m0* scales, i64 blocks, int least,
                                                   const octave_steps& steps) noexcept {
    const constants fixed = make_constants();
    const vector ulp = hidden(_mm256_set1_epi16(1)), bias = bytes(40), top = bytes(Cast.max_code);
    const __m128i below = _mm_set1_epi16(static_cast<short>(least)),
                  above = _mm_set1_epi16(static_cast<short>(steps.most - 1));
    i64 block = 0;
    for (; block + 8 <= blocks; block += 8, from += 256, codes += 256) {
      prefetch128<2>(from + octaves_ahead), prefetch128<2>(from + octaves_ahead + 128);
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
      octaves128<Stream, 0>(fixed, ulp, bias, top, less, from, codes, scales + block);
      octaves128<Stream, 4>(fixed, ulp, bias, top, less, from + 128, codes + 128, scales + block + 4);
    }
    return block;
  }

 private:
  template <class Value> FP8WIRE_AVX2_INLINE static vector load(const Value* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const vector*>(from));
  }
  template <class Value> FP8WIRE_AVX2_INLINE static __m128i load_half(const Value* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  template <bool Stream> FP8WIRE_AVX2_INLINE static void store(u8* to, vector value) noexcept {
    if constexpr (Stream) _mm256_stream_si256(reinterpret_cast<vector*>(to), value);
    else _mm256_storeu_si256(reinterpret_cast<vector*>(to), value);
  }
  /// Hints never fault, so that the end of the tensor needs no care.
  template <int Hint> FP8WIRE_AVX2_INLINE static void prefetch32(const In* at) noexcept {
    __builtin_prefetch(at, 0, Hint);
    if constexpr (sizeof(In) == 4) __builtin_prefetch(at + 16, 0, Hint);
  }
  template <int Hint> FP8WIRE_AVX2_INLINE static void prefetch128(const In* at) noexcept {
    prefetch32<Hint>(at), prefetch32<Hint>(at + 32), prefetch32<Hint>(at + 64), prefetch32<Hint>(at + 96);
  }

  /// Constants of the inner loops. Hidden from the compiler, which would build them anew in every round to save a
  /// register.
  struct constants {
    vector magnitude, split, nibble, raise, field, one, sign;
    vector power, shift, halves, half, less, lift, order;  // of lifted arithmetic
  };
  FP8WIRE_AVX2_INLINE static vector hidden(vector value) noexcept {
    asm("" : "+x"(value));
    return value;
  }
  FP8WIRE_AVX2_INLINE static vector bytes(int value) noexcept {
    return hidden(_mm256_set1_epi8(static_cast<char>(value)));
  }
  FP8WIRE_AVX2_INLINE static constants make_constants() noexcept {
    constants made;
    if constexpr (sizeof(In) == 2) made.magnitude = hidden(_mm256_set1_epi16(0x7FFF));
    else made.magnitude = hidden(_mm256_set1_epi32(0x7FFFFFFF));
    made.split =
        hidden(_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
    made.nibble = bytes(15), made.raise = bytes(0xE0), made.field = bytes(0x7F), made.one = bytes(1),
    made.sign = bytes(0x80);
    if constexpr (Cast.direct && !Cast.table) {
      made.power = hidden(_mm256_set1_epi32(static_cast<int>(0xFF800000)));
      made.shift = hidden(_mm256_set1_epi32((127 + dropped_bits) << 23));
      made.halves = hidden(_mm256_set1_epi32(1 << 16 | 1 << spare_bits));
      made.half = hidden(_mm256_set1_epi16(0x7FFF));
      made.less = hidden(_mm256_set1_epi16(static_cast<short>(lifted_zero)));
      made.lift = bytes(lift);
      made.order = hidden(_mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    return made;
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
    if constexpr (!Cast.keep_negative_zero) {
      const vector minus_zero = _mm256_set1_epi32(static_cast<int>(f32::sign_mask));
      bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(bits, minus_zero), bits);
    }
    return bits;
  }

  /// The code of each |element|, plus `excess`, in the low 16 bits. The product's exponent, but at least that of the
  /// lowest normal code, makes a power of two whose sum with the product has its last bit where the code has: the adder
  /// rounds.
  static constexpr int mantissa_bits = Cast.mantissa_bits, dropped_bits = 23 - mantissa_bits;
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

  /// The code of each element as 16-bit sign and magnitude, in `spare_bits` more bits and from another zero: the image's
  /// power of two is added to it far above its last bit, where the adder rounds, and multiplying and adding the halves
  /// of the sum puts the exponent before the mantissa. Takes images that are zero or normal.
  static constexpr int spare_bits = 7 - mantissa_bits, lift = 40;
  static constexpr int lifted_zero = ((128 - Cast.bias + 80 + dropped_bits) << 7) - (lift << spare_bits);
  FP8WIRE_AVX2_INLINE static vector lifted8(const constants& fixed, const In* from, __m256 operand) noexcept {
    const __m256 element = as_float(load8(from));
    __m256 image;
    if constexpr (Cast.divide) image = quotient(element, operand);
    else image = _mm256_mul_ps(element, operand);
    image = ieee_result(image);
    const __m256 power = as_float(_mm256_and_si256(as_bits(image), fixed.power));
    return _mm256_madd_epi16(as_bits(_mm256_fmadd_ps(power, as_float(fixed.shift), image)), fixed.halves);
  }
  FP8WIRE_AVX2_INLINE static vector lifted_magnitudes(const constants& fixed, vector halves) noexcept {
    return _mm256_srli_epi16(_mm256_subs_epu16(_mm256_and_si256(halves, fixed.half), fixed.less), spare_bits);
  }
  /// 32 codes. `least` keeps the smallest magnitude less one, zero counting as 255; magnitudes are `lift` too large, so
  /// that those which would be subnormal, and lose bits, can be told from zeros: see missed.
  FP8WIRE_AVX2_INLINE static vector lifted32(const constants& fixed, const In* from, __m256 operand,
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

  /// A block's table in registers.
  struct lookup {
    vector rounding, exponent, below;
  };
  FP8WIRE_AVX2_INLINE static vector twice(const u8* entries) noexcept {
    return _mm256_broadcastsi128_si256(load_half(entries));
  }

  /// 32 BF16 elements by the block's table. `least` keeps the smallest half exponent field less one, zero counting as
  /// 255.
  FP8WIRE_AVX2_INLINE static vector look_up32(const constants& fixed, const lookup& table, const In* from,
                                              vector& least) noexcept {
    // Lanes hold elements 0-7|16-23 and 8-15|24-31: after the unpacking of halves, bytes lie in order.
    const vector even = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(from)), load_half(from + 16), 1);
    const vector odd = _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(from + 8)), load_half(from + 24), 1);
    const vector a = _mm256_shuffle_epi8(minus_zero_flushed(even), fixed.split);
    const vector b = _mm256_shuffle_epi8(minus_zero_flushed(odd), fixed.split);
    const vector low = _mm256_unpacklo_epi64(a, b), high = _mm256_unpackhi_epi64(a, b);
    const vector rounding =
        _mm256_shuffle_epi8(table.rounding, _mm256_and_si256(_mm256_srli_epi16(low, 3), fixed.nibble));
    const vector step = _mm256_or_si256(_mm256_srli_epi16(_mm256_avg_epu8(low, rounding), 3), fixed.raise);
    const vector field = _mm256_and_si256(high, fixed.field);
    least = _mm256_min_epu8(least, _mm256_sub_epi8(field, fixed.one));
    const vector lowering = _mm256_shuffle_epi8(table.exponent, _mm256_subs_epu8(field, table.below));
    return _mm256_or_si256(_mm256_subs_epu8(step, lowering), _mm256_and_si256(high, fixed.sign));
  }
  FP8WIRE_AVX2_INLINE static vector minus_zero_flushed(vector bits) noexcept {
    if constexpr (Cast.keep_negative_zero) return bits;
    else return _mm256_andnot_si256(_mm256_cmpeq_epi16(bits, _mm256_set1_epi16(static_cast<short>(0x8000))), bits);
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
      const vector a = lifted32(fixed, from, factor, least), b = lifted32(fixed, from + 32, factor, least);
      const vector c = lifted32(fixed, from + 64, factor, least), d = lifted32(fixed, from + 96, factor, least);
      if (__builtin_expect(missed(least), 0)) return cast_cold<Stream>(block, from, place);
      put128<Stream>(place, a, b, c, d);
    }
  }
  FP8WIRE_AVX2_INLINE static __m128i maxima8(const constants& fixed, const In* from) noexcept {
    const vector both = _mm256_max_epu16(_mm256_and_si256(load(from), fixed.magnitude),
                                         _mm256_and_si256(load(from + 16), fixed.magnitude));
    return _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }
  FP8WIRE_AVX2_INLINE static __m128i pair_max(__m128i a, __m128i b) noexcept {
    return _mm_max_epu16(_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
  }
  template <bool Stream, int First>
  FP8WIRE_AVX2_INLINE static void octaves128(const constants& fixed, vector ulp, vector bias, vector top, vector less,
                                             const In* from, u8* codes, const e8m0* scales) noexcept {
    vector least = _mm256_set1_epi8(-1);
    const vector a = octaves32<First>(fixed, ulp, bias, top, less, from, least);
    const vector b = octaves32<First + 1>(fixed, ulp, bias, top, less, from + 32, least);
    const vector c = octaves32<First + 2>(fixed, ulp, bias, top, less, from + 64, least);
    const vector d = octaves32<First + 3>(fixed, ulp, bias, top, less, from + 96, least);
    if (__builtin_expect(missed(least), 0)) return octaves_cold<Stream>(from, codes, scales);
    store<Stream>(codes, a), store<Stream>(codes + 32, b), store<Stream>(codes + 64, c), store<Stream>(codes + 96, d);
  }
  template <int Block>
  FP8WIRE_AVX2_INLINE static vector octaves32(const constants& fixed, vector ulp, vector bias, vector top, vector less,
                                              const In* from, vector& least) noexcept {
    const vector even = minus_zero_flushed(load(from)), odd = minus_zero_flushed(load(from + 16));
    const vector own =
        _mm256_shuffle_epi8(less, _mm256_set1_epi16(static_cast<short>((2 * Block + 1) << 8 | 2 * Block)));
    const vector low = octaves16(fixed, ulp, even, own), high = octaves16(fixed, ulp, odd, own);
    const vector raised = _mm256_packus_epi16(low, high);
    least = _mm256_min_epu8(least, _mm256_sub_epi8(raised, fixed.one));
    const vector magnitude = _mm256_min_epu8(_mm256_subs_epu8(raised, bias), top);
    const vector signs = _mm256_and_si256(_mm256_packs_epi16(even, odd), fixed.sign);
    return _mm256_permute4x64_epi64(_mm256_or_si256(magnitude, signs), 0xD8);
  }
  FP8WIRE_AVX2_INLINE static vector octaves16(const constants& fixed, vector ulp, vector bits, vector less) noexcept {
    const vector odd = _mm256_and_si256(_mm256_srli_epi16(bits, 4), ulp);
    return _mm256_srli_epi16(_mm256_add_epi16(_mm256_subs_epu16(_mm256_and_si256(bits, fixed.magnitude), less), odd),
                             4);
  }
  template <bool Stream>
  FP8WIRE_AVX2 __attribute__((noinline, cold)) static void octaves_cold(const In* from, u8* codes,
                                                                        const e8m0* scales) noexcept {
    alignas(32) u8 some[128];
    for (int block = 0; block < 4; ++block) {
      const float operand = Cast.divide ? to_float(scales[block]) : reciprocal(scales[block]);
      cast_direct(from + 32 * block, some + 32 * block, 32, operand);
    }
    for (int i = 0; i < 128; i += 32) store<Stream>(codes + i, load(some + i));
  }
  template <bool Stream>
  FP8WIRE_AVX2 __attribute__((noinline, cold)) static void cast_cold(const block_state& block, const In* from,
                                                                     code_place place) noexcept {
    alignas(32) u8 some[128];
    cast_some<avx2>(block, from, some, 128);
    for (int i = 0; i < 128; i += 32) put<Stream>(place, i, load(some + i));
  }
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void cast_few(const block_state& block, const In* from, code_place place,
                                           i64 count) noexcept {
    if constexpr (Cast.direct) {
      if (count == 32 && block.how != cast_how::reference)
        return put<Stream>(place, 0, cast32(from, _mm256_set1_ps(block.operand)));
    }
    if constexpr (Cast.compare) {
      u8 some[32];
      cast_some<avx2>(block, from, some, count);
      replace_some(some, place, count);
    } else {
      cast_some<avx2>(block, from, place.codes, count);
    }
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
