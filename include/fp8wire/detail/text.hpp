// SPDX-License-Identifier: Apache-2.0
/// A short text built at compile time or on the stack, for ids that are hashed.
#ifndef FP8WIRE_DETAIL_TEXT_HPP
#define FP8WIRE_DETAIL_TEXT_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// At most 511 characters. Longer ids would be cut and collide, so a constant that does not fit fails to compile.
class short_text {
 public:
  constexpr short_text& operator<<(std::string_view text) noexcept {
    for (const char c : text) put(c);
    return *this;
  }
  constexpr short_text& operator<<(i64 number) noexcept {
    char digits[20] = {};
    int count = 0;
    u64 rest = number < 0 ? u64{0} - static_cast<u64>(number) : static_cast<u64>(number);
    do digits[count++] = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (number < 0) put('-');
    while (count > 0) put(digits[--count]);
    return *this;
  }
  /// `digits` hexadecimal digits, upper case.
  constexpr short_text& hex(u64 number, int digits) noexcept {
    while (digits-- > 0) put("0123456789ABCDEF"[(number >> (4 * digits)) & 0xF]);
    return *this;
  }
  constexpr std::string_view view() const noexcept { return {text_, length_}; }

 private:
  constexpr void put(char c) noexcept { text_[length_++] = c; }
  char text_[512] = {};
  std::size_t length_ = 0;
};

}  // namespace detail
FP8WIRE_ABI_END
#endif
