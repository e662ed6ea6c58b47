// SPDX-License-Identifier: Apache-2.0
/// An 8 x 8 square of bytes, turned over its diagonal in eight 64-bit integers.
#ifndef FP8WIRE_DETAIL_TRANSPOSE_HPP
#define FP8WIRE_DETAIL_TRANSPOSE_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Swaps the off-diagonal quarters of every square of 2 * Step bytes.
template <int Step, u64 LowHalves> constexpr void swap_quarters(u64 (&rows)[8]) noexcept {
  for (int i = 0; i < 8; ++i) {
    if ((i & Step) != 0) continue;
    const u64 changed = ((rows[i] >> (8 * Step)) ^ rows[i + Step]) & LowHalves;
    rows[i] ^= changed << (8 * Step);
    rows[i + Step] ^= changed;
  }
}

/// Byte j of rows[i] becomes byte i of rows[j]. Integers only: as fast as a byte shuffle needs it to be, on every machine.
constexpr void transpose_bytes(u64 (&rows)[8]) noexcept {
  swap_quarters<4, 0x00000000FFFFFFFFu>(rows);
  swap_quarters<2, 0x0000FFFF0000FFFFu>(rows);
  swap_quarters<1, 0x00FF00FF00FF00FFu>(rows);
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
