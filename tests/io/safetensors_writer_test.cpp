// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/safetensors.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

#include "support.hpp"

namespace {
using fp8wire::dtype;
using fp8wire::errc;
using fp8wire::i64;
using fp8wire::lay_out_safetensors;
using fp8wire::tensor_spec;

errc refused(std::vector<tensor_spec> tensors, fp8wire::safetensors_metadata metadata = {}) {
  return lay_out_safetensors(std::move(tensors), std::move(metadata), "f").error().code;
}
}  // namespace

TEST_CASE("heads equal those of the safetensors package byte for byte, whatever the order of the input") {
  int seen = 0;
  for (const auto& one : io_test::vectors("safetensors_golden.json")) {
    std::vector<tensor_spec> specs;
    for (const auto& tensor : io_test::member(one, "tensors").items()) {
      tensor_spec spec;
      spec.name = tensor.items()[0].text();
      REQUIRE(fp8wire::parse_dtype(tensor.items()[1].text(), spec.dtype));
      for (const auto& extent : tensor.items()[2].items()) REQUIRE(extent.to_integer(spec.shape.emplace_back()));
      specs.push_back(spec);
    }
    fp8wire::safetensors_metadata metadata;
    const auto& object = io_test::member(one, "metadata");
    for (std::size_t i = 0; i < object.keys().size(); ++i)
      metadata.emplace_back(object.keys()[i], object.items()[i].text());
    const std::string golden = io_test::from_hex(io_test::member(one, "head_hex").text());
    CAPTURE(golden);
    for (int turn = 0; turn < 2; ++turn) {
      const auto made = lay_out_safetensors(specs, metadata, "f");
      REQUIRE(made.ok());
      CHECK(made->head == golden);
      CHECK(made->head.size() % 8 == 0);
      CHECK(made->header.data_begin == static_cast<i64>(golden.size()));
      std::reverse(specs.begin(), specs.end());
    }
    ++seen;
  }
  CHECK(seen == 12);
}

TEST_CASE("the two worked examples lie where the format's description says") {
  const auto block = lay_out_safetensors({{"l.weight", dtype::f8_e4m3, {130, 256}},
                                          {"l.weight_scale_inv", dtype::f32, {2, 2}},
                                          {"l.bias", dtype::bf16, {130}}},
                                         {{"format", "pt"}}, "f");
  REQUIRE(block.ok());
  CHECK(block->header.data_begin == 256);
  CHECK(block->header.file_bytes() == 33812);
  CHECK(block->header.find("l.bias")->begin == 16);
  CHECK(block->header.find("l.weight")->begin == 276);
  const auto mx = lay_out_safetensors({{"l.weight", dtype::f8_e4m3, {3, 64}},
                                       {"l.weight_scale", dtype::uint8, {3, 2}},
                                       {"m.weight_scale", dtype::f8_e8m0, {3, 2}}},
                                      {}, "f");
  REQUIRE(mx.ok());
  CHECK(mx->header.data_begin == 224);
  CHECK(mx->header.file_bytes() == 428);
  CHECK(mx->header.find("m.weight_scale")->begin == 0);
  CHECK(mx->header.find("l.weight_scale")->begin == 198);
}

TEST_CASE("what is laid out is what a reader finds") {
  const auto made = lay_out_safetensors({{"b", dtype::uint8, {2}}, {"a", dtype::f32, {}}, {"none", dtype::f64, {0}}},
                                        {{"k", "v"}}, "f");
  REQUIRE(made.ok());
  std::string file = made->head;
  file.resize(static_cast<std::size_t>(made->header.file_bytes()), 'x');
  const auto read = fp8wire::read_safetensors(io_test::bytes_of(file), "f");
  REQUIRE(read.ok());
  CHECK(read->tensors == made->header.tensors);
  CHECK(read->metadata == made->header.metadata);
  CHECK(read->data_begin == made->header.data_begin);
}

TEST_CASE("sizes beyond 4 GiB are exact and those beyond 63 bits are refused") {
  const auto made = lay_out_safetensors({{"a", dtype::f32, {i64{1} << 31, 3}}, {"b", dtype::uint8, {5}}}, {}, "f");
  REQUIRE(made.ok());
  CHECK(made->header.find("b")->begin == i64{3} << 33);
  CHECK(made->header.file_bytes() == made->header.data_begin + (i64{3} << 33) + 5);
  CHECK(refused({{"a", dtype::f32, {i64{1} << 40, i64{1} << 40}}}) == errc::overflow);
  CHECK(refused({{"a", dtype::uint8, {-1}}}) == errc::overflow);
  CHECK(refused({{"a", dtype::f4, {3}}}) == errc::overflow);
  std::vector<tensor_spec> many;  // each fits, their sum does not
  for (int i = 0; i < 9; ++i) many.push_back({std::to_string(i), dtype::uint8, {i64{1} << 59, 1}});
  CHECK(refused(many) == errc::ok);
  for (int i = 9; i < 17; ++i) many.push_back({std::to_string(i), dtype::uint8, {i64{1} << 59, 1}});
  CHECK(refused(many) == errc::overflow);
}

TEST_CASE("what no reader would take is not written") {
  CHECK(refused({{"a", dtype::uint8, {1}}, {"a", dtype::uint8, {1}}}) == errc::duplicate);
  CHECK(refused({{"a", dtype::uint8, {1}}, {"a", dtype::f32, {1}}}) == errc::duplicate);
  CHECK(refused({}, {{"k", "1"}, {"k", "2"}}) == errc::duplicate);
  CHECK(refused({{"__metadata__", dtype::uint8, {1}}}) == errc::bad_header);
  CHECK(refused({{"\xFF", dtype::uint8, {1}}}) == errc::bad_header);
  CHECK(refused({}, {{"k", "\xC3"}}) == errc::bad_header);
  CHECK(refused({{"a", dtype::uint8, std::vector<i64>(64, 1)}}) == errc::ok);
  CHECK(refused({{"a", dtype::uint8, std::vector<i64>(65, 1)}}) == errc::wrong_shape);
}

TEST_CASE("a header above the limit of the format is refused with both numbers") {
  const auto value = [](std::size_t size) { return fp8wire::safetensors_metadata{{"", std::string(size, 'v')}}; };
  const std::size_t frame = std::string_view(R"({"__metadata__":{"":""}})").size();
  const auto full = lay_out_safetensors({}, value(100'000'000 - frame), "f");
  REQUIRE(full.ok());
  CHECK(full->head.size() == 100'000'008);
  CHECK(fp8wire::read_safetensors(io_test::bytes_of(full->head), "f").ok());
  const auto over = lay_out_safetensors({}, value(100'000'001 - frame), "f");
  CHECK(over.error().message() == "f: header is longer than the format allows: got 100000008, expected 100000000");
}
