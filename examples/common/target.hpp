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

/// Messages name `target` where `path` is a temporary for it.
inline void write_text(const std::filesystem::path& path, std::string_view text, const std::string& target = {}) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) refuse("{}: cannot be written: {}", target.empty() ? path.string() : target, std::strerror(errno));
}

/// A report over what it reports on would destroy that.
inline void expect_apart_from(std::string_view option, const std::string& report, const std::string& input) {
  if (!report.empty() && report != "-" && fp8wire::lies_within(report, input))
    misuse("{} {}: would be written over INPUT {}", option, report, input);
}
/// Nor can two reports have one place.
inline void expect_two_places(std::string_view option, const std::string& report, std::string_view other,
                              const std::string& other_report) {
  if (report.empty() || other_report.empty()) return;
  if (report == other_report || (report != "-" && other_report != "-" && fp8wire::lies_within(report, other_report)))
    misuse("{} {} and {} {}: one place for two reports", option, report, other, other_report);
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

/// A report for an option's FILE: its place is claimed at once, it is complete on the disk with write(), and under its
/// name with commit().
class report_file {
 public:
  report_file() = default;
  explicit report_file(const std::string& path) : path_(path) {
    if (path.empty() || path == "-") return;
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) refuse("{}: is a folder, and a report is a file", path);
    // A device or a pipe has no place beside it.
    if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) {
      if (::access(path.c_str(), W_OK) != 0) refuse("{}: cannot be written: {}", path, std::strerror(errno));
      return;
    }
    file_ = must(fp8wire::atomic_output::file(path, fp8wire::existing::replace));
    write_text(file_.path(), "", path);
  }
  report_file(const std::string& path, std::string_view text) : report_file(path) { write(text); }

  void write(std::string_view text) {
    if (path_ == "-") later_ = text;
    else if (!path_.empty()) write_text(file_.path().empty() ? path_ : file_.path(), text, path_);
  }
  /// Standard output gets its report here too, since what was printed cannot be taken back.
  void commit() {
    if (!file_.path().empty()) must(file_.commit());
    print(later_);
  }

 private:
  std::string path_;
  fp8wire::atomic_output file_;
  std::string later_;
};

}  // namespace programs
#endif
