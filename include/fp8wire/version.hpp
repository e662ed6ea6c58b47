// SPDX-License-Identifier: Apache-2.0
/// The library's version as numbers and as text, derived from FP8WIRE_VERSION.
#ifndef FP8WIRE_VERSION_HPP
#define FP8WIRE_VERSION_HPP
#include <string_view>

#include <fp8wire/config.hpp>

FP8WIRE_ABI_BEGIN

inline constexpr int version_major = FP8WIRE_VERSION / 10000;
inline constexpr int version_minor = FP8WIRE_VERSION / 100 % 100;
inline constexpr int version_patch = FP8WIRE_VERSION % 100;

namespace detail {
struct version_text {
  char text[9] = {};
  unsigned length = 0;
  constexpr version_text() noexcept {
    for (int part : {version_major, version_minor, version_patch}) {
      if (length > 0) text[length++] = '.';
      if (part >= 10) text[length++] = static_cast<char>('0' + part / 10);
      text[length++] = static_cast<char>('0' + part % 10);
    }
  }
};
inline constexpr version_text version_buffer{};
}  // namespace detail

/// "major.minor.patch".
inline constexpr std::string_view version_string{detail::version_buffer.text, detail::version_buffer.length};

FP8WIRE_ABI_END
#endif
