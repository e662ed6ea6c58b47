// SPDX-License-Identifier: Apache-2.0
/// The two rules for text that all JSON here shares: what valid UTF-8 is and how a string is escaped.
#ifndef FP8WIRE_DETAIL_JSON_TEXT_HPP
#define FP8WIRE_DETAIL_JSON_TEXT_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Whether `text` is UTF-8 without overlong forms, surrogates and values above U+10FFFF (Unicode table 3-7).
constexpr bool is_utf8(std::string_view text) noexcept {
  const std::size_t size = text.size();
  for (std::size_t at = 0; at < size;) {
    const u8 lead = static_cast<u8>(text[at++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const std::size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (size - at < more) return false;
    // Only the first continuation byte is restricted further.
    const u8 low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const u8 high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    const u8 first = static_cast<u8>(text[at++]);
    if (first < low || first > high) return false;
    for (std::size_t i = 1; i < more; ++i)
      if ((static_cast<u8>(text[at++]) & 0xC0) != 0x80) return false;
  }
  return true;
}

/// Appends `text` in quotes, escaped as serde_json does, which wrote most safetensors headers there are.
///
/// Only what JSON demands is escaped: quote, backslash and control characters, those in lower case hexadecimal where no
/// short form exists. Expects: valid UTF-8 (unchecked). Text needs append(const char*, size) and push_back(char).
template <class Text> constexpr void append_json_string(Text& out, std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef", shorts = "btnvfr";  // for 8..13; \v is not JSON
  out.push_back('"');
  std::size_t kept = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const u8 c = static_cast<u8>(text[at]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text.data() + kept, at - kept);
    kept = at + 1;
    out.push_back('\\');
    if (c >= 0x20) {
      out.push_back(static_cast<char>(c));
    } else if (c >= 8 && c <= 13 && c != 11) {
      out.push_back(shorts[c - 8u]);
    } else {
      out.append("u00", 3);
      out.push_back(digits[c >> 4]);
      out.push_back(digits[c & 15u]);
    }
  }
  out.append(text.data() + kept, text.size() - kept);
  out.push_back('"');
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
