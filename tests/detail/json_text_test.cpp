// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <fp8wire/detail/json_text.hpp>

namespace {
using fp8wire::detail::append_json_string;
using fp8wire::detail::is_utf8;
using namespace std::string_view_literals;

// Encodes by arithmetic over the code point, where is_utf8 goes by ranges of bytes.
std::string utf8_of(unsigned point, int bytes) {
  if (bytes == 1) return {static_cast<char>(point)};
  std::string text;
  const unsigned marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
  text.push_back(static_cast<char>(marks[bytes] | point >> (6 * (bytes - 1))));
  for (int i = bytes - 2; i >= 0; --i) text.push_back(static_cast<char>(0x80u | ((point >> (6 * i)) & 0x3Fu)));
  return text;
}
}  // namespace

TEST_CASE("every code point is valid in its shortest form only, and surrogates never are") {
  for (unsigned point = 0; point <= 0x11FFFF; ++point) {
    const int shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    const bool valid = point <= 0x10FFFF && !surrogate;
    if (is_utf8(utf8_of(point, shortest)) != valid) FAIL("code point " << point);
    for (int longer = shortest + 1; longer <= 4; ++longer)
      if (is_utf8(utf8_of(point, longer))) FAIL("overlong form of " << point);
  }
}

TEST_CASE("cut, stray and impossible bytes are not UTF-8") {
  for (const std::string_view text : {"\x80"sv, "\xC3"sv, "a\xE2\x82"sv, "\xF0\x9F\x98"sv, "\xFF"sv, "\xFE"sv,
                                      "\xC3("sv, "\xE2\x28\xA1"sv, "\xF0\x9F\x98("sv, "\xF5\x80\x80\x80"sv}) {
    CAPTURE(text.size());
    CHECK_FALSE(is_utf8(text));
  }
  CHECK(is_utf8(""));
  CHECK(is_utf8("\0"sv));
}

TEST_CASE("strings are escaped as the safetensors package escapes them") {
  const auto escaped = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  // Golden text from safetensors 0.8.0 (PyPI), name "w\x1f\n\u00e9/\"\\" and value "\u00e9\n\"\\/\x1f\x7f\b\f\r\t".
  CHECK(escaped("w\x1f\n\xC3\xA9/\"\\") == "\"w\\u001f\\n\xC3\xA9/\\\"\\\\\"");
  CHECK(escaped("\xC3\xA9\n\"\\/\x1f\x7f\b\f\r\t") == "\"\xC3\xA9\\n\\\"\\\\/\\u001f\x7f\\b\\f\\r\\t\"");
  CHECK(escaped("\0\v"sv) == "\"\\u0000\\u000b\"");
  CHECK(escaped("") == "\"\"");
}
