// SPDX-License-Identifier: Apache-2.0
/// Small squares of bytes or of 4-byte words, turned over their diagonal in registers.
#ifndef FP8WIRE_DETAIL_TRANSPOSE_HPP
#define FP8WIRE_DETAIL_TRANSPOSE_HPP
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Swaps the upper parts of `a` with the lower parts of `b`, Bytes at a time; `LowParts` selects the lower ones.
template <int Bytes, u64 LowParts> FP8WIRE_ALWAYS_INLINE constexpr void swap_parts(u64& a, u64& b) noexcept {
  const u64 changed = ((a >> (8 * Bytes)) ^ b) & LowParts;
  a ^= changed << (8 * Bytes);
  b ^= changed;
}

/// A square of 8 x 8 bytes, one row an integer: byte j of row i becomes byte i of row j.
/// Written out, since g++ 12 leaves the loops rolled at -O2, which is ten times slower.
FP8WIRE_ALWAYS_INLINE constexpr void transpose_square(u64 (&r)[8]) noexcept {
  constexpr u64 words = 0x00000000FFFFFFFFu, halves = 0x0000FFFF0000FFFFu, bytes = 0x00FF00FF00FF00FFu;
  swap_parts<4, words>(r[0], r[4]), swap_parts<4, words>(r[1], r[5]);
  swap_parts<4, words>(r[2], r[6]), swap_parts<4, words>(r[3], r[7]);
  swap_parts<2, halves>(r[0], r[2]), swap_parts<2, halves>(r[1], r[3]);
  swap_parts<2, halves>(r[4], r[6]), swap_parts<2, halves>(r[5], r[7]);
  swap_parts<1, bytes>(r[0], r[1]), swap_parts<1, bytes>(r[2], r[3]);
  swap_parts<1, bytes>(r[4], r[5]), swap_parts<1, bytes>(r[6], r[7]);
}

/// Two 64-bit lanes of one vector register, by the extension that g++, clang and nvcc share.
using word_line __attribute__((vector_size(16))) = u64;

/// A square of 4 x 4 words of 4 bytes, one row a line.
FP8WIRE_ALWAYS_INLINE void transpose_square(word_line (&r)[4]) noexcept {
  constexpr word_line words = {0x00000000FFFFFFFFu, 0x00000000FFFFFFFFu};
  for (int i = 0; i < 4; i += 2) {
    const word_line changed = ((r[i] >> 32) ^ r[i + 1]) & words;
    r[i] ^= changed << 32;
    r[i + 1] ^= changed;
  }
  const word_line first = r[0], second = r[1];
  r[0] = word_line{first[0], r[2][0]};
  r[1] = word_line{second[0], r[3][0]};
  r[2] = word_line{first[1], r[2][1]};
  r[3] = word_line{second[1], r[3][1]};
}

/// Bytes of one line of a tile; tiles have as many lines.
inline constexpr i64 tile_extent = 64;

#if defined(__SSE2__)
/// Interleaves the bytes of line i with those of line i + 8; four times that, and bytes have changed places with lines.
FP8WIRE_ALWAYS_INLINE void interleave_lines(const __m128i (&a)[16], __m128i (&b)[16]) noexcept {
  b[0] = _mm_unpacklo_epi8(a[0], a[8]), b[1] = _mm_unpackhi_epi8(a[0], a[8]);
  b[2] = _mm_unpacklo_epi8(a[1], a[9]), b[3] = _mm_unpackhi_epi8(a[1], a[9]);
  b[4] = _mm_unpacklo_epi8(a[2], a[10]), b[5] = _mm_unpackhi_epi8(a[2], a[10]);
  b[6] = _mm_unpacklo_epi8(a[3], a[11]), b[7] = _mm_unpackhi_epi8(a[3], a[11]);
  b[8] = _mm_unpacklo_epi8(a[4], a[12]), b[9] = _mm_unpackhi_epi8(a[4], a[12]);
  b[10] = _mm_unpacklo_epi8(a[5], a[13]), b[11] = _mm_unpackhi_epi8(a[5], a[13]);
  b[12] = _mm_unpacklo_epi8(a[6], a[14]), b[13] = _mm_unpackhi_epi8(a[6], a[14]);
  b[14] = _mm_unpacklo_epi8(a[7], a[15]), b[15] = _mm_unpackhi_epi8(a[7], a[15]);
}

/// 16 bytes of each of 16 lines, which begin at from + at[i], into a tile, over the diagonal.
inline void transpose_into_tile(const u8* from, const i64* at, u8* to) noexcept {
  __m128i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at[i]));
  interleave_lines(a, b);
  interleave_lines(b, a);
  interleave_lines(a, b);
  interleave_lines(b, a);
  for (int i = 0; i < 16; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(to + i * tile_extent), a[i]);
}
#else
/// 16 bytes of each of 16 lines, which begin at from + at[i], into a tile, over the diagonal.
inline void transpose_into_tile(const u8* from, const i64* at, u8* to) noexcept {
  for (i64 line = 0; line < 16; line += 8)
    for (i64 col = 0; col < 16; col += 8) {
      u64 square[8];
      for (i64 i = 0; i < 8; ++i) __builtin_memcpy(&square[i], from + at[line + i] + col, 8);
      transpose_square(square);
      for (i64 i = 0; i < 8; ++i) __builtin_memcpy(to + (col + i) * tile_extent + line, &square[i], 8);
    }
}
#endif

}  // namespace detail
FP8WIRE_ABI_END
#endif
