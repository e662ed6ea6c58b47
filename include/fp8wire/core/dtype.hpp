// SPDX-License-Identifier: Apache-2.0
/// Element types of stored tensors, with the names safetensors gives them.
#ifndef FP8WIRE_CORE_DTYPE_HPP
#define FP8WIRE_CORE_DTYPE_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// In the order of the safetensors writer (its dtype enumeration at 24b0b28), ascending.
enum class dtype : u8 {
  boolean, f4, f6_e2m3, f6_e3m2, uint8, int8, f8_e5m2, f8_e4m3, f8_e8m0, f8_e4m3fnuz, f8_e5m2fnuz,
  int16, uint16, f16, bf16, int32, uint32, f32, c64, f64, int64, uint64
};

namespace detail {
struct dtype_row {
  std::string_view name;
  int bits;
};
inline constexpr dtype_row dtype_table[] = {
    {"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
    {"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64}};
inline constexpr int dtype_count = sizeof(dtype_table) / sizeof(dtype_table[0]);
}  // namespace detail

/// The safetensors spelling, "F8_E4M3".
constexpr std::string_view name_of(dtype type) noexcept { return detail::dtype_table[static_cast<int>(type)].name; }

/// Bits of one element: 4 and 6 for the packed formats.
constexpr int bit_width(dtype type) noexcept { return detail::dtype_table[static_cast<int>(type)].bits; }

/// Looks a safetensors spelling up; false leaves `out` alone.
constexpr bool parse_dtype(std::string_view name, dtype& out) noexcept {
  for (int i = 0; i < detail::dtype_count; ++i) {
    if (detail::dtype_table[i].name == name) {
      out = static_cast<dtype>(i);
      return true;
    }
  }
  return false;
}

FP8WIRE_ABI_END
#endif
