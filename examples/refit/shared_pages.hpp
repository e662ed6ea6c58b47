// SPDX-License-Identifier: Apache-2.0
/// Memory without a name that this process shares with those it forks.
#ifndef FP8WIRE_EXAMPLES_REFIT_SHARED_PAGES_HPP
#define FP8WIRE_EXAMPLES_REFIT_SHARED_PAGES_HPP
#include <sys/mman.h>

#include <utility>

#include "../common/program.hpp"

namespace programs {

/// Zeroed pages; they live as long as any process maps them.
class shared_pages {
 public:
  shared_pages() = default;
  explicit shared_pages(std::size_t size) : size_(size) {
    if (size == 0) return;
    data_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) refuse("no shared memory of {} bytes: {}", size, std::strerror(errno));
  }
  shared_pages(shared_pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  shared_pages& operator=(shared_pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~shared_pages() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  bool empty() const noexcept { return size_ == 0; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace programs
#endif
