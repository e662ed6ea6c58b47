// SPDX-License-Identifier: Apache-2.0
/// The one place that knows RapidJSON: text becomes a few events, under the rules that all JSON from outside gets.
///
/// Strings are valid UTF-8 after their escapes (RapidJSON itself lets `\udc00` through), nesting is bounded before
/// anything recurses, and numbers arrive as their own text, so that no 64-bit offset passes through a double.
#ifndef FP8WIRE_IO_JSON_EVENTS_HPP
#define FP8WIRE_IO_JSON_EVENTS_HPP
#include <string>
#include <string_view>

#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>

#include <fp8wire/detail/json_text.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

enum class json_kind : u8 { null, boolean, number, string, array, object };

/// Whether `NaN`, `Infinity` and `-Infinity` count as numbers: Python writes them into config.json.
enum class json_numbers : u8 { strict, as_python };

enum class json_stop : u8 { done, handler, syntax, not_utf8, too_deep };

/// Where and why reading stopped. `done` means a whole value was read; what follows it at `at` is the caller's matter.
struct json_end {
  json_stop why = json_stop::done;
  std::size_t at = 0;
  const char* text = "";  // for a message
};

/// Turns RapidJSON's events, whose names are its own, into those of `Handler`.
template <class Handler> class json_adapter
    : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, json_adapter<Handler>> {
 public:
  json_adapter(Handler& handler, int depth) : handler_(handler), depth_(depth) {}
  json_stop stopped() const noexcept { return stopped_; }

  bool Null() { return handler_.scalar(json_kind::null, "null"); }
  bool Bool(bool value) { return handler_.scalar(json_kind::boolean, value ? "true" : "false"); }
  bool RawNumber(const char* text, rapidjson::SizeType size, bool) {
    return handler_.scalar(json_kind::number, {text, size});
  }
  bool String(const char* text, rapidjson::SizeType size, bool) {
    return utf8({text, size}) && handler_.scalar(json_kind::string, {text, size});
  }
  bool Key(const char* text, rapidjson::SizeType size, bool) {
    return utf8({text, size}) && handler_.key({text, size});
  }
  bool StartObject() { return enter() && handler_.open(json_kind::object); }
  bool StartArray() { return enter() && handler_.open(json_kind::array); }
  bool EndObject(rapidjson::SizeType) { return ++depth_, handler_.close(); }
  bool EndArray(rapidjson::SizeType) { return ++depth_, handler_.close(); }

 private:
  bool enter() {
    if (depth_-- > 0) return true;
    stopped_ = json_stop::too_deep;
    return false;
  }
  bool utf8(std::string_view text) {
    if (is_utf8(text)) return true;
    stopped_ = json_stop::not_utf8;
    return false;
  }
  Handler& handler_;
  int depth_;
  json_stop stopped_ = json_stop::handler;
};

/// Reads one JSON value from the start of `text`. Handler: bool key(string_view), bool scalar(json_kind, string_view),
/// bool open(json_kind), bool close(); false stops. Views live during the call only. Memory: one copy of the text.
template <json_numbers Numbers, class Handler> json_end read_json(std::string_view text, int depth, Handler& handler) {
  // In place, on a copy: RapidJSON's other way grows a stack from a null pointer, which UBSan rightly reports.
  constexpr unsigned flags = unsigned{rapidjson::kParseInsituFlag} | unsigned{rapidjson::kParseNumbersAsStringsFlag} |
                             unsigned{rapidjson::kParseStopWhenDoneFlag} |
                             (Numbers == json_numbers::as_python ? unsigned{rapidjson::kParseNanAndInfFlag} : 0u);
  std::string copy(text);  // ends in a NUL, which is where the stream ends; one inside the text is a syntax error
  rapidjson::InsituStringStream stream(copy.data());
  json_adapter<Handler> adapter(handler, depth);
  rapidjson::Reader reader;
  const rapidjson::ParseResult parsed = reader.Parse<flags>(stream, adapter);
  if (!parsed.IsError()) return {json_stop::done, stream.Tell(), ""};
  if (parsed.Code() != rapidjson::kParseErrorTermination)
    return {json_stop::syntax, parsed.Offset(), rapidjson::GetParseError_En(parsed.Code())};
  const json_stop why = adapter.stopped();
  const char* words = why == json_stop::not_utf8   ? "invalid UTF-8"
                      : why == json_stop::too_deep ? "nested too deeply"
                                                   : "";
  return {why, parsed.Offset(), words};
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
