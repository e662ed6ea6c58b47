// SPDX-License-Identifier: Apache-2.0
/// Small squares of bytes or of 4-byte words, turned over their diagonal in registers.
#ifndef FP8WIRE_DETAIL_TRANSPOSE_HPP
#define FP8WIRE_DETAIL_TRANSPOSE_HPP
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

}  // namespace detail
FP8WIRE_ABI_END
#endif
