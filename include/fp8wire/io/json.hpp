// SPDX-License-Identifier: Apache-2.0
/// A JSON value that keeps the order of keys and the digits of numbers, read within limits and written with care.
///
/// For config.json, indices and reports: what a program does not touch comes out as it went in.
#ifndef FP8WIRE_IO_JSON_HPP
#define FP8WIRE_IO_JSON_HPP
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/detail/json_text.hpp>
#include <fp8wire/detail/name_order.hpp>
#include <fp8wire/io/json_events.hpp>

FP8WIRE_ABI_BEGIN
namespace json {

using kind = detail::json_kind;

/// null, true, a number, a string, an array or an object with its keys in order. Made implicitly from C++ values.
class value {
 public:
  value() = default;  // null
  template <std::same_as<bool> Bool> value(Bool truth) : kind_(kind::boolean), text_(truth ? "true" : "false") {}
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  value(Integer number) : kind_(kind::number), text_(std::to_string(number)) {}
  /// The shortest digits that give the same double back; NaN and Inf, which JSON has no word for, become null.
  template <std::floating_point Float> value(Float number) {
    const double wide = static_cast<double>(number);
    constexpr u64 exponent = 0x7FF0000000000000;
    if ((__builtin_bit_cast(u64, wide) & exponent) == exponent) return;
    char digits[32];
    kind_ = kind::number;
    text_.assign(digits, std::to_chars(digits, digits + sizeof(digits), wide).ptr);
  }
  template <std::convertible_to<std::string_view> Text>
  value(const Text& text) : kind_(kind::string), text_(std::string_view(text)) {}
  static value array() { return value(kind::array, {}); }
  static value object() { return value(kind::object, {}); }

  kind type() const noexcept { return kind_; }
  bool is(kind wanted) const noexcept { return kind_ == wanted; }
  /// What a string says, or the digits of a number as they were written, or "true", "false"; empty for the others.
  const std::string& text() const noexcept { return text_; }
  bool is_true() const noexcept { return kind_ == kind::boolean && text_ == "true"; }
  /// False, and `out` as it was, unless this is a whole number that fits.
  bool to_integer(i64& out) const noexcept {
    i64 number = 0;
    const char* end = text_.data() + text_.size();
    const auto [stopped, fault] = std::from_chars(text_.data(), end, number);
    if (kind_ != kind::number || fault != std::errc{} || stopped != end) return false;
    out = number;
    return true;
  }

  /// Of an array or an object; an object's keys are keys(), one an item.
  const std::vector<value>& items() const noexcept { return items_; }
  const std::vector<std::string>& keys() const noexcept { return keys_; }
  /// An object's member, or nullptr, also where this is no object. Cost: linear.
  const value* find(std::string_view key) const noexcept {
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == key) return &items_[i];
    return nullptr;
  }
  /// An object's member, added as null behind the others where it is missing. A null becomes an object first.
  value& operator[](std::string_view key) {
    if (kind_ == kind::null) kind_ = kind::object;
    detail::expect_equal(static_cast<i64>(kind_), static_cast<i64>(kind::object),
                         "json: a member of what is no object");
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == key) return items_[i];
    return append(key);
  }
  /// A new member behind the others, in constant time. Expects: an object that has no such key (unchecked).
  value& append(std::string_view key) {
    keys_.emplace_back(key);
    return items_.emplace_back();
  }
  /// Appends to an array. A null becomes an array first.
  value& push_back(value item) {
    if (kind_ == kind::null) kind_ = kind::array;
    detail::expect_equal(static_cast<i64>(kind_), static_cast<i64>(kind::array), "json: push_back to what is no array");
    return items_.emplace_back(std::move(item));
  }
  bool operator==(const value&) const = default;

 private:
  friend class builder;
  value(kind what, std::string_view text) : kind_(what), text_(text) {}
  kind kind_ = kind::null;
  std::string text_;
  std::vector<std::string> keys_;
  std::vector<value> items_;
};

/// What a text from outside may cost. Memory is at most about 250 bytes a value beside the text itself.
struct limits {
  i64 bytes = i64{64} << 20;
  i64 values = i64{1} << 21;
  int depth = 64;
};

