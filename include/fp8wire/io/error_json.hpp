// SPDX-License-Identifier: Apache-2.0
/// An error as one JSON object and back, for RPCs and reports: codes and conditions by name.
#ifndef FP8WIRE_IO_ERROR_JSON_HPP
#define FP8WIRE_IO_ERROR_JSON_HPP
#include <fp8wire/io/json.hpp>

FP8WIRE_ABI_BEGIN

/// {"code","condition","tensor","what","message"[,"got","expected"][,"rank"]}; members without a value are left out.
inline json::value error_to_json(const error& from) {
  json::value out = json::value::object();
  out["code"] = name_of(from.code);
  if (from.broken != condition::none) out["condition"] = name_of(from.broken);
  if (!from.tensor.empty()) out["tensor"] = from.tensor;
  if (!from.what.empty()) out["what"] = from.what;
  if (from.has_numbers) {
    out["got"] = from.got;
    out["expected"] = from.expected;
  }
  if (from.rank >= 0) out["rank"] = from.rank;
  out["message"] = from.message();
  return out;
}

/// Reads the error in a JSON value into `made`; "message" and unknown keys are skipped. A code or condition that this
/// version does not know becomes `aborted` or none. Errors: bad_header where the value is no error.
inline error error_from_json(const json::value& from, error& made) {
  const auto refuse = [](const char* what) { return make_error(errc::bad_header, "error", what); };
  const json::value* code = from.find("code");
  if (code == nullptr || !code->is(json::kind::string)) return refuse("an error has no code");
  made = {};
  made.code = errc::aborted;
  for (int i = 0; i <= static_cast<int>(errc::unsupported); ++i)
    if (name_of(static_cast<errc>(i)) == code->text()) made.code = static_cast<errc>(i);
  if (made.code == errc::ok) return refuse("an error says ok");
  const auto text = [&](const char* key, std::string& into) {
    const json::value* found = from.find(key);
    if (found != nullptr && found->is(json::kind::string)) into = found->text();
    return found == nullptr || found->is(json::kind::string);
  };
  std::string broken;
  if (!text("condition", broken) || !text("tensor", made.tensor) || !text("what", made.what))
    return refuse("a text has the wrong type");
  for (int i = 1; i <= static_cast<int>(condition::c10_other_state); ++i)
    if (name_of(static_cast<condition>(i)) == broken) made.broken = static_cast<condition>(i);
  const json::value *got = from.find("got"), *expected = from.find("expected"), *rank = from.find("rank");
  made.has_numbers = got != nullptr && expected != nullptr;
  if (made.has_numbers && (!got->to_integer(made.got) || !expected->to_integer(made.expected)))
    return refuse("its numbers are not whole");
  i64 number = -1;
  if (rank != nullptr && (!rank->to_integer(number) || number < -1 || number > 0x7FFFFFFF))
    return refuse("its rank is no rank");
  made.rank = static_cast<int>(number);
  return {};
}

FP8WIRE_ABI_END
#endif
