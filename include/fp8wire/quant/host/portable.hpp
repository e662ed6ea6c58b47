// SPDX-License-Identifier: Apache-2.0
/// Rows of weights to maxima and codes in 16-byte GNU vectors, which every x86-64 (SSE2) and aarch64 (NEON) has.
///
/// The arithmetic is that of avx2_casts::code8 without its tables: four lanes pay less for table look-ups than eight.
#ifndef FP8WIRE_QUANT_HOST_PORTABLE_HPP
#define FP8WIRE_QUANT_HOST_PORTABLE_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

FP8WIRE_ABI_BEGIN
namespace detail {
namespace FP8WIRE_CG {

using i32x4 = int __attribute__((vector_size(16)));
using f32x4 = float __attribute__((vector_size(16)));
using u8x16 = u8 __attribute__((vector_size(16)));
/// The same bits. Neither a cast nor __builtin_bit_cast: nvcc 13.0 refuses the one of vector expressions and crashes on
/// the other.
template <class To, class From>
FP8WIRE_ALWAYS_INLINE To as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}
struct two_i32x4 {
  i32x4 low, high;
};

// Lane widths are where the instruction sets differ.
#if defined(__x86_64__)
/// Eight 16-bit values, zero-extended.
FP8WIRE_ALWAYS_INLINE two_i32x4 widen(const u16* from) noexcept {
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), zero = _mm_setzero_si128();
  return {as<i32x4>(_mm_unpacklo_epi16(all, zero)), as<i32x4>(_mm_unpackhi_epi16(all, zero))};
}
/// Sixteen values as bytes, those above 255 as 255. Expects: 0 ... 32767.
FP8WIRE_ALWAYS_INLINE u8x16 narrow(i32x4 a, i32x4 b, i32x4 c, i32x4 d) noexcept {
  const __m128i low = _mm_packs_epi32(as<__m128i>(a), as<__m128i>(b));
  const __m128i high = _mm_packs_epi32(as<__m128i>(c), as<__m128i>(d));
  return as<u8x16>(_mm_packus_epi16(low, high));
}
FP8WIRE_ALWAYS_INLINE f32x4 ieee_result(f32x4 value) noexcept {
  asm("" : "+x"(value));
  return value;
}
/// As avx2_words::quotient.
FP8WIRE_ALWAYS_INLINE f32x4 quotient(f32x4 dividend, f32x4 divisor) noexcept {
#if defined(__AVX__)
  asm("vdivps %1, %0, %0" : "+x"(dividend) : "x"(divisor));
#else
  asm("divps %1, %0" : "+x"(dividend) : "x"(divisor));
#endif
  return dividend;
}
#elif defined(__aarch64__)
FP8WIRE_ALWAYS_INLINE two_i32x4 widen(const u16* from) noexcept {
  const uint16x8_t all = vld1q_u16(from);
  return {as<i32x4>(vmovl_u16(vget_low_u16(all))), as<i32x4>(vmovl_u16(vget_high_u16(all)))};
}
FP8WIRE_ALWAYS_INLINE u8x16 narrow(i32x4 a, i32x4 b, i32x4 c, i32x4 d) noexcept {
  const uint16x8_t low = vcombine_u16(vqmovn_u32(as<uint32x4_t>(a)), vqmovn_u32(as<uint32x4_t>(b)));
  const uint16x8_t high = vcombine_u16(vqmovn_u32(as<uint32x4_t>(c)), vqmovn_u32(as<uint32x4_t>(d)));
  return as<u8x16>(vcombine_u8(vqmovn_u16(low), vqmovn_u16(high)));
}
FP8WIRE_ALWAYS_INLINE f32x4 ieee_result(f32x4 value) noexcept {
  asm("" : "+w"(value));
  return value;
}
FP8WIRE_ALWAYS_INLINE f32x4 quotient(f32x4 dividend, f32x4 divisor) noexcept {
  asm("fdiv %0.4s, %0.4s, %1.4s" : "+w"(dividend) : "w"(divisor));
  return dividend;
}
#else
FP8WIRE_ALWAYS_INLINE two_i32x4 widen(const u16* from) noexcept {
  return {i32x4{from[0], from[1], from[2], from[3]}, i32x4{from[4], from[5], from[6], from[7]}};
}
FP8WIRE_ALWAYS_INLINE u8x16 narrow(i32x4 a, i32x4 b, i32x4 c, i32x4 d) noexcept {
  u8x16 bytes = {};
  for (int i = 0; i < 4; ++i) {
    const int lanes[] = {a[i], b[i], c[i], d[i]};
    for (int part = 0; part < 4; ++part) bytes[4 * part + i] = static_cast<u8>(lanes[part] > 255 ? 255 : lanes[part]);
  }
  return bytes;
}
FP8WIRE_ALWAYS_INLINE f32x4 ieee_result(f32x4 value) noexcept { return value; }
FP8WIRE_ALWAYS_INLINE f32x4 quotient(f32x4 dividend, f32x4 divisor) noexcept { return dividend / divisor; }
#endif

