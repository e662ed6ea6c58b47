// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>

#include <fp8wire/io/json.hpp>

namespace {
namespace json = fp8wire::json;
using fp8wire::errc;
using fp8wire::i64;

std::string refusal(std::string_view text, json::limits most = {}) {
  const auto parsed = json::parse(text, "file.json", most);
  return parsed.ok() ? "" : parsed.error().message();
}
std::string repeat(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text.append(part);
  return text;
}
}  // namespace

TEST_CASE("a value that was read is written as Python writes it, keys in order and digits untouched") {
  // The text is what Python 3.11 prints: json.dumps(..., indent=2, ensure_ascii=False) and a newline.
  const std::string text = R"({
  "zeta": 1e-06,
  "alpha": [
    1,
    18446744073709551616,
    -0.10,
    true,
    false,
    null,
    {},
    []
  ],
  "time_step_limit": [
    0.0,
    Infinity,
    -Infinity,
    NaN
  ],
  "text": "\u001f\né\"\\/",
  "": {
    "k": "v"
  }
}
)";
  auto parsed = json::parse(text, "config.json");
  REQUIRE(parsed.ok());
  CHECK(json::write(*parsed) == text);
  const auto compact = json::parse(
      "{\"zeta\":1e-06,\"alpha\":[1,18446744073709551616,-0.10,true,false,null,{},[]],"
      "\"time_step_limit\":[0.0,Infinity,-Infinity,NaN],"
      "\"te\\u0078t\":\"\\u001F\\u000a\\u00e9\\\"\\\\\\/\",\"\":{\"k\":\"v\"}}",
      "");
  REQUIRE(compact.ok());
  CHECK(*compact == *parsed);
}

TEST_CASE("a member that is set keeps its place, a new one goes to the end") {
  auto config = json::parse(R"({"a": 1, "quantization_config": {"old": true}, "b": 2})", "config.json");
  REQUIRE(config.ok());
  json::value& quantization = config.value()["quantization_config"];
  quantization = json::value::object();
  quantization["weight_block_size"] = json::value::array();
  quantization["weight_block_size"].push_back(128);
  quantization["weight_block_size"].push_back(std::size_t{128});
  quantization["quant_method"] = "fp8";
  config.value()["c"] = true;
  CHECK(json::write(*config) ==
        "{\n  \"a\": 1,\n  \"quantization_config\": {\n    \"weight_block_size\": [\n      128,\n"
        "      128\n    ],\n    \"quant_method\": \"fp8\"\n  },\n  \"b\": 2,\n  \"c\": true\n}\n");
  CHECK(config->find("b")->text() == "2");
  CHECK(config->find("missing") == nullptr);
  CHECK(config->find("a")->find("x") == nullptr);
  CHECK(json::write(json::value()) == "null\n");
}

TEST_CASE("doubles are written with the fewest digits that read back, and what JSON cannot say is null") {
  const auto written = [](double number) { return json::value(number).text(); };
  CHECK(written(0.1) == "0.1");
  CHECK(written(-0.0) == "-0");
  CHECK(written(1e-06) == "1e-06");
  CHECK(written(1.7976931348623157e308) == "1.7976931348623157e+308");
  CHECK(written(5e-324) == "5e-324");
  CHECK(json::value(std::numeric_limits<double>::infinity()).is(json::kind::null));
  CHECK(json::value(std::numeric_limits<double>::quiet_NaN()).is(json::kind::null));
  CHECK(json::value(0.5f).text() == "0.5");
}

TEST_CASE("integers are read exactly or not at all") {
  const auto read = [](std::string_view text) {
    i64 number = -7;
    const auto parsed = json::parse(text, "");
    REQUIRE(parsed.ok());
    return parsed->to_integer(number) ? std::to_string(number) : number == -7 ? "refused" : "refused, but written";
  };
  CHECK(read("9223372036854775807") == "9223372036854775807");
  CHECK(read("-9223372036854775808") == "-9223372036854775808");
  CHECK(read("9223372036854775808") == "refused");
  CHECK(read("1.0") == "refused");
  CHECK(read("1e3") == "refused");
  CHECK(read("\"1\"") == "refused");
  CHECK(read("NaN") == "refused");
}

