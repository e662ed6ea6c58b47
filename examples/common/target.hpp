// SPDX-License-Identifier: Apache-2.0
/// Where a program writes: outputs that appear whole or not at all, reports among them.
#ifndef FP8WIRE_EXAMPLES_TARGET_HPP
#define FP8WIRE_EXAMPLES_TARGET_HPP
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fp8wire/io/atomic_output.hpp>
#include <fp8wire/io/output_checks.hpp>

#include "program.hpp"

namespace programs {

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) refuse("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

/// A report over what it reports on would destroy that.
inline void expect_apart_from(std::string_view option, const std::string& report, const std::string& input) {
  if (!report.empty() && report != "-" && fp8wire::lies_within(report, input))
    misuse("{} {}: would be written over INPUT {}", option, report, input);
}

/// Claims the place beside OUTPUT, with room for so many bytes, before any work.
inline fp8wire::atomic_output claim_output(const std::string& name, bool folder, bool force, fp8wire::i64 bytes) {
  const auto what = force ? fp8wire::existing::replace : fp8wire::existing::refuse;
  auto claimed = folder ? fp8wire::atomic_output::folder(name, what) : fp8wire::atomic_output::file(name, what);
  if (!claimed && claimed.error().code == fp8wire::errc::unexpected && !force)
    refuse("{}; --force replaces it", claimed.error().message());
  must(claimed.error());
  const std::string parent = std::filesystem::path(claimed->target()).parent_path().string();
  must(fp8wire::check_free_space(parent.empty() ? "." : parent, bytes));
  return std::move(claimed).value();
}

/// A report for an option's FILE: complete on the disk at once, under its name with commit().
class report_file {
 public:
  report_file() = default;
  report_file(const std::string& path, std::string_view text) {
    if (path.empty()) return;
    std::error_code unknown;
    const auto kind = std::filesystem::status(path, unknown).type();
    if (path == "-") {
      later_ = text;
    } else if (kind != std::filesystem::file_type::regular && std::filesystem::exists(path, unknown)) {
      write_text(path, text);  // a device or a pipe has no place beside it
    } else {
      file_ = must(fp8wire::atomic_output::file(path, fp8wire::existing::replace));
      write_text(file_.path(), text);
    }
  }
  /// Standard output gets its report here too, since what was printed cannot be taken back.
  void commit() {
    if (!file_.path().empty()) must(file_.commit());
    print(later_);
  }

 private:
  fp8wire::atomic_output file_;
  std::string later_;
};

}  // namespace programs
#endif