template <row_cast Cast, class In> struct portable {
  static constexpr row_kernel<In> kernel() noexcept {
    return {.see = row<true, false>,
            .cast = row<false, true>,
            .both = row<true, true>,
            .cast_direct = cast_direct,
            .take_largest = take_largest,
            .fence = fence,
            .alignment = 0,
            .amd_fetches = false,
            .octaves = nullptr};
  }

  /// As avx2::row.
  template <bool See, bool Codes>
  FP8WIRE_NOINLINE static void row(const In* seen, const In* cast, code_place place, i64 cols, i64 block_cols,
                                   block_state* block, look_ahead) noexcept {
    for (i64 col = 0; col < cols; ++block) {
      const i64 end = cols - col < block_cols ? cols : col + block_cols;
      if constexpr (See) see(*block, seen + col, end - col);
      if constexpr (Codes && Cast.compare) {
        constexpr i64 most = 512;
        u8 fresh[most];
        for (i64 at = col; at < end; at += most) {
          const i64 count = end - at < most ? end - at : most;
          cast_some<portable>(*block, cast + at, fresh, count);
          replace_some(fresh, place.at<Cast>(at), count);
        }
      } else if constexpr (Codes) {
        cast_some<portable>(*block, cast + col, place.codes + col, end - col);
      }
      col = end;
    }
  }

  static u32 take_largest(block_state& block) noexcept {
    i32x4 most;
    __builtin_memcpy(&most, block.maxima, 16);
    __builtin_memset(block.maxima, 0, 16);
    u32 largest = 0;
    for (int i = 0; i < 4; ++i) {
      const u32 lane = static_cast<u32>(most[i]);
      largest = lane > largest ? lane : largest;
    }
    return largest;
  }

  static void fence() noexcept {}

  /// As avx2_casts::cast_direct.
  FP8WIRE_NOINLINE static void cast_direct(const In* from, u8* codes, i64 count, float operand) noexcept {
    i64 i = 0;
    for (; i + 16 <= count; i += 16) cast16(from + i, codes + i, operand);
    if (i < count) {
      In padded[16] = {};
      u8 some[16];
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      cast16(padded, some, operand);
      __builtin_memcpy(codes + i, some, static_cast<std::size_t>(count - i));
    }
  }

 private:
  static constexpr i32x4 all(u32 bits) noexcept {
    const int lane = static_cast<int>(bits);
    return i32x4{lane, lane, lane, lane};
  }
  static constexpr f32x4 all(float value) noexcept { return f32x4{value, value, value, value}; }
  FP8WIRE_ALWAYS_INLINE static i32x4 larger(i32x4 a, i32x4 b) noexcept {
    const i32x4 above = a > b;
    return (a & above) | (b & ~above);
  }

  /// Eight elements' bits: those of FP32, or zero-extended halves.
  FP8WIRE_ALWAYS_INLINE static two_i32x4 load8(const In* from) noexcept {
    if constexpr (sizeof(In) == 2) {
      return widen(reinterpret_cast<const u16*>(from));
    } else {
      two_i32x4 both;
      __builtin_memcpy(&both.low, from, 16);
      __builtin_memcpy(&both.high, from + 4, 16);
      return both;
    }
  }

  static void see(block_state& block, const In* from, i64 count) noexcept {
    const i32x4 magnitude = all(sizeof(In) == 2 ? 0x7FFFu : 0x7FFFFFFFu);
    i32x4 most;
    __builtin_memcpy(&most, block.maxima, 16);
    i64 i = 0;
    for (; i + 8 <= count; i += 8) {
      const two_i32x4 bits = load8(from + i);
      most = larger(most, larger(bits.low & magnitude, bits.high & magnitude));
    }
    if (i < count) {
      In padded[8] = {};
      __builtin_memcpy(padded, from + i, sizeof(In) * static_cast<std::size_t>(count - i));
      const two_i32x4 bits = load8(padded);
      most = larger(most, larger(bits.low & magnitude, bits.high & magnitude));
    }
    __builtin_memcpy(block.maxima, &most, 16);
  }

  /// The FP32 bits with which elements enter the recipe.
  FP8WIRE_ALWAYS_INLINE static i32x4 loaded(i32x4 bits) noexcept {
    if constexpr (std::same_as<In, bf16>) {
      bits = bits << 16;
    } else if constexpr (std::same_as<In, fp16>) {
      const i32x4 sign = (bits & all(0x8000u)) << 16, magnitude = (bits & all(0x7FFFu)) << 13;
      const i32x4 normal = magnitude + all(112u << 23);
      const f32x4 subnormal = as<f32x4>(normal + all(1u << 23)) - all(0x1p-14f);
      const i32x4 is_subnormal = magnitude < all(1u << 23);
      bits = (normal & ~is_subnormal) | (as<i32x4>(subnormal) & is_subnormal) | sign;
    } else if constexpr (Cast.f32_through_bf16) {
      // Finite magnitudes keep their sign bit: the carry stops below it.
      bits = (bits + all(0x7FFFu) + ((bits >> 16) & all(1u))) & all(0xFFFF0000u);
    }
    if constexpr (!Cast.keep_negative_zero) bits = bits & ~(bits == all(f32::sign_mask));
    return bits;
  }

  static constexpr int mantissa_bits = Cast.mantissa_bits, dropped_bits = 23 - mantissa_bits;
  static constexpr u32 excess = static_cast<u32>(128 - Cast.bias) << mantissa_bits;
  FP8WIRE_ALWAYS_INLINE static i32x4 code4(i32x4 bits, f32x4 operand) noexcept {
    const f32x4 magnitude = as<f32x4>(bits & all(f32::magnitude_mask));
    f32x4 image;
    if constexpr (Cast.divide) image = quotient(magnitude, operand);
    else image = magnitude * operand;
    image = ieee_result(image);
    const i32x4 lowest = all(static_cast<u32>(128 - Cast.bias) << 23);
    const i32x4 power = larger(as<i32x4>(image) & all(f32::exponent_mask), lowest);
    // Raising the exponent multiplies exactly, so that it does not matter whether the compiler fuses the sum.
    const f32x4 sum = image + as<f32x4>(power + all(static_cast<u32>(dropped_bits) << 23));
    return ((as<i32x4>(sum) + (power >> dropped_bits)) & all(0xFFFFu)) - all(excess);
  }

  FP8WIRE_ALWAYS_INLINE static void cast16(const In* from, u8* codes, float operand) noexcept {
    const two_i32x4 first = load8(from), second = load8(from + 8);
    const i32x4 a = loaded(first.low), b = loaded(first.high), c = loaded(second.low), d = loaded(second.high);
    const f32x4 factor = all(operand);
    u8x16 code = narrow(code4(a, factor), code4(b, factor), code4(c, factor), code4(d, factor));
    const u8x16 most = u8x16{} + Cast.max_code;
    const u8x16 above = as<u8x16>(code > most);
    code = (code & ~above) | (most & above);
    const i32x4 sign = all(0x80u);
    u8x16 signs = narrow((a >> 24) & sign, (b >> 24) & sign, (c >> 24) & sign, (d >> 24) & sign);
    if constexpr (Cast.fnuz) signs = signs & as<u8x16>(code != u8x16{});
    code = code | signs;
    __builtin_memcpy(codes, &code, 16);
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
