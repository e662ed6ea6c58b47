// SPDX-License-Identifier: Apache-2.0
// What the tests of io/ share: vectors (read by io/json.hpp, which json_test.cpp holds to Python), files made by hand,
// a folder that goes away.
#ifndef FP8WIRE_TESTS_IO_SUPPORT_HPP
#define FP8WIRE_TESTS_IO_SUPPORT_HPP
#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include <fp8wire/io/json.hpp>

namespace io_test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE_MESSAGE(file.good(), path.string());
}

/// tests/vectors/NAME; the tests run in tests/.
inline std::vector<fp8wire::json::value> vectors(const char* name) {
  auto parsed = fp8wire::json::parse(read_file(std::filesystem::path("vectors") / name), name);
  REQUIRE_MESSAGE(parsed.ok(), parsed.error().message());
  return parsed->items();
}

/// A member that is there.
inline const fp8wire::json::value& member(const fp8wire::json::value& object, std::string_view key) {
  const fp8wire::json::value* found = object.find(key);
  REQUIRE_MESSAGE(found != nullptr, std::string(key));
  return *found;
}

inline std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return bytes;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A safetensors file with that header and that data, whatever they say.
inline std::string file_of(std::string_view header, std::string_view data = {}) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file.push_back(static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 0xFF));
  return file.append(header).append(data);
}

/// An empty folder, removed with everything in it when the test leaves.
class folder {
 public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8wire-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = std::filesystem::canonical(name);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace io_test
#endif
