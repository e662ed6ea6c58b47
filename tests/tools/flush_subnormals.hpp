// SPDX-License-Identifier: Apache-2.0
/// Sets FTZ and DAZ for this thread, as a process with -ffast-math somewhere in it has them.
#ifndef FP8WIRE_TESTS_TOOLS_FLUSH_SUBNORMALS_HPP
#define FP8WIRE_TESTS_TOOLS_FLUSH_SUBNORMALS_HPP
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

inline void flush_subnormals() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined(__aarch64__)
  std::uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" : : "r"(control | (std::uint64_t{1} << 24)));
#endif
}

#endif
