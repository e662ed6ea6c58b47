// SPDX-License-Identifier: Apache-2.0
/// Files as memory: one that is read, and a new one of known size that is filled in any order.
///
/// Pages come in when they are touched and count as the process's memory until drop() gives them back, so that a
/// program can pass over a checkpoint of any size. A file that somebody shortens while it is mapped raises SIGBUS at
/// the next touch behind its new end; nothing that maps files can prevent that. Boost throws, so this header needs
/// exceptions.
#ifndef FP8WIRE_IO_MAPPED_FILE_HPP
#define FP8WIRE_IO_MAPPED_FILE_HPP
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include <fp8wire/io/system_error.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Maps a whole file that is not empty.
inline result<boost::interprocess::mapped_region> map_file(const std::string& path, boost::interprocess::mode_t mode) {
  try {
    return boost::interprocess::mapped_region(boost::interprocess::file_mapping(path.c_str(), mode), mode);
  } catch (const boost::interprocess::interprocess_exception& failure) {
    return make_error(errc::bad_file, path, std::string("cannot map: ").append(failure.what()));
  }
}

/// Gives the pages of a range back; Boost's own advise() knows the whole mapping only.
inline void drop_pages(const boost::interprocess::mapped_region& region, i64 offset, i64 bytes) noexcept {
  if (bytes <= 0) return;
  const std::size_t page = boost::interprocess::mapped_region::get_page_size();
  const std::size_t begin = static_cast<std::size_t>(offset) / page * page;
  const std::size_t end =
      (std::min)(static_cast<std::size_t>(offset) + static_cast<std::size_t>(bytes), region.get_size());
  // A page shared with a neighbour goes too: whoever still needs it reads it again from the page cache.
  if (begin < end) ::madvise(static_cast<char*>(region.get_address()) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace detail

/// A file's bytes, read-only. Move-only; spans stay good when it is moved. Threads: const calls may run concurrently.
class mapped_file {
 public:
  mapped_file() = default;  // an empty file
  /// Refused: what is no regular file, cannot be opened or mapped.
  static result<mapped_file> open(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) return detail::system_error(path, "cannot open", errno);
    // Asked before opening: opening a FIFO would wait for a writer.
    if (!S_ISREG(status.st_mode)) return make_error(errc::bad_file, path, "is not a regular file");
    mapped_file made;
    if (::access(path.c_str(), R_OK) != 0) return detail::system_error(path, "cannot open", errno);
    if (status.st_size == 0) return made;
    auto region = detail::map_file(path, boost::interprocess::read_only);
    if (!region) return region.error();
    made.region_ = std::move(region).value();
    made.region_.advise(boost::interprocess::mapped_region::advice_sequential);
    return made;
  }
  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(region_.get_address()), region_.get_size()};
  }
  /// Gives the memory of a range back; its bytes stay readable and come from the file again.
  void drop(i64 offset, i64 bytes) const noexcept { detail::drop_pages(region_, offset, bytes); }

 private:
  boost::interprocess::mapped_region region_;
};

/// A new file of fixed size, its bytes zero until they are written. Move-only; spans stay good when it is moved.
class mapped_output {
 public:
  mapped_output() = default;
  /// Refused: a path that exists, a folder that does not, and a disk without room: all of it is claimed here, since a
  /// store into a mapping has no way to say that the disk is full.
  static result<mapped_output> create(const std::string& path, i64 bytes) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return detail::system_error(path, "cannot create", errno);
    int full = 0;
    if (bytes > 0) {
      do full = ::posix_fallocate(file, 0, bytes);
      while (full == EINTR);
    }
    ::close(file);
    mapped_output made;
    if (full == 0 && bytes <= 0) return made;
    auto region = full == 0 ? detail::map_file(path, boost::interprocess::read_write)
                            : detail::system_error(path, "no room for " + std::to_string(bytes) + " bytes", full);
    if (!region) {
      ::unlink(path.c_str());
      return region.error();
    }
    made.region_ = std::move(region).value();
    return made;
  }
  std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(region_.get_address()), region_.get_size()};
  }
  /// Gives the memory of a range back; what was written stays, and the kernel writes it out in its time.
  void drop(i64 offset, i64 bytes) const noexcept { detail::drop_pages(region_, offset, bytes); }

 private:
  boost::interprocess::mapped_region region_;
};

FP8WIRE_ABI_END
#endif
