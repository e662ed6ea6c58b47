// SPDX-License-Identifier: Apache-2.0
/// How many times this process has asked the heap for memory.
#ifndef FP8WIRE_EXAMPLES_REFIT_ALLOCATIONS_HPP
#define FP8WIRE_EXAMPLES_REFIT_ALLOCATIONS_HPP

namespace programs {
/// Calls of operator new so far, in any thread (allocations.cpp replaces it).
unsigned long long allocations() noexcept;
}  // namespace programs
#endif
