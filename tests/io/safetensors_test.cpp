// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/safetensors.hpp>

#include "support.hpp"

namespace {
using fp8wire::dtype;
using fp8wire::errc;
using fp8wire::i64;
using fp8wire::safetensors_fault;
using fp8wire::safetensors_header;
using namespace std::string_literals;

std::string fault_of(std::string_view file) {
  safetensors_header header;
  fp8wire::error why;
  const safetensors_fault fault = fp8wire::read_safetensors(io_test::bytes_of(file), "m.safetensors", header, why);
  CHECK(static_cast<bool>(why) == (fault != safetensors_fault::none));
  if (fault != safetensors_fault::none) {
    CHECK(header.tensors.empty());
    CHECK(why.message().find("m.safetensors") != std::string::npos);
  }
  return std::string(fp8wire::name_of(fault));
}
std::string header_fault(std::string_view header, std::string_view data = {}) {
  return fault_of(io_test::file_of(header, data));
}
std::string message(std::string_view header, std::string_view data = {}) {
  const auto read = fp8wire::read_safetensors(io_test::bytes_of(io_test::file_of(header, data)), "m.safetensors");
  return read.ok() ? "" : read.error().message();
}
std::string entry(std::string_view name, std::string_view type, std::string_view shape, std::string_view offsets) {
  return "\""s.append(name)
      .append("\":{\"dtype\":\"")
      .append(type)
      .append("\",\"shape\":[")
      .append(shape)
      .append("],\"data_offsets\":[")
      .append(offsets)
      .append("]}");
}
}  // namespace

TEST_CASE("every case of the vectors gets its verdict") {
  int seen = 0;
  for (const auto& one : io_test::vectors("safetensors_cases.json")) {
    if (io_test::member(one, "kind").text() != "safetensors") continue;
    const std::string id = io_test::member(one, "id").text();
    CAPTURE(id);
    const auto& input = io_test::member(one, "input");
    const std::string file = io_test::from_hex(io_test::member(input, "file_hex").text());
    REQUIRE(std::to_string(file.size()) == io_test::member(input, "size").text());
    const std::string expected = io_test::member(io_test::member(one, "expect"), "result").text();
    CHECK(fault_of(file) == (expected == "ok" ? "none" : expected));
    ++seen;
  }
  CHECK(seen == 22);
}

TEST_CASE("tensors come in the order of their bytes, metadata in the order of the file") {
  const std::string json =
      R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":{"y":"1","a":"\u00e9","":""},)"
      R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32","extra":{"deep":[1,{"x":null}]},"more":1.5}})";
  const std::string file = io_test::file_of(json + "   ", "abcdef");
  const auto read = fp8wire::read_safetensors(io_test::bytes_of(file), "");
  REQUIRE(read.ok());
  REQUIRE(read->tensors.size() == 2);
  const auto& [a, z] = std::tie(read->tensors[0], read->tensors[1]);
  CHECK(a.name == "a");
  CHECK(a.dtype == dtype::f32);
  CHECK(a.shape.empty());
  CHECK(a.begin == 0);
  CHECK(a.end == 4);
  CHECK(z.name == "z");
  CHECK(z.shape == std::vector<i64>{2});
  CHECK(read->find("a") == &a);
  CHECK(read->find("z") == &z);
  CHECK(read->find("b") == nullptr);
  CHECK(read->find("__metadata__") == nullptr);
  CHECK(read->metadata == fp8wire::safetensors_metadata{{"y", "1"}, {"a", "\xC3\xA9"}, {"", ""}});
  CHECK(read->data_begin == static_cast<i64>(8 + json.size() + 3));
  CHECK(read->file_bytes() == static_cast<i64>(file.size()));
}

TEST_CASE("rank 0, empty tensors between others, packed types and names beyond ASCII are legal") {
  CHECK(header_fault("{" + entry("s", "BF16", "", "0,2") + "}", "12") == "none");
  CHECK(header_fault("{" + entry("b", "U8", "2", "0,2") + "," + entry("e", "F64", "0,9", "2,2") + "," +
                         entry("c", "U8", "0", "0,0") + "}",
                     "12") == "none");
  CHECK(header_fault("{" + entry("p", "F4", "3,4", "0,6") + "," + entry("q", "F6_E2M3", "4", "6,9") + "}",
                     "123456789") == "none");
  CHECK(header_fault("{" + entry("\xE4\xB8\xAD\\u00e9", "U8", "1", "0,1") + "}", "1") == "none");
  CHECK(header_fault("{" + entry("", "U8", "1", "0,1") + "," + entry("\\u0000", "U8", "1", "1,2") + "}", "12") ==
        "none");
  CHECK(header_fault("{}") == "none");
  CHECK(header_fault(" \n{}") == "header_not_object");
  CHECK(header_fault("{ \"a\" :\t{\"dtype\":\"U8\",\n\"shape\":[ 1 ],\"data_offsets\":[0 , 1]}\r}  ", "1") == "none");
  CHECK(header_fault(R"({"a":{"dtype":"U8","shape":[0,4611686018427387904],"data_offsets":[0,0]}})") == "none");
}

