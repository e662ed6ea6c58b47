// SPDX-License-Identifier: Apache-2.0
// The memory of samples.hpp for kernels that run on the CPU.
#ifndef FP8WIRE_TESTS_CUDA_HOST_MEMORY_HPP
#define FP8WIRE_TESTS_CUDA_HOST_MEMORY_HPP
#include <new>

#include "samples.hpp"

namespace samples {

inline void* allocate(std::size_t bytes) { return ::operator new(bytes, std::align_val_t{256}); }
inline void release(void* data) noexcept { ::operator delete(data, std::align_val_t{256}); }

}  // namespace samples
#endif
