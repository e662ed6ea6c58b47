// SPDX-License-Identifier: Apache-2.0
/// Condition C9: scales that no quantizer stores and codes that are NaN, found where the bytes lie.
#ifndef FP8WIRE_WIRE_SANITY_HPP
#define FP8WIRE_WIRE_SANITY_HPP
#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {

template <class Stored, class Bad> i64 first_of(const std::byte* bytes, std::size_t count, const Bad& bad) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    Stored one;
    __builtin_memcpy(&one, bytes + i * sizeof(Stored), sizeof(Stored));
    if (bad(one)) return static_cast<i64>(i);
  }
  return -1;
}

/// First byte whose low seven bits are `least` or more, eight bytes at a time.
inline i64 first_magnitude(const std::byte* bytes, std::size_t count, u8 least) noexcept {
  constexpr u64 ones = 0x0101010101010101u, tops = 0x8080808080808080u;
  const u64 carry = ones * static_cast<u8>(0x80 - least);
  const auto bad = [&](u8 one) { return (one & 0x7F) >= least; };
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    u64 word;
    __builtin_memcpy(&word, bytes + at, 8);
    if ((((word & ~tops) + carry) & tops) != 0) break;
  }
  const i64 found = first_of<u8>(bytes + at, count - at, bad);
  return found < 0 ? -1 : static_cast<i64>(at) + found;
}

}  // namespace detail

/// Index of the first scale that is zero, negative, infinite or NaN (E8M0: 255), -1 if there is none; packed E8M0 in
/// int32 counts in words. `padded`: zeros among FP32 and BF16 scales may be a layout's padding.
/// Other dtypes than F32, BF16, U8, F8_E8M0 and I32 are no scales: -1.
inline i64 first_bad_scale(dtype type, const std::byte* bytes, std::size_t size, bool padded = false) noexcept {
  const u32 least = padded ? 0 : 1;
  switch (type) {
    case dtype::f32:
      return detail::first_of<u32>(bytes, size / 4, [=](u32 bits) { return bits - least >= f32::infinity - least; });
    case dtype::bf16:
      return detail::first_of<u16>(bytes, size / 2, [=](u16 bits) { return bits < least || bits >= 0x7F80; });
    case dtype::uint8:
    case dtype::f8_e8m0: return detail::first_of<u8>(bytes, size, [](u8 bits) { return bits == 0xFF; });
    case dtype::int32: {
      const i64 found = detail::first_of<u8>(bytes, size, [](u8 bits) { return bits == 0xFF; });
      return found < 0 ? -1 : found / 4;
    }
    default: return -1;
  }
}

/// Index of the first code that is NaN or, in E5M2, infinite, -1 if there is none. Dtypes that are no element: -1.
inline i64 first_bad_code(dtype type, const std::byte* bytes, std::size_t size) noexcept {
  switch (type) {
    case dtype::f8_e4m3: return detail::first_magnitude(bytes, size, 0x7F);
    case dtype::f8_e5m2: return detail::first_magnitude(bytes, size, 0x7C);
    case dtype::f8_e4m3fnuz:
    case dtype::f8_e5m2fnuz: return detail::first_of<u8>(bytes, size, [](u8 bits) { return bits == 0x80; });
    default: return -1;
  }
}

FP8WIRE_ABI_END
#endif