TEST_CASE("each way of being malformed has its name") {
  const auto field = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return header_fault("{\"a\":{\"dtype\":"s.append(dtype)
                            .append(",\"shape\":")
                            .append(shape)
                            .append(",\"data_offsets\":")
                            .append(offsets)
                            .append("}}"),
                        "1");
  };
  CHECK(field("\"U8\"", "[1]", "[0,1]") == "none");
  CHECK(field("8", "[1]", "[0,1]") == "unknown_dtype");
  CHECK(field("\"u8\"", "[1]", "[0,1]") == "unknown_dtype");
  CHECK(field("[\"U8\"]", "[1]", "[0,1]") == "unknown_dtype");
  CHECK(field("null", "[1]", "[0,1]") == "unknown_dtype");
  for (const char* shape :
       {"1", "\"1\"", "[\"1\"]", "[-1]", "[-0]", "[1.0]", "[1e0]", "[null]", "[true]", "[[1]]", "[{}]", "{}", "null"}) {
    CAPTURE(shape);
    CHECK(field("\"U8\"", shape, "[0,1]") == "bad_shape");
  }
  for (const char* offsets : {"0", "\"01\"", "[]", "[0]", "[0,1,2]", "[-1,0]", "[0,-1]", "[0.0,1]", "[0,1e0]",
                              "[null,1]", "[\"0\",1]", "[[0],1]", "[0,{}]", "{}", "null", "[1,0]"}) {
    CAPTURE(offsets);
    CHECK(field("\"U8\"", "[1]", offsets) == "bad_offsets");
  }
  CHECK(field("\"U8\"", "[18446744073709551616]", "[0,1]") == "size_overflow");
  CHECK(field("\"U8\"", "[1]", "[0,18446744073709551616]") == "out_of_range");
  CHECK(field("\"U8\"", "[1]", "[0,9223372036854775807]") == "out_of_range");
  CHECK(field("\"F4\"", "[1]", "[0,1]") == "misaligned");
  CHECK(field("\"F4\"", "[3]", "[0,1]") == "misaligned");
  CHECK(field("\"BF16\"", "[1]", "[0,1]") == "size_mismatch");
  CHECK(field("\"U8\"", "[1]", "[0,2]") == "out_of_range");
  CHECK(field("\"U8\"", "[0]", "[1,1]") == "hole");
  CHECK(field("\"U8\"", "[0]", "[0,0]") == "trailing_bytes");
  CHECK(header_fault("{}", "1") == "trailing_bytes");

  CHECK(header_fault("") == "header_not_object");
  CHECK(header_fault("[]") == "header_not_object");
  CHECK(header_fault("\xEF\xBB\xBF{}") == "header_not_object");
  CHECK(header_fault("{") == "bad_json");
  CHECK(header_fault("{}{}") == "bad_json");
  CHECK(header_fault("{}\n") == "bad_json");
  CHECK(header_fault("{}\t ") == "bad_json");
  CHECK(header_fault("{} x ") == "bad_json");
  CHECK(header_fault("{\"a\":{},}") == "missing_field");
  CHECK(header_fault("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},}", "1") == "bad_json");
  CHECK(header_fault("{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}", "1") == "bad_json");
  CHECK(header_fault("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":NaN}}", "1") == "bad_json");
  CHECK(header_fault("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "1") == "missing_field");
  CHECK(header_fault("{\"a\":1}") == "bad_entry");
  CHECK(header_fault("{\"a\":[\"U8\",[1],[0,1]]}", "1") == "bad_entry");
  CHECK(header_fault("{\"a\":null}") == "bad_entry");
  CHECK(header_fault("{\"__metadata__\":null}") == "bad_metadata");
  CHECK(header_fault("{\"__metadata__\":[]}") == "bad_metadata");
  CHECK(header_fault("{\"__metadata__\":{\"a\":1}}") == "bad_metadata");
  CHECK(header_fault("{\"__metadata__\":{\"a\":{}}}") == "bad_metadata");
  CHECK(header_fault("{\"__metadata__\":{\"a\":null}}") == "bad_metadata");
  CHECK(header_fault("{\"__metadata__\":{},\"__metadata__\":{}}") == "duplicate_key");
  CHECK(header_fault("{\"__metadata__\":{\"a\":\"\",\"\\u0061\":\"\"}}") == "duplicate_key");
  CHECK(header_fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"shape":[1]}})", "1") == "duplicate_key");
  CHECK(header_fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1,"x":2}})", "1") == "none");
  CHECK(header_fault("{\"\xFF\":{}}") == "invalid_utf8");
  CHECK(header_fault("{\"a\\udc00\":{}}") == "invalid_utf8");
  CHECK(header_fault("{\"__metadata__\":{\"k\":\"\xC0\x80\"}}") == "invalid_utf8");
}