TEST_CASE("malformed text is refused with its place") {
  CHECK(refusal("") == "file.json: JSON, byte 0: The document is empty.");
  CHECK(refusal("{\"a\": 1,}") == "file.json: JSON, byte 8: Missing a name for object member.");
  CHECK(refusal("[1] x") == "file.json: JSON, byte 4: text behind the value");
  for (const char* text : {"[1",      "[1,]",      "{1:2}",   "nul",       "\"a",
                           "01",      "+1",        "1.",      ".5",        "1e",
                           "// c\n1", "'a'",       "[Inf]",   "-Inf",      "\xEF\xBB\xBF{}",
                           "[1 2]",   "{\"a\" 1}", "\"\\x\"", "\"\\u12\"", "\"\t\"",
                           "1e400"}) {
    CAPTURE(text);
    CHECK_FALSE(refusal(text).empty());
  }
  CHECK_FALSE(refusal(std::string_view("[1\0]", 4)).empty());
  CHECK_FALSE(refusal(std::string_view("[1]\0", 4)).empty());
}

TEST_CASE("text that is not UTF-8 is refused, escaped surrogates too") {
  CHECK(refusal("\"\xFF\"").find("invalid UTF-8") != std::string::npos);
  CHECK(refusal("{\"\\udc00\": 1}").find("invalid UTF-8") != std::string::npos);
  CHECK_FALSE(refusal("\"\\ud800\"").empty());
  CHECK(refusal("\"\\ud83d\\ude00\"").empty());
}

TEST_CASE("a key that stands twice is refused by name") {
  CHECK(refusal(R"({"a": 1, "b": {"c": 1, "x": 2, "c": 3}})") == "file.json: JSON, byte 38: duplicate key \"c\"");
  CHECK(json::parse(R"({"a":1,"\u0061":2})", "").error().code == errc::duplicate);
}

TEST_CASE("depth, size and number of values are bounded before memory is spent") {
  CHECK(refusal(repeat("[", 64) + repeat("]", 64)).empty());
  CHECK(refusal(repeat("[", 65) + repeat("]", 65)).find("nested too deeply") != std::string::npos);
  CHECK(refusal(repeat("[", 1 << 20)).find("nested too deeply") != std::string::npos);
  CHECK(refusal(repeat("{\"a\":", 1 << 20)).find("nested too deeply") != std::string::npos);
  json::limits few;
  few.values = 3;
  CHECK(refusal("[1,2]", few).empty());
  CHECK(refusal("[1,2,3]", few).find("too many values") != std::string::npos);
  few.bytes = 4;
  CHECK(refusal("[1,2]", few) == "file.json: JSON is too large: got 5, expected 4");
}

TEST_CASE("damaged text is refused, or comes out of writing and reading as it went in") {
  const std::string text =
      R"({"a": [1, -2.5e3, "x\u00e9\ud83d\ude00", {"b": null, "c": [true, false, Infinity]}], "d": {"": "\\\"/"}})";
  std::mt19937 random(11);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  int good = 0, bad = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = text;
    for (std::size_t times = 1 + below(3); times > 0; --times) {
      const std::size_t at = below(damaged.size());
      if (const std::size_t kind = below(3); kind == 0) damaged[at] = static_cast<char>(below(256));
      else if (kind == 1) damaged.erase(at, 1 + below(4));
      else damaged.insert(at, damaged.substr(below(damaged.size()), below(12)));
    }
    const auto parsed = json::parse(damaged, "");
    ++(parsed.ok() ? good : bad);
    if (!parsed.ok()) continue;
    const auto again = json::parse(json::write(*parsed), "");
    if (!again.ok() || *again != *parsed) FAIL(damaged);
  }
  CHECK(good > 500);
  CHECK(bad > 5000);
}
