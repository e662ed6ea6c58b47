// SPDX-License-Identifier: Apache-2.0
/// Numbers to and from bytes in the order of the wire, whatever the machine's own order and alignment.
#ifndef FP8WIRE_DETAIL_LITTLE_ENDIAN_HPP
#define FP8WIRE_DETAIL_LITTLE_ENDIAN_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

template <class Unsigned> constexpr void store_le(std::byte* to, Unsigned number) noexcept {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    to[i] = static_cast<std::byte>(static_cast<u64>(number) >> (8 * i) & 0xFF);
}

template <class Unsigned> constexpr Unsigned load_le(const std::byte* from) noexcept {
  u64 number = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) number |= static_cast<u64>(from[i]) << (8 * i);
  return static_cast<Unsigned>(number);
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