TEST_CASE("a range that another covers, equals or leaves open is refused") {
  const auto two = [](std::string_view first, std::string_view second) {
    std::string json = "{\"a\":{\"dtype\":\"U8\",\"shape\":[";
    const auto size = [](std::string_view range) { return std::to_string(range[2] - range[0]); };
    json.append(size(first))
        .append("],\"data_offsets\":[")
        .append(first)
        .append("]},\"b\":{\"dtype\":\"U8\",\"shape\":[");
    return header_fault(json.append(size(second)).append("],\"data_offsets\":[").append(second).append("]}}"), "1234");
  };
  CHECK(two("0,2", "2,4") == "none");
  CHECK(two("2,4", "0,2") == "none");
  CHECK(two("0,4", "4,4") == "none");
  CHECK(two("0,4", "0,0") == "none");
  CHECK(two("0,4", "0,4") == "overlap");
  CHECK(two("0,4", "1,1") == "overlap");
  CHECK(two("0,4", "1,3") == "overlap");
  CHECK(two("0,3", "2,4") == "overlap");
  CHECK(two("0,1", "2,4") == "hole");
  CHECK(two("1,2", "2,4") == "hole");
  CHECK(two("0,1", "1,3") == "trailing_bytes");
}

TEST_CASE("lengths at their limits are judged in 64 bits") {
  const auto length = [](std::uint64_t value, std::size_t rest) {
    std::string file = io_test::file_of("", "");
    for (unsigned i = 0; i < 8; ++i) file[i] = static_cast<char>(value >> (8 * i) & 0xFF);
    return fault_of(file.append(rest, ' '));
  };
  CHECK(length(100'000'000, 0) == "header_past_end");
  CHECK(length(100'000'001, 0) == "header_too_large");
  CHECK(length(~std::uint64_t{0}, 8) == "header_too_large");
  CHECK(length(~std::uint64_t{0} - 7, 8) == "header_too_large");
  CHECK(length(std::uint64_t{1} << 63, 8) == "header_too_large");
  CHECK(length(9, 8) == "header_past_end");
  CHECK(length(8, 8) == "header_not_object");
  for (std::size_t size = 0; size < 8; ++size) CHECK(fault_of(std::string(size, '\0')) == "header_too_small");
}

TEST_CASE("messages name the tensor, the file and both numbers") {
  CHECK(message(R"({"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", "1234") ==
        "w: the bytes are not as many as dtype and shape say in m.safetensors: got 4, expected 4000000");
  CHECK(message(R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "1234") ==
        "w: the bytes end behind the end of the data in m.safetensors: got 8, expected 4");
  CHECK(message(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F9"}})", "1") ==
        "w: the dtype is unknown (F9) in m.safetensors");
  CHECK(message("{}  ", "12") == "m.safetensors: the file's last bytes belong to no tensor: got 14, expected 12");
  CHECK(message("{\"w\":{\"dtype\":}}") ==
        "w: the header is not JSON padded with spaces (Invalid value. at byte 22) in m.safetensors");
}

TEST_CASE("a header costs memory of its own order: depth, rank and claims are bounded") {
  const auto repeat = [](std::string_view part, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text.append(part);
    return text;
  };
  CHECK(header_fault("{\"a\":{\"x\":" + repeat("[", 1 << 20)) == "bad_json");
  CHECK(header_fault("{\"a\":{\"x\":" + repeat("{\"y\":", 1 << 20)) == "bad_json");
  CHECK(header_fault(repeat("{\"a\":", 1 << 20)) == "bad_json");
  const auto ranked = [&](std::size_t rank) {
    return header_fault("{\"a\":{\"dtype\":\"U8\",\"shape\":[1" + repeat(",1", rank - 1) + "],\"data_offsets\":[0,1]}}",
                        "1");
  };
  CHECK(ranked(64) == "none");
  CHECK(ranked(65) == "bad_shape");
  CHECK(ranked(1 << 20) == "bad_shape");
}
