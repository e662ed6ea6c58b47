// SPDX-License-Identifier: Apache-2.0
#include "../fuzz/safetensors_fuzz.cpp"

#include <random>

#include "support.hpp"

namespace {

/// Files to start from: the vectors', valid and not, and the reference's own headers with their data.
std::vector<std::string> corpus() {
  std::vector<std::string> files;
  for (const auto& one : io_test::vectors("safetensors_cases.json"))
    if (io_test::member(one, "kind").text() == "safetensors")
      files.push_back(io_test::from_hex(io_test::member(io_test::member(one, "input"), "file_hex").text()));
  for (const auto& one : io_test::vectors("safetensors_golden.json")) {
    std::string file = io_test::from_hex(io_test::member(one, "head_hex").text());
    std::vector<fp8wire::tensor_spec> specs;
    fp8wire::i64 bytes = 0;
    for (const auto& tensor : io_test::member(one, "tensors").items()) {
      fp8wire::tensor_spec spec;
      REQUIRE(fp8wire::parse_dtype(tensor.items()[1].text(), spec.dtype));
      for (const auto& extent : tensor.items()[2].items()) REQUIRE(extent.to_integer(spec.shape.emplace_back()));
      bytes += fp8wire::byte_count(spec.dtype, spec.shape);
    }
    if (bytes < 5000) files.push_back(file.append(static_cast<std::size_t>(bytes), 'd'));
  }
  return files;
}

bool accepted(std::string_view file) {
  // An exact copy on the heap, so that a sanitizer sees one byte too far.
  const std::vector<std::uint8_t> copy(file.begin(), file.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  return fp8wire::read_safetensors(io_test::bytes_of(file), "f").ok();
}

class mutator {
 public:
  explicit mutator(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  void mutate(std::string& text) {
    // Digits, brackets and words of the format reach further than random bytes.
    static constexpr std::string_view words[] = {"0",
                                                 "9",
                                                 "-",
                                                 "[",
                                                 "]",
                                                 "{",
                                                 "}",
                                                 ",",
                                                 ":",
                                                 "\"",
                                                 "\\",
                                                 "\\u",
                                                 " ",
                                                 "e5",
                                                 ".5",
                                                 "null",
                                                 "true",
                                                 "\"U8\"",
                                                 "\"F4\"",
                                                 "\"shape\":[0]",
                                                 "\"data_offsets\":[0,0]",
                                                 "\"__metadata__\":{}",
                                                 "18446744073709551615",
                                                 "9223372036854775808",
                                                 "\xC3\xA9",
                                                 "\xFF"};
    for (std::size_t times = 1 + below(3); times > 0; --times) {
      const std::size_t at = below(text.size() + 1);
      switch (below(6)) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ 1u << below(8));
          break;
        case 1:
          if (at < text.size()) text[at] = static_cast<char>(below(256));
          break;
        case 2: text.insert(at, 1, static_cast<char>(below(256))); break;
        case 3: text.erase(at, 1 + below(8)); break;
        case 4: text.insert(at, words[below(std::size(words))]); break;
        default: text.insert(at, text.substr(below(text.size() + 1), below(40))); break;
      }
    }
  }

 private:
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("tens of thousands of damaged files are refused or true, never a crash") {
  const std::vector<std::string> files = corpus();
  REQUIRE(files.size() > 30);
  mutator random(20240607);
  int good = 0, bad = 0;
  for (int round = 0; round < 40000; ++round) {
    std::string file = files[random.below(files.size())];
    if (round % 4 == 0 || file.size() < 8) {
      random.mutate(file);  // the length as well: most of these end early
    } else {
      const auto length =
          static_cast<std::size_t>(static_cast<unsigned char>(file[0])) + 256 * static_cast<unsigned char>(file[1]);
      std::string header = file.substr(8, length), data = file.size() > 8 + length ? file.substr(8 + length) : "";
      random.mutate(random.below(8) == 0 ? data : header);
      file = io_test::file_of(header, data);
    }
    ++(accepted(file) ? good : bad);
  }
  CHECK(good > 500);
  CHECK(bad > 10000);
}

TEST_CASE("a file cut at any byte is refused") {
  for (const std::string& file : corpus()) {
    if (!accepted(file)) continue;
    for (std::size_t size = 0; size < file.size(); ++size)
      if (accepted(std::string_view(file).substr(0, size)))
        FAIL("accepted after " << size << " of " << file.size() << " bytes");
  }
}
