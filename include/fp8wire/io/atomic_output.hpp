// SPDX-License-Identifier: Apache-2.0
/// A file or folder that appears under its name whole, or not at all, whenever the process dies.
///
/// It is made beside its target as `.NAME.tmp-PID`, synced to disk and renamed; a folder that stands there already is
/// exchanged in one step and then deleted. What a dead process left under such a name goes when the next one begins.
#ifndef FP8WIRE_IO_ATOMIC_OUTPUT_HPP
#define FP8WIRE_IO_ATOMIC_OUTPUT_HPP
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fp8wire/io/process_age.hpp>
#include <fp8wire/io/system_error.hpp>

FP8WIRE_ABI_BEGIN

/// What happens to a target that exists.
enum class existing : u8 { refuse, replace };

namespace detail {

// Linux's numbers; the call goes past libc, of which not all have it.
inline constexpr unsigned rename_noreplace = 1, rename_exchange = 2;
inline int rename_with(const std::string& from, const std::string& to, unsigned flags) noexcept {
  return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

/// Whether this file system exchanges two names in one step; asked inside `folder`, which is empty.
inline bool can_exchange(const std::string& folder) noexcept {
  const std::string a = folder + "/a", b = folder + "/b";
  const bool made = ::mkdir(a.c_str(), 0700) == 0 && ::mkdir(b.c_str(), 0700) == 0;
  const bool exchanged = made && rename_with(a, b, rename_exchange) == 0;
  ::rmdir(a.c_str());
  ::rmdir(b.c_str());
  return exchanged;
}

/// Waits until a file or a folder's entries are on the disk.
inline error sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return system_error(path, "cannot open to sync", errno);
  const int failed = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  // Some file systems cannot sync folders and say so: there is nothing to wait for then.
  return failed == 0 || failed == EINVAL || failed == EROFS ? error{} : system_error(path, "cannot sync", failed);
}

inline error sync_tree(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::recursive_directory_iterator at(path, failed);
  for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
    std::error_code unknown;
    const fs::file_status status = at->symlink_status(unknown);
    if (status.type() != fs::file_type::regular && status.type() != fs::file_type::directory) continue;
    if (error why = sync_path(at->path().string())) return why;
  }
  if (failed) return system_error(path, "cannot list", failed.value());
  return sync_path(path);
}

/// Deletes `.NAME.tmp-PID` of processes that are gone. Failures are left to whoever needs the name.
inline void remove_leftovers(const std::filesystem::path& parent, const std::string& prefix) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::vector<std::string> found;
  fs::directory_iterator at(parent, failed);
  for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && is_left_over(at->path().string(), std::string_view(name).substr(prefix.size())))
      found.push_back(at->path().string());
  }
  for (const std::string& path : found) fs::remove_all(path, failed);
}

}  // namespace detail

