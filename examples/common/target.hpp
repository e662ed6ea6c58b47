// SPDX-License-Identifier: Apache-2.0
/// Where a program writes: beside the target, which appears whole when everything is done.
#ifndef FP8WIRE_EXAMPLES_TARGET_HPP
#define FP8WIRE_EXAMPLES_TARGET_HPP
#include <filesystem>
#include <fstream>
#include <string>

#include "program.hpp"

namespace programs {

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) refuse("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

class target {
 public:
  target(const std::string& path, bool folder, bool force, fp8wire::i64) : path_(path) {
    if (!force && std::filesystem::exists(path)) refuse("{}: exists; --force replaces it", path);
    const std::filesystem::path full = path;
    temporary_ = (full.parent_path() / fmt::format(".{}.tmp-{}", full.filename().string(), getpid())).string();
    if (folder) std::filesystem::create_directory(temporary_);
  }
  ~target() {
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
  }
  const std::string& path() const { return temporary_; }
  void commit() {
    std::filesystem::remove_all(path_);
    std::filesystem::rename(temporary_, path_);
  }

 private:
  std::string path_, temporary_;
};

/// A report to a file, which appears whole, or to standard output.
inline void write_report(const std::string& path, std::string_view text) {
  if (path == "-") return print(text);
  target file(path, false, true, 0);
  write_text(file.path(), text);
  file.commit();
}

}  // namespace programs
#endif
