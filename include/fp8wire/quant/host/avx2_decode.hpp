// SPDX-License-Identifier: Apache-2.0
/// Rows of E4M3 codes to weights with AVX2.
#ifndef FP8WIRE_QUANT_HOST_AVX2_DECODE_HPP
#define FP8WIRE_QUANT_HOST_AVX2_DECODE_HPP
#include <fp8wire/quant/host/decode.hpp>

#if defined(FP8WIRE_AVX2)
#include <immintrin.h>

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

template <bool Table, class Out> struct avx2_decode {
  using vector = __m256i;
  static constexpr decode_kernel<Out> kernel() noexcept {
    decode_kernel<Out> made{{row<false>, row<true>}, fence, 32, {nullptr, nullptr}};
    if constexpr (!Table && std::same_as<Out, bf16>) made.octaves[0] = octaves<false>, made.octaves[1] = octaves<true>;
    return made;
  }

  /// Weights of one row of the blocks.
  template <bool Stream>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void row(const u8* codes, Out* out, i64 cols, i64 block_cols,
                                                const decode_state<Out>* block) noexcept {
    const constants fixed = make_constants();
    for (i64 col = 0; col < cols; ++block) {
      const i64 end = cols - col < block_cols ? cols : col + block_cols;
      for (; col + 128 <= end; col += 128) {
        __builtin_prefetch(codes + col + 4096, 0, 2), __builtin_prefetch(codes + col + 4160, 0, 2);
        if (Table && __builtin_expect(block->tabled, 1)) look_up128<Stream>(fixed, *block, codes + col, out + col);
        else multiply<Stream>(*block, codes + col, out + col, 128);
      }
      for (; col + 32 <= end; col += 32) multiply<Stream>(*block, codes + col, out + col, 32);
      if (col < end) block->definition(codes + col, out + col, end - col, block->scale);
      col = end;
    }
  }
  static void fence() noexcept { asm volatile("sfence" : : : "memory"); }

  /// Blocks of 32 codes under E8M0 scales to BF16: a power of two keeps the mantissa, so that a weight is the code's
  /// bits beside the sum of both exponents. Returns how many blocks are done: all, or those before one that holds NaN
  /// or subnormal codes, or whose scale takes weights out of the normal numbers.
  template <bool Stream>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static i64 octaves(const u8* codes, const e8m0* scales, Out* out, i64 blocks) noexcept {
    const vector magnitude = bytes(0x7F), eight = bytes(8), normal = bytes(118), zero = _mm256_setzero_si256();
    const vector high = hidden(_mm256_set1_epi16(0x7F00)), sign = hidden(_mm256_set1_epi16(static_cast<short>(0x8000)));
    i64 block = 0;
    for (; block < blocks; ++block, codes += 32, out += 32) {
      __builtin_prefetch(codes + 4096, 0, 2);
      const int field = scales[block].bits - 7;
      const vector code = _mm256_permute4x64_epi64(load(codes), 0xD8), bare = _mm256_and_si256(code, magnitude);
      const vector is_zero = _mm256_cmpeq_epi8(bare, zero);
      const vector others = _mm256_sub_epi8(_mm256_or_si256(bare, _mm256_and_si256(is_zero, eight)), eight);
      const vector odd = _mm256_subs_epu8(others, normal);
      if (__builtin_expect(static_cast<unsigned>(field) > 239 || !_mm256_testz_si256(odd, odd), 0)) break;
      const vector exponent = _mm256_set1_epi16(static_cast<short>(field << 7));
      const vector a = _mm256_unpacklo_epi8(zero, code), b = _mm256_unpackhi_epi8(zero, code);
      const vector low = _mm256_add_epi16(_mm256_srli_epi16(_mm256_and_si256(a, high), 4), exponent);
      const vector top = _mm256_add_epi16(_mm256_srli_epi16(_mm256_and_si256(b, high), 4), exponent);
      store<Stream>(out, _mm256_or_si256(_mm256_andnot_si256(_mm256_unpacklo_epi8(is_zero, is_zero), low),
                                         _mm256_and_si256(a, sign)));
      store<Stream>(out + 16, _mm256_or_si256(_mm256_andnot_si256(_mm256_unpackhi_epi8(is_zero, is_zero), top),
                                              _mm256_and_si256(b, sign)));
    }
    return block;
  }

 private:
  struct constants {
    vector magnitude, mantissa, eight, field, sign;
  };
  FP8WIRE_AVX2_INLINE static vector hidden(vector value) noexcept {
    asm("" : "+x"(value));
    return value;
  }
  FP8WIRE_AVX2_INLINE static vector bytes(int value) noexcept {
    return hidden(_mm256_set1_epi8(static_cast<char>(value)));
  }
  FP8WIRE_AVX2_INLINE static constants make_constants() noexcept {
    return {bytes(0x7F), bytes(7), bytes(8), bytes(0x78), bytes(0x80)};
  }
  FP8WIRE_AVX2_INLINE static vector load(const u8* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const vector*>(from));
  }
  FP8WIRE_AVX2_INLINE static vector twice(const u8* entries) noexcept {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(entries)));
  }
  template <bool Stream> FP8WIRE_AVX2_INLINE static void store(Out* to, vector value) noexcept {
    if constexpr (Stream) _mm256_stream_si256(reinterpret_cast<vector*>(to), value);
    else _mm256_storeu_si256(reinterpret_cast<vector*>(to), value);
  }

  /// 128 weights: a mantissa's or a subnormal code's entry, plus the exponent.
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void look_up128(const constants& fixed, const decode_state<Out>& block, const u8* codes,
                                             Out* out) noexcept {
    const vector a = load(codes), b = load(codes + 32), c = load(codes + 64), d = load(codes + 96);
    // A NaN code is the largest magnitude. All or nothing: a streamed line must not be touched again.
    const vector most =
        _mm256_max_epu8(_mm256_max_epu8(_mm256_and_si256(a, fixed.magnitude), _mm256_and_si256(b, fixed.magnitude)),
                        _mm256_max_epu8(_mm256_and_si256(c, fixed.magnitude), _mm256_and_si256(d, fixed.magnitude)));
    if (__builtin_expect(_mm256_movemask_epi8(_mm256_cmpeq_epi8(most, fixed.magnitude)) != 0, 0))
      return multiply<Stream>(block, codes, out, 128);
    if constexpr (std::same_as<Out, float>) {
      const vector normal = load(block.table), subnormal = load(block.table + 32);
      for (int i = 0; i < 128; i += 8) look_up8<Stream>(normal, subnormal, codes + i, out + i);
    } else {
      const vector low = twice(block.table), high = twice(block.table + 16);
      look_up32<Stream>(fixed, low, high, a, out), look_up32<Stream>(fixed, low, high, b, out + 32);
      look_up32<Stream>(fixed, low, high, c, out + 64), look_up32<Stream>(fixed, low, high, d, out + 96);
    }
  }
  /// Eight FP32 weights. A permutation looks at the three bits that are a mantissa.
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void look_up8(vector normal, vector subnormal, const u8* codes, Out* out) noexcept {
    const vector code = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const vector placed = _mm256_slli_epi32(code, 20);
    const vector exponent = _mm256_and_si256(placed, _mm256_set1_epi32(0x07800000));
    const vector sign = _mm256_and_si256(placed, _mm256_set1_epi32(static_cast<int>(f32::sign_mask)));
    const vector is_subnormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    const vector magnitude = _mm256_blendv_epi8(_mm256_add_epi32(exponent, _mm256_permutevar8x32_epi32(normal, code)),
                                                _mm256_permutevar8x32_epi32(subnormal, code), is_subnormal);
    store<Stream>(out, _mm256_or_si256(magnitude, sign));
  }
  template <bool Stream>
  FP8WIRE_AVX2_INLINE static void look_up32(const constants& fixed, vector low, vector high, vector codes,
                                            Out* out) noexcept {
    const vector code = _mm256_permute4x64_epi64(codes, 0xD8);  // so that unpacking in halves leaves the order
    const vector field = _mm256_and_si256(code, fixed.field);
    const vector subnormal = _mm256_and_si256(_mm256_cmpeq_epi8(field, _mm256_setzero_si256()), fixed.eight);
    const vector index = _mm256_or_si256(_mm256_and_si256(code, fixed.mantissa), subnormal);
    const vector lows = _mm256_shuffle_epi8(low, index);
    const vector highs = _mm256_or_si256(_mm256_shuffle_epi8(high, index), _mm256_and_si256(code, fixed.sign));
    const vector zero = _mm256_setzero_si256();
    store<Stream>(out, _mm256_add_epi16(_mm256_unpacklo_epi8(lows, highs),
                                        _mm256_slli_epi16(_mm256_unpacklo_epi8(field, zero), 4)));
    store<Stream>(out + 16, _mm256_add_epi16(_mm256_unpackhi_epi8(lows, highs),
                                             _mm256_slli_epi16(_mm256_unpackhi_epi8(field, zero), 4)));
  }

  /// `count` weights, a multiple of 32, as FP32 products.
  template <bool Stream>
  FP8WIRE_AVX2 FP8WIRE_NOINLINE static void multiply(const decode_state<Out>& block, const u8* codes, Out* out,
                                                     i64 count) noexcept {
    if (__builtin_expect(!block.finite, 0)) return not_finite<Stream>(block, codes, out, count);
    const __m256 scale = _mm256_set1_ps(block.scale);
    for (i64 i = 0; i < count; i += 16) {
      const vector a = product8(codes + i, scale), b = product8(codes + i + 8, scale);
      if constexpr (std::same_as<Out, float>) {
        store<Stream>(out + i, a), store<Stream>(out + i + 8, b);
      } else {
        const vector both = _mm256_packus_epi32(rounded(a), rounded(b));
        store<Stream>(out + i, _mm256_permute4x64_epi64(both, 0xD8));
      }
    }
  }
  FP8WIRE_AVX2_INLINE static vector product8(const u8* codes, __m256 scale) noexcept {
    const vector code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const vector magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
    const vector normal = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
    const vector subnormal = _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f)));
    const vector value = _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude));
    const vector sign = _mm256_slli_epi32(_mm256_srli_epi32(code, 7), 31);
    __m256 product = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(value, sign)), scale);
    asm("" : "+x"(product));
    const vector is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
    return _mm256_blendv_epi8(_mm256_castps_si256(product), _mm256_set1_epi32(static_cast<int>(f32::nan)), is_nan);
  }
  /// FP32 bits to BF16 in the low halves, to nearest even.
  FP8WIRE_AVX2_INLINE static vector rounded(vector bits) noexcept {
    const vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  }
  template <bool Stream>
  FP8WIRE_AVX2 __attribute__((noinline, cold)) static void not_finite(const decode_state<Out>& block, const u8* codes,
                                                                      Out* out, i64 count) noexcept {
    alignas(32) Out some[128];
    block.definition(codes, some, count, block.scale);
    constexpr i64 lanes = 32 / static_cast<i64>(sizeof(Out));
    for (i64 i = 0; i < count; i += lanes)
      store<Stream>(out + i, _mm256_load_si256(reinterpret_cast<const vector*>(some + i)));
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
#endif
