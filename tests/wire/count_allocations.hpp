// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in the program that includes it, to count every allocation of every thread.
#ifndef FP8WIRE_TESTS_WIRE_COUNT_ALLOCATIONS_HPP
#define FP8WIRE_TESTS_WIRE_COUNT_ALLOCATIONS_HPP
#include <atomic>
#include <cstdlib>
#include <new>

inline std::atomic<std::size_t> allocations{0};

// Not inlined, or g++ pairs the free() inside delete with a new expression and warns.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++allocations;
  if (void* made = std::malloc(size == 0 ? 1 : size)) return made;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const std::size_t align = static_cast<std::size_t>(alignment);
  if (void* made = std::aligned_alloc(align, (size + align) / align * align)) return made;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif
