// SPDX-License-Identifier: Apache-2.0
/// Memory that two processes share without a name: nothing is left behind, however they end (Linux).
///
/// A memfd and plain mmap: Boost.Interprocess maps files and named objects, and a name outlives a killed process.
#ifndef FP8WIRE_TRANSPORT_SHM_MEMORY_HPP
#define FP8WIRE_TRANSPORT_SHM_MEMORY_HPP
#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// A broken transport (C7).
inline error broken(errc code, std::string what) {
  return make_error(code, "", std::move(what), condition::c7_transport);
}
inline error broken(errc code, std::string what, u64 got, u64 expected) {
  constexpr u64 largest = 0x7FFFFFFFFFFFFFFF;  // what a peer claims may be more than an error holds
  return make_error(code, "", std::move(what), static_cast<i64>((std::min)(got, largest)), static_cast<i64>(expected),
                    condition::c7_transport);
}

/// "what: Permission denied".
inline error system_error(errc code, std::string subject, std::string what, int number) {
  return make_error(code, std::move(subject), what.append(": ").append(std::generic_category().message(number)),
                    condition::c7_transport);
}

/// Owns a file descriptor.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.number_, -1));
    return *this;
  }
  ~descriptor() { reset(); }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  void reset(int number = -1) noexcept {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }

 private:
  int number_ = -1;
};

/// Owns mapped pages.
class mapping {
 public:
  mapping() = default;
  mapping(mapping&& other) noexcept { *this = std::move(other); }
  mapping& operator=(mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  /// Errors: capacity where the address space or the kernel refuses.
  static result<mapping> map(int file, u64 bytes, int protection) {
    const std::size_t size = static_cast<std::size_t>(bytes);
    mapping made;
    void* const data = ::mmap(nullptr, size, protection, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return system_error(errc::capacity, "", "the slots cannot be mapped", errno);
    made.data_ = static_cast<std::byte*>(data);
    made.size_ = size;
    return made;
  }
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The slots: how many, how many bytes each, and the distance between two of them (whole pages).
struct slot_geometry {
  u32 slots = 0;
  u64 slot_bytes = 0, stride = 0;

  u64 total_bytes() const noexcept { return slots * stride; }
  /// Errors: bad_argument for no slots or too many, empty slots and sizes beyond 62 bits.
  static result<slot_geometry> of(u32 slots, u64 slot_bytes) {
    constexpr u64 page = 4096, largest = u64{1} << 62, most = 65536;
    if (slots == 0 || slots > most) return broken(errc::bad_argument, "slots must be 1 to 65536", slots, most);
    if (slot_bytes == 0) return broken(errc::bad_argument, "a slot has no bytes");
    if (slot_bytes > largest / slots - page)
      return broken(errc::bad_argument, "all slots do not fit 62 bits; bytes of one", slot_bytes, largest / slots);
    return slot_geometry{slots, slot_bytes, (slot_bytes + page - 1) / page * page};
  }
};

/// Bytes that the machine can give without swapping or killing, as the kernel estimates it; the largest number where it
/// does not say.
inline u64 available_memory() noexcept {
  const descriptor file(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  char room[2048];
  const ssize_t size = file ? ::read(file.get(), room, sizeof(room)) : 0;
  const std::string_view text(room, size > 0 ? static_cast<std::size_t>(size) : 0), key = "MemAvailable:";
  std::size_t at = text.find(key);
  if (at == text.npos) return ~u64{0};
  u64 kilobytes = 0;
  for (at += key.size(); at < text.size() && text[at] != 'k'; ++at)
    if (text[at] != ' ') kilobytes = 10 * kilobytes + static_cast<u64>(text[at] - '0');
  return kilobytes << 10;
}

/// Makes the memory of all slots, present and of a fixed size: a reader can then never be hit by SIGBUS.
/// Errors: capacity where memory does not suffice, said here rather than by a signal in the middle of an update.
inline result<descriptor> make_slot_memory(const slot_geometry& geometry) {
  // The kernel does not refuse: it fills memory until it has to kill somebody.
  if (const u64 available = available_memory(); geometry.total_bytes() > available)
    return broken(errc::capacity, "more shared memory for the slots than there is; bytes", geometry.total_bytes(),
                  available);
  descriptor file(::memfd_create("fp8wire", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error(errc::unsupported, "", "no shared memory", errno);
  int failed = 0;
  do failed = ::posix_fallocate(file.get(), 0, static_cast<off_t>(geometry.total_bytes()));
  while (failed == EINTR);
  if (failed != 0)
    return system_error(errc::capacity, "slots", std::to_string(geometry.total_bytes()) + " bytes of shared memory",
                        failed);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return system_error(errc::unsupported, "", "shared memory cannot be sealed", errno);
  return file;
}

/// Forbids every further writable mapping and every further seal; the caller's own mapping stays writable.
inline void forbid_writers(const descriptor& file) noexcept {
  // Kernels before 5.1 have no such seal: readers there are held to reading by their own mapping alone.
  static_cast<void>(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
  static_cast<void>(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL));
}

/// Whether a descriptor that came from a peer is memory of that size which cannot shrink under the reader.
inline error check_slot_memory(const descriptor& file, const slot_geometry& geometry) {
  struct stat status {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (::fstat(file.get(), &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return broken(errc::unexpected, "sent slots that are no sealed shared memory");
  if (static_cast<u64>(status.st_size) != geometry.total_bytes())
    return broken(errc::wrong_size, "sent slots of another size", static_cast<u64>(status.st_size),
                  geometry.total_bytes());
  return {};
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
