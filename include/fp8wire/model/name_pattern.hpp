// SPDX-License-Identifier: Apache-2.0
/// Patterns over the dotted segments of a tensor's name: whole segments, never substrings.
///
/// An ignore list that says "mlp.gate" and is matched as a substring swallows mlp.gate_up_proj as well; here a segment
/// is the same or it is not.
#ifndef FP8WIRE_MODEL_NAME_PATTERN_HPP
#define FP8WIRE_MODEL_NAME_PATTERN_HPP
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// The text before the next `mark`, cut off `rest` together with the mark; `more` is false once nothing is left.
constexpr std::string_view cut(std::string_view& rest, char mark, bool& more) noexcept {
  const std::size_t end = rest.find(mark);
  const std::string_view first = rest.substr(0, end);
  more = end != rest.npos;
  rest = more ? rest.substr(end + 1) : std::string_view();
  return first;
}

/// Whether one of the words between underscores is `word`, capitals and digits at its end aside: "LayerNorm", "norm1".
constexpr bool has_word(std::string_view segment, std::string_view word) noexcept {
  for (bool more = true; more;) {
    std::string_view one = cut(segment, '_', more);
    while (!one.empty() && one.back() >= '0' && one.back() <= '9') one.remove_suffix(1);
    bool same = one.size() == word.size();
    for (std::size_t i = 0; same && i < one.size(); ++i) {
      const char lower = one[i] >= 'A' && one[i] <= 'Z' ? static_cast<char>(one[i] - 'A' + 'a') : one[i];
      same = lower == word[i];
    }
    if (same) return true;
  }
  return false;
}

constexpr bool is_number(std::string_view segment) noexcept {
  for (const char c : segment)
    if (c < '0' || c > '9') return false;
  return !segment.empty();
}

constexpr bool matches_segment(std::string_view pattern, std::string_view segment) noexcept {
  for (bool more = true; more;) {
    const std::string_view one = cut(pattern, '|', more);
    if (one == "*" || one == segment || (one == "#" && is_number(segment))) return true;
    if (one.starts_with('~') && has_word(segment, one.substr(1))) return true;
  }
  return false;
}

}  // namespace detail

/// Whether the whole of `name` fits. A pattern has segments too: `*` is any one, `**` any number of them or none, `#` a
/// decimal number, `~word` a segment one of whose words between underscores is that (lower case), `a|b` either.
constexpr bool matches(std::string_view pattern, std::string_view name) noexcept {
  // The usual backtracking for one kind of star: the last `**` takes one segment more at every failure.
  bool pattern_left = true, name_left = true, star = false;
  bool retry_pattern_left = false, retry_name_left = false;
  std::string_view retry_pattern, retry_name;
  for (;;) {
    if (pattern_left) {
      std::string_view after = pattern;
      bool more = false;
      const std::string_view wanted = detail::cut(after, '.', more);
      if (wanted == "**") {
        pattern = after, pattern_left = more;
        star = true;
        retry_pattern = pattern, retry_pattern_left = pattern_left;
        retry_name = name, retry_name_left = name_left;
        continue;
      }
      if (name_left) {
        std::string_view name_after = name;
        bool name_more = false;
        if (detail::matches_segment(wanted, detail::cut(name_after, '.', name_more))) {
          pattern = after, pattern_left = more;
          name = name_after, name_left = name_more;
          continue;
        }
      }
    } else if (!name_left) {
      return true;
    }
    if (!star || !retry_name_left) return false;
    detail::cut(retry_name, '.', retry_name_left);
    pattern = retry_pattern, pattern_left = retry_pattern_left;
    name = retry_name, name_left = retry_name_left;
  }
}

FP8WIRE_ABI_END
#endif