/// Write to path(), then commit(). Move-only; destroyed without a commit it removes what was written.
/// Threads: none of its own; one thread at a time. A forked child that destroys its copy removes nothing.
class atomic_output {
 public:
  atomic_output() = default;
  atomic_output(atomic_output&& other) noexcept { swap(other); }
  atomic_output& operator=(atomic_output&& other) noexcept {
    atomic_output moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~atomic_output() {
    if (path_.empty() || owner_ != ::getpid()) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// For a file, to be created at path(). Refused: a target that exists unless it is a file to replace, and a folder
  /// for it that does not.
  static result<atomic_output> file(const std::string& target, existing what) { return claim(target, what, false); }
  /// For a folder: path() is an empty one. Refused as for a file; and, before any work, a folder that would have to be
  /// exchanged with the new one where the file system has no such step.
  static result<atomic_output> folder(const std::string& target, existing what) { return claim(target, what, true); }

  /// Where to write.
  const std::string& path() const noexcept { return path_; }
  /// Where it will be; links in the name that was given are resolved.
  const std::string& target() const noexcept { return target_; }

  /// Syncs everything at path() to disk and gives it its name. After an error the target is as it was, unless it was
  /// the disk that failed to write the new name down.
  error commit() {
    detail::expect_equal(path_.empty() ? 0 : 1, 1, "atomic_output: commit without an output");
    if (error why = folder_ ? detail::sync_tree(path_) : detail::sync_path(path_)) return why;
    struct stat status{};
    const bool replaces = what_ == existing::replace && ::lstat(target_.c_str(), &status) == 0;
    int failed = 0;
    if (replaces && folder_) {
      failed = detail::rename_with(path_, target_, detail::rename_exchange);
    } else if (what_ == existing::refuse) {
      failed = detail::rename_with(path_, target_, detail::rename_noreplace);
      if (failed == EINVAL || failed == ENOSYS)
        failed = ::lstat(target_.c_str(), &status) == 0 ? EEXIST : rename_plainly();
    } else {
      failed = rename_plainly();
    }
    if (failed != 0) return detail::system_error(target_, "cannot be put in place", failed);
    const std::string old = std::exchange(path_, {});
    error why = detail::sync_path(parent_of(target_).string());
    if (replaces && folder_) {
      // The new one is in place; what cannot be deleted of the old one is removed by the next run.
      std::error_code ignored;
      std::filesystem::remove_all(old, ignored);
    }
    return why;
  }

 private:
  static std::filesystem::path parent_of(const std::filesystem::path& target) {
    return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  }
  int rename_plainly() const noexcept { return std::rename(path_.c_str(), target_.c_str()) == 0 ? 0 : errno; }
  void swap(atomic_output& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(what_, other.what_);
    std::swap(folder_, other.folder_);
    std::swap(owner_, other.owner_);
  }

  static result<atomic_output> claim(std::string name, existing what, bool folder) {
    namespace fs = std::filesystem;
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    fs::path target = name;
    std::error_code failed;
    struct stat status{};
    bool there = ::lstat(name.c_str(), &status) == 0;
    if (there && S_ISLNK(status.st_mode)) {
      // What the link leads to is replaced; only beside that is the same file system.
      target = fs::canonical(target, failed);
      if (failed) return detail::system_error(name, "is a link that leads nowhere", failed.value());
      there = ::lstat(target.c_str(), &status) == 0;
    }
    const std::string last = target.filename().string();
    if (last.empty() || last == "." || last == "..")
      return make_error(errc::bad_argument, name, "is no name for an output");
    const fs::path parent = parent_of(target);
    if (!fs::is_directory(parent, failed))
      return make_error(errc::bad_file, parent.string(), "is not an existing folder");
    if (there) {
      if (what == existing::refuse) return make_error(errc::unexpected, name, "exists already");
      if (folder != S_ISDIR(status.st_mode) || (!folder && !S_ISREG(status.st_mode)))
        return make_error(errc::unexpected, name,
                          folder ? "is no folder, and only a folder can be replaced by one: remove OUTPUT first"
                                 : "is no file, and only a file can be replaced by one: remove OUTPUT first");
    }
    const std::string prefix = "." + last + ".tmp-";
    detail::remove_leftovers(parent, prefix);
    atomic_output made;
    made.target_ = target.string();
    made.what_ = what;
    made.folder_ = folder;
    made.owner_ = ::getpid();
    std::string path = (parent / (prefix + std::to_string(made.owner_))).string();
    if (!folder) {
      if (::lstat(path.c_str(), &status) == 0)
        return make_error(errc::unexpected, path, "is being written by this process already");
      made.path_ = std::move(path);
      return made;
    }
    if (::mkdir(path.c_str(), 0777) != 0) return detail::system_error(path, "cannot create", errno);
    made.path_ = std::move(path);
    if (there) {
      struct stat beside{};
      const bool same = ::lstat(made.path_.c_str(), &beside) == 0 && beside.st_dev == status.st_dev;  // no mount point
      if (!same || !detail::can_exchange(made.path_))
        return make_error(errc::unsupported, name,
                          "cannot be replaced in one step on this file system: remove OUTPUT first");
    }
    return made;
  }

  std::string path_, target_;
  existing what_ = existing::refuse;
  bool folder_ = false;
  pid_t owner_ = -1;
};

FP8WIRE_ABI_END
#endif
