// SPDX-License-Identifier: Apache-2.0
/// Entry checks: O(1), always on, one exception with both numbers in its text.
#ifndef FP8WIRE_CORE_EXPECTS_HPP
#define FP8WIRE_CORE_EXPECTS_HPP
#include <exception>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// Thrown when a caller breaks a documented expectation ("codes: rows are 3, expected 4").
class precondition_error : public std::exception {
 public:
  precondition_error(const char* what_is_wrong, i64 got, i64 expected) noexcept {
    append(what_is_wrong);
    append(": got ");
    append(got);
    append(", expected ");
    append(expected);
  }
  const char* what() const noexcept override { return text_; }

 private:
  void append(const char* text) noexcept {
    for (; *text != '\0' && length_ + 1 < sizeof(text_); ++text) text_[length_++] = *text;
  }
  void append(i64 number) noexcept {
    char digits[21];
    int at = 20;
    digits[at] = '\0';
    u64 rest = number < 0 ? u64{0} - static_cast<u64>(number) : static_cast<u64>(number);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (number < 0) digits[--at] = '-';
    append(digits + at);
  }
  char text_[256] = {};
  std::size_t length_ = 0;
};

namespace detail {

[[noreturn]] FP8WIRE_NOINLINE inline void raise(const char* what_is_wrong, i64 got, i64 expected) {
  FP8WIRE_THROW(precondition_error(what_is_wrong, got, expected));
}

constexpr void expect_equal(i64 got, i64 expected, const char* what) {
  if (got != expected) raise(what, got, expected);
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