/// Receives events and builds a value; used by parse().
class builder {
 public:
  explicit builder(i64 values) : left_(values) {}
  bool key(std::string_view text) { return open_.back()->append(text), true; }
  bool scalar(kind what, std::string_view text) {
    // RapidJSON also takes "Inf", which Python would refuse to read again.
    if (what == kind::number && text.ends_with("Inf")) return fail("Inf is no number", "");
    value* item = place();
    if (item != nullptr) *item = value(what, what == kind::null ? std::string_view{} : text);
    return item != nullptr;
  }
  bool open(kind what) {
    value* item = place();
    if (item == nullptr) return false;
    *item = value(what, {});
    open_.push_back(item);
    return true;
  }
  bool close() {
    const std::vector<std::string>& keys = open_.back()->keys_;
    const auto key_at = [&](std::size_t i) -> const std::string& { return keys[i]; };
    if (const i64 twice = detail::name_order(keys.size(), key_at).duplicate(key_at); twice >= 0)
      return fail("duplicate key", keys[static_cast<std::size_t>(twice)]);
    open_.pop_back();
    return true;
  }
  value root;
  std::string why, name;  // of a refusal

 private:
  // Pointers to open values stay good: a value's items grow only while it is the innermost open one.
  value* place() {
    if (left_-- <= 0) return fail("too many values", ""), nullptr;
    if (open_.empty()) return &root;
    value& parent = *open_.back();
    return parent.is(kind::array) ? &parent.items_.emplace_back() : &parent.items_.back();
  }
  bool fail(std::string_view what, std::string_view key) { return why = what, name = key, false; }
  std::vector<value*> open_;
  i64 left_;
};

/// Reads one value and nothing behind it but white space. `source` is the file or peer that an error names.
/// Refused: malformed text, invalid UTF-8, a key that stands twice in one object, and whatever is over the limits.
/// `NaN`, `Infinity` and `-Infinity` are numbers here, as in Python, whose json module writes them into config.json.
inline result<value> parse(std::string_view text, std::string_view source, limits most = {}) {
  if (static_cast<u64>(text.size()) > static_cast<u64>(most.bytes))
    return make_error(errc::bad_header, std::string(source), "JSON is too large", static_cast<i64>(text.size()),
                      most.bytes);
  builder made(most.values);
  const detail::json_end end = detail::read_json<detail::json_numbers::as_python>(text, most.depth, made);
  std::string_view why = end.why == detail::json_stop::handler ? std::string_view(made.why) : end.text;
  std::size_t at = end.at;
  if (end.why == detail::json_stop::done) {
    at = text.find_first_not_of(" \t\r\n", at);
    if (at == std::string_view::npos) return std::move(made.root);
    why = "text behind the value";
  }
  std::string what = std::string("JSON, byte ").append(std::to_string(at)).append(": ").append(why);
  if (!made.name.empty()) what.append(" \"").append(made.name).append("\"");
  const errc code = made.name.empty() ? errc::bad_header : errc::duplicate;
  return make_error(code, std::string(source), std::move(what));
}

}  // namespace json

namespace detail {

inline void write_json(const json::value& from, std::string& out, std::size_t margin) {
  using json::kind;
  const auto separate = [&](char mark, std::size_t width) {
    if (mark != '\0') out.push_back(mark);
    out.push_back('\n');
    out.append(width, ' ');
  };
  if (from.is(kind::null)) {
    out.append("null");
  } else if (from.is(kind::string)) {
    append_json_string(out, from.text());
  } else if (!from.is(kind::array) && !from.is(kind::object)) {
    out.append(from.text());
  } else {
    const bool object = from.is(kind::object);
    out.push_back(object ? '{' : '[');
    for (std::size_t i = 0; i < from.items().size(); ++i) {
      separate(i == 0 ? '\0' : ',', margin + 2);
      if (object) {
        append_json_string(out, from.keys()[i]);
        out.append(": ");
      }
      write_json(from.items()[i], out, margin + 2);
    }
    if (!from.items().empty()) separate('\0', margin);
    out.push_back(object ? '}' : ']');
  }
}

}  // namespace detail

namespace json {

/// Text with two spaces a level and a newline at the end: what Python's json.dumps(indent=2, ensure_ascii=False) gives.
/// Expects: strings are valid UTF-8 (unchecked; parse() lets no others in).
inline std::string write(const value& from) {
  std::string out;
  detail::write_json(from, out, 0);
  out.push_back('\n');
  return out;
}

}  // namespace json
FP8WIRE_ABI_END
#endif
