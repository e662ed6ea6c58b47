// SPDX-License-Identifier: Apache-2.0
/// The wire's 64-bit checksum: eight independent lanes, pieces that can be summed in any order, fused into a copy.
///
/// It guards against accidents (lost, shifted, stale or flipped bytes), not against an adversary. Bytes are cut into
/// pieces of 64 KiB; a piece runs eight lanes over its 64-byte stripes; a piece's digest depends on its position. The
/// checksum is the wrapping sum of the digests, so that threads, GPU blocks and out-of-order copies can share the work.
#ifndef FP8WIRE_CORE_CHECKSUM_HPP
#define FP8WIRE_CORE_CHECKSUM_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// Bytes of one piece; every piece but the last is full.
inline constexpr std::size_t checksum_piece_bytes = 65536;

namespace detail {

inline constexpr u64 checksum_prime = 0x9E3779B185EBCA87u;  // odd, so that every step is a bijection

FP8WIRE_HD constexpr u64 rotate_left(u64 value, int by) noexcept { return value << by | value >> (64 - by); }

// The rotation carries a flipped top bit into the next product; without it two such flips in one lane would cancel.
FP8WIRE_HD constexpr u64 checksum_step(u64 lane, u64 word) noexcept {
  return rotate_left((lane ^ word) * checksum_prime, 29);
}

FP8WIRE_HD constexpr u64 checksum_mix(u64 value) noexcept {
  value = (value ^ value >> 33) * 0xFF51AFD7ED558CCDu;
  value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53u;
  return value ^ value >> 33;
}

inline u64 load_word(const std::byte* at) noexcept {
  u64 word;
  __builtin_memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/// The eight lanes of a piece. Members and not an array: g++ -O2 keeps an array that a loop walks in memory.
struct checksum_lanes {
  u64 a, b, c, d, e, f, g, h;
  FP8WIRE_HD explicit checksum_lanes(u64 index) noexcept
      : a(checksum_mix(index * 8 + 1)),
        b(checksum_mix(index * 8 + 2)),
        c(checksum_mix(index * 8 + 3)),
        d(checksum_mix(index * 8 + 4)),
        e(checksum_mix(index * 8 + 5)),
        f(checksum_mix(index * 8 + 6)),
        g(checksum_mix(index * 8 + 7)),
        h(checksum_mix(index * 8 + 8)) {}
  void stripe(const std::byte* at) noexcept {
    a = checksum_step(a, load_word(at));
    b = checksum_step(b, load_word(at + 8));
    c = checksum_step(c, load_word(at + 16));
    d = checksum_step(d, load_word(at + 24));
    e = checksum_step(e, load_word(at + 32));
    f = checksum_step(f, load_word(at + 40));
    g = checksum_step(g, load_word(at + 48));
    h = checksum_step(h, load_word(at + 56));
  }
  FP8WIRE_HD u64 digest(u64 bytes) const noexcept {
    u64 made = checksum_mix(bytes ^ a);
    made = checksum_mix(made ^ b) + 1;
    made = checksum_mix(made ^ c) + 2;
    made = checksum_mix(made ^ d) + 3;
    made = checksum_mix(made ^ e) + 4;
    made = checksum_mix(made ^ f) + 5;
    made = checksum_mix(made ^ g) + 6;
    return checksum_mix(made ^ h) + 7;
  }
};

#if defined(__x86_64__)
using copied_words = long long __attribute__((vector_size(16)));
inline copied_words load_words(const std::byte* at) noexcept {
  copied_words words;
  __builtin_memcpy(&words, at, 16);
  return words;
}
inline void store_streamed(std::byte* to, copied_words words) noexcept {
#if defined(__clang__)
  __builtin_nontemporal_store(words, reinterpret_cast<copied_words*>(to));
#else
  __builtin_ia32_movntdq(reinterpret_cast<copied_words*>(to), words);
#endif
}
/// Copies 64 bytes to a multiple of 16 past the caches: a line that is only written need not be read first. Four
/// values and not an array, as in checksum_lanes.
inline void copy_streamed(std::byte* to, const std::byte* from) noexcept {
  const copied_words a = load_words(from), b = load_words(from + 16), c = load_words(from + 32),
                     d = load_words(from + 48);
  store_streamed(to, a), store_streamed(to + 16, b), store_streamed(to + 32, c), store_streamed(to + 48, d);
}
inline void end_streaming() noexcept { __builtin_ia32_sfence(); }
#else
inline void copy_streamed(std::byte* to, const std::byte* from) noexcept { __builtin_memcpy(to, from, 64); }
inline void end_streaming() noexcept {}
#endif

/// How a piece reaches its copy. Streaming pays where the bytes will not be read again soon; it costs where they will.
enum class copying : u8 { none, plain, streamed };

/// Digest of piece number `index`, copied to `to` on the way. Streamed: `to` is a multiple of 16, and end_streaming()
/// comes after the last piece. A function of its own: where the loop shares its registers, the lanes go to memory.
template <copying How>
FP8WIRE_NOINLINE u64 checksum_piece(const std::byte* from, std::byte* to, std::size_t bytes, u64 index) noexcept {
  checksum_lanes lanes(index);
  const std::byte* const end = from + bytes / 64 * 64;
  for (; from != end; from += 64) {
    // The hardware looks ahead within a page only; this is the next one. A prefetch past the end does nothing.
    __builtin_prefetch(from + 4096);
    lanes.stripe(from);
    if constexpr (How == copying::plain) __builtin_memcpy(to, from, 64);
    if constexpr (How == copying::streamed) copy_streamed(to, from);
    if constexpr (How != copying::none) to += 64;
  }
  if (const std::size_t left = bytes % 64; left != 0) {
    std::byte rest[64] = {};
    __builtin_memcpy(rest, from, left);
    lanes.stripe(rest);
    if constexpr (How != copying::none) __builtin_memcpy(to, rest, left);
  }
  return lanes.digest(bytes);
}

inline constexpr std::size_t streamed_from = 256 * 1024;  // bytes: below, the next reader finds them in the cache

/// Calls seen(offset, size) after every piece, while it is still in the cache.
template <copying How, class Seen>
u64 checksum_pieces(const std::byte* from, std::byte* to, std::size_t bytes, const Seen& seen) noexcept {
  u64 sum = checksum_mix(bytes);
  for (std::size_t at = 0, index = 0; at < bytes; at += checksum_piece_bytes, ++index) {
    const std::size_t rest = bytes - at, size = rest < checksum_piece_bytes ? rest : checksum_piece_bytes;
    sum += checksum_piece<How>(from + at, How == copying::none ? nullptr : to + at, size, index);
    seen(at, size);
  }
  if constexpr (How == copying::streamed) end_streaming();
  return sum;
}

/// Copies as the size and the alignment of `to` suggest.
template <class Seen>
u64 copy_and_checksum(std::byte* to, const std::byte* from, std::size_t bytes, const Seen& seen) noexcept {
  if (bytes >= streamed_from && reinterpret_cast<std::uintptr_t>(to) % 16 == 0)
    return checksum_pieces<copying::streamed>(from, to, bytes, seen);
  return checksum_pieces<copying::plain>(from, to, bytes, seen);
}

}  // namespace detail

/// Checksum of `bytes` bytes at `data`, any alignment. Exact: the same on every machine; tests pin values.
inline u64 checksum(const void* data, std::size_t bytes) noexcept {
  return detail::checksum_pieces<detail::copying::none>(static_cast<const std::byte*>(data), nullptr, bytes,
                                                        [](std::size_t, std::size_t) {});
}

/// memcpy and checksum in one pass over memory. Ranges must not overlap.
inline u64 copy_and_checksum(void* to, const void* from, std::size_t bytes) noexcept {
  return detail::copy_and_checksum(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
                                   [](std::size_t, std::size_t) {});
}

FP8WIRE_ABI_END
#endif
