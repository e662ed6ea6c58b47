// SPDX-License-Identifier: Apache-2.0
/// Small squares of bytes or of 4-byte words, turned over their diagonal in registers.
#ifndef FP8WIRE_DETAIL_TRANSPOSE_HPP
#define FP8WIRE_DETAIL_TRANSPOSE_HPP
#include <fp8wire/core/checksum.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

// Vector registers by the extension that g++, clang and nvcc share: four words of 4 bytes, and bytes.
using word_line __attribute__((vector_size(16))) = u32;
using byte_line __attribute__((vector_size(16))) = u8;

/// A square of 4 x 4 words of 4 bytes, one row a line.
FP8WIRE_ALWAYS_INLINE void transpose_square(word_line (&r)[4]) noexcept {
  const word_line a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                  b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
                  c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
                  d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/// Bytes of a line that is written at once, and lines of a strip: 64 rows of 16 columns become 16 lines of 64 bytes.
inline constexpr i64 line_bytes = 64, strip_lines = 16;

// Packs of indices, since g++ 12 leaves loops rolled at -O2, and arrays that a loop indexes live in memory.
template <int... Index> struct index_pack {};
using eight = index_pack<0, 1, 2, 3, 4, 5, 6, 7>;
using sixteen = index_pack<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;

// The lists of a shuffle are written out: nvcc takes no pack there.
FP8WIRE_ALWAYS_INLINE byte_line interleave_low(const byte_line& a, const byte_line& b) noexcept {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
FP8WIRE_ALWAYS_INLINE byte_line interleave_high(const byte_line& a, const byte_line& b) noexcept {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// Interleaves the bytes of line i with those of line i + 8; four times that, and bytes have changed places with lines.
template <int... Pair>
FP8WIRE_ALWAYS_INLINE void interleave_lines(const byte_line (&a)[16], byte_line (&b)[16],
                                            index_pack<Pair...>) noexcept {
  ((b[2 * Pair] = interleave_low(a[Pair], a[Pair + 8])), ...);
  ((b[2 * Pair + 1] = interleave_high(a[Pair], a[Pair + 8])), ...);
}

template <int... Row>
FP8WIRE_ALWAYS_INLINE void transpose_square(const u8* from, i64 pitch, u8* to, index_pack<Row...>) noexcept {
  byte_line a[16], b[16];
  (static_cast<void>(__builtin_memcpy(&a[Row], from + Row * pitch, 16)), ...);
  interleave_lines(a, b, eight{});
  interleave_lines(b, a, eight{});
  interleave_lines(a, b, eight{});
  interleave_lines(b, a, eight{});
  (static_cast<void>(__builtin_memcpy(to + Row * line_bytes, &a[Row], 16)), ...);
}

/// A strip: rows `pitch` apart to lines that begin at to + at[i]. Stream: past the caches; lines begin at multiples of
/// 64 then.
template <bool Stream>
FP8WIRE_NOINLINE void transpose_strip(const u8* from, i64 pitch, u8* to, const i64* at) noexcept {
  alignas(64) u8 lines[strip_lines * line_bytes];
  for (i64 part = 0; part < line_bytes; part += 16)
    transpose_square(from + part * pitch, pitch, lines + part, sixteen{});
  for (i64 i = 0; i < strip_lines; ++i) {
    if constexpr (Stream)
      copy_streamed(reinterpret_cast<std::byte*>(to + at[i]),
                    reinterpret_cast<const std::byte*>(lines + i * line_bytes));
    else __builtin_memcpy(to + at[i], lines + i * line_bytes, line_bytes);
  }
}

#if defined(FP8WIRE_AVX512)
using byte_lanes __attribute__((vector_size(64))) = u8;
using word_lanes __attribute__((vector_size(64))) = long long;

FP8WIRE_AVX512_INLINE void interleave_low(const byte_lanes& a, const byte_lanes& b, byte_lanes& to) noexcept {
  to = __builtin_shufflevector(a, b,  //
                               0, 64, 1, 65, 2, 66, 3, 67, 4, 68, 5, 69, 6, 70, 7, 71,  //
                               16, 80, 17, 81, 18, 82, 19, 83, 20, 84, 21, 85, 22, 86, 23, 87,  //
                               32, 96, 33, 97, 34, 98, 35, 99, 36, 100, 37, 101, 38, 102, 39, 103,  //
                               48, 112, 49, 113, 50, 114, 51, 115, 52, 116, 53, 117, 54, 118, 55, 119);
}
FP8WIRE_AVX512_INLINE void interleave_high(const byte_lanes& a, const byte_lanes& b, byte_lanes& to) noexcept {
  to = __builtin_shufflevector(a, b,  //
                               8, 72, 9, 73, 10, 74, 11, 75, 12, 76, 13, 77, 14, 78, 15, 79,  //
                               24, 88, 25, 89, 26, 90, 27, 91, 28, 92, 29, 93, 30, 94, 31, 95,  //
                               40, 104, 41, 105, 42, 106, 43, 107, 44, 108, 45, 109, 46, 110, 47, 111,  //
                               56, 120, 57, 121, 58, 122, 59, 123, 60, 124, 61, 125, 62, 126, 63, 127);
}

template <int... Pair>
FP8WIRE_AVX512_INLINE void interleave_lanes(const byte_lanes (&a)[16], byte_lanes (&b)[16],
                                            index_pack<Pair...>) noexcept {
  (interleave_low(a[Pair], a[Pair + 8], b[2 * Pair]), ...);
  (interleave_high(a[Pair], a[Pair + 8], b[2 * Pair + 1]), ...);
}

/// 16 bytes of rows 0, 16, 32 and 48 from `from` on, a lane each.
FP8WIRE_AVX512_INLINE void load_lanes(byte_lanes& to, const u8* from, i64 pitch) noexcept {
  word_line a, b, c, d;
  __builtin_memcpy(&a, from, 16), __builtin_memcpy(&b, from + 16 * pitch, 16);
  __builtin_memcpy(&c, from + 32 * pitch, 16), __builtin_memcpy(&d, from + 48 * pitch, 16);
  const auto low = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7),
             high = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7);
  const auto all = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __builtin_memcpy(&to, &all, sizeof(to));
}

template <bool Stream>
FP8WIRE_AVX512_INLINE void store_lanes(u8* to, const byte_lanes& from) noexcept {
  if constexpr (Stream) {
    word_lanes words;  // another type of the same bits, and g++ holds them apart
    __builtin_memcpy(&words, &from, sizeof(words));
#if defined(__clang__)
    __builtin_nontemporal_store(words, reinterpret_cast<word_lanes*>(to));
#else
    __builtin_ia32_movntdq512(reinterpret_cast<word_lanes*>(to), words);
#endif
  } else {
    __builtin_memcpy(to, &from, sizeof(from));
  }
}

template <bool Stream, int... Row>
FP8WIRE_AVX512_INLINE void transpose_lanes(const u8* from, i64 pitch, u8* to, const i64* at,
                                           index_pack<Row...>) noexcept {
  byte_lanes a[16], b[16];
  (load_lanes(a[Row], from + Row * pitch, pitch), ...);
  interleave_lanes(a, b, eight{});
  interleave_lanes(b, a, eight{});
  interleave_lanes(a, b, eight{});
  interleave_lanes(b, a, eight{});
  (store_lanes<Stream>(to + at[Row], a[Row]), ...);
}

/// As transpose_strip.
template <bool Stream>
FP8WIRE_AVX512 FP8WIRE_NOINLINE inline void transpose_strip_avx512(const u8* from, i64 pitch, u8* to,
                                                                   const i64* at) noexcept {
  transpose_lanes<Stream>(from, pitch, to, at, sixteen{});
}
#endif

using strip_function = void (*)(const u8* from, i64 pitch, u8* to, const i64* at) noexcept;

/// The fastest body that runs here; both give the same bytes.
template <bool Stream> inline strip_function best_strip() noexcept {
#if defined(FP8WIRE_AVX512)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi")) return transpose_strip_avx512<Stream>;
#endif
  return transpose_strip<Stream>;
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
