// SPDX-License-Identifier: Apache-2.0
/// The wire's 64-bit checksum: eight independent lanes, pieces that can be summed in any order, fused into a copy.
///
/// It guards against accidents (lost, shifted, stale or flipped bytes), not against an adversary. Bytes are cut into
/// pieces of 64 KiB; a piece runs eight lanes over its 64-byte stripes; a piece's digest depends on its position, and the
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

/// Digest of piece number `index`; copies to `to` on the way unless it is null.
inline u64 checksum_piece(const std::byte* from, std::byte* to, std::size_t bytes, u64 index) noexcept {
  u64 lanes[8];
  for (int i = 0; i < 8; ++i) lanes[i] = checksum_mix(index * 8 + static_cast<u64>(i) + 1);
  std::size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    u64 words[8];
    for (int i = 0; i < 8; ++i) words[i] = load_word(from + at + 8 * i);
    for (int i = 0; i < 8; ++i) lanes[i] = checksum_step(lanes[i], words[i]);
    if (to != nullptr) __builtin_memcpy(to + at, from + at, 64);
  }
  if (at < bytes) {
    std::byte rest[64] = {};
    for (std::size_t i = 0; at + i < bytes; ++i) rest[i] = from[at + i];
    for (int i = 0; i < 8; ++i) lanes[i] = checksum_step(lanes[i], load_word(rest + 8 * i));
    if (to != nullptr) __builtin_memcpy(to + at, rest, bytes - at);
  }
  u64 digest = bytes;
  for (int i = 0; i < 8; ++i) digest = checksum_mix(digest ^ lanes[i]) + static_cast<u64>(i);
  return digest;
}

inline u64 checksum_pieces(const std::byte* from, std::byte* to, std::size_t bytes) noexcept {
  u64 sum = checksum_mix(bytes);
  for (std::size_t at = 0, index = 0; at < bytes; at += checksum_piece_bytes, ++index) {
    const std::size_t rest = bytes - at;
    sum += checksum_piece(from + at, to == nullptr ? nullptr : to + at, rest < checksum_piece_bytes ? rest : checksum_piece_bytes,
                          index);
  }
  return sum;
}

}  // namespace detail

/// Checksum of `bytes` bytes at `data`, any alignment. Exact: the same on every machine; tests pin values.
inline u64 checksum(const void* data, std::size_t bytes) noexcept {
  return detail::checksum_pieces(static_cast<const std::byte*>(data), nullptr, bytes);
}

/// memcpy and checksum in one pass over memory. Ranges must not overlap.
inline u64 copy_and_checksum(void* to, const void* from, std::size_t bytes) noexcept {
  return detail::checksum_pieces(static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes);
}

FP8WIRE_ABI_END
#endif
