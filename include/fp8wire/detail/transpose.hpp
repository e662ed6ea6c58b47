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

#if defined(__SSE2__)
using word_line = __m128i;

/// A square of 4 x 4 words of 4 bytes, one row a line.
FP8WIRE_ALWAYS_INLINE void transpose_square(word_line (&r)[4]) noexcept {
  const word_line low_a = _mm_unpacklo_epi32(r[0], r[1]), high_a = _mm_unpackhi_epi32(r[0], r[1]);
  const word_line low_b = _mm_unpacklo_epi32(r[2], r[3]), high_b = _mm_unpackhi_epi32(r[2], r[3]);
  r[0] = _mm_unpacklo_epi64(low_a, low_b), r[1] = _mm_unpackhi_epi64(low_a, low_b);
  r[2] = _mm_unpacklo_epi64(high_a, high_b), r[3] = _mm_unpackhi_epi64(high_a, high_b);
}
#else
struct word_line {
  u64 low, high;
};

/// A square of 4 x 4 words of 4 bytes, one row a line.
FP8WIRE_ALWAYS_INLINE constexpr void transpose_square(word_line (&r)[4]) noexcept {
  constexpr u64 words = 0x00000000FFFFFFFFu;
  swap_parts<4, words>(r[0].low, r[1].low), swap_parts<4, words>(r[0].high, r[1].high);
  swap_parts<4, words>(r[2].low, r[3].low), swap_parts<4, words>(r[2].high, r[3].high);
  const word_line second = r[1];
  r[1] = {second.low, r[3].low};
  r[3] = {second.high, r[3].high};
  const u64 third = r[0].high;
  r[0] = {r[0].low, r[2].low};
  r[2] = {third, r[2].high};
}
#endif

}  // namespace detail
FP8WIRE_ABI_END
#endif
