// SPDX-License-Identifier: Apache-2.0
/// FNV-1a, 64 bits: ids of canonical texts (grids, wire formats, plans).
#ifndef FP8WIRE_CORE_HASH_HPP
#define FP8WIRE_CORE_HASH_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

inline constexpr u64 hash_seed = 0xCBF29CE484222325u;

/// FNV-1a of `text`, continued from `state`. Source: draft-eastlake-fnv; not meant against an adversary.
constexpr u64 hash(std::string_view text, u64 state = hash_seed) noexcept {
  for (const char c : text) state = (state ^ static_cast<u8>(c)) * 0x100000001B3u;
  return state;
}

/// The same over the eight little-endian bytes of a number.
constexpr u64 hash(u64 number, u64 state) noexcept {
  for (int byte = 0; byte < 8; ++byte) state = (state ^ ((number >> (8 * byte)) & 0xFF)) * 0x100000001B3u;
  return state;
}

FP8WIRE_ABI_END
#endif
