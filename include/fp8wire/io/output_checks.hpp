// SPDX-License-Identifier: Apache-2.0
/// What can be asked about an output before any work: does it touch the input, and is there room.
#ifndef FP8WIRE_IO_OUTPUT_CHECKS_HPP
#define FP8WIRE_IO_OUTPUT_CHECKS_HPP
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>

#include <fp8wire/io/system_error.hpp>

FP8WIRE_ABI_BEGIN

/// Whether `path` is `outer` or lies in it, links followed; either may not exist yet.
inline bool lies_within(const std::string& path, const std::string& outer) {
  namespace fs = std::filesystem;
  const auto resolved = [](const std::string& name) {
    std::error_code failed;
    fs::path full = fs::weakly_canonical(fs::absolute(name, failed), failed);
    if (failed) full = fs::path(name).lexically_normal();
    return full.has_filename() ? full : full.parent_path();  // "out/" is "out"
  };
  const fs::path inner = resolved(path), around = resolved(outer);
  return std::mismatch(around.begin(), around.end(), inner.begin(), inner.end()).first == around.end();
}

/// Whether `bytes` more fit on the disk of an existing folder. The message has both numbers.
inline error check_free_space(const std::string& folder, i64 bytes) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return detail::system_error(folder, "cannot ask for free space", errno);
  i64 free_bytes = 0;
  const bool countless = __builtin_mul_overflow(disk.f_bavail, disk.f_frsize, &free_bytes);
  if (countless || bytes <= free_bytes) return {};
  return make_error(errc::capacity, folder, "too little free space, in bytes", free_bytes, bytes);
}

FP8WIRE_ABI_END
#endif
