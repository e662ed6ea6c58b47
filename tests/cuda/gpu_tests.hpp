// SPDX-License-Identifier: Apache-2.0
/// Runs tests on the GPU that there is, and says SKIP and why, exit code 77, where there is none.
#ifndef FP8WIRE_TESTS_CUDA_GPU_TESTS_HPP
#define FP8WIRE_TESTS_CUDA_GPU_TESTS_HPP
#include <cuda_runtime.h>

#include <cstdio>
#include <exception>

/// body(test) calls test(name, function) for every test; a function fails by throwing. Returns the exit code.
template <class Body> int run_gpu_tests(const Body& body) {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("SKIP: no GPU: %s\n", code == cudaSuccess ? "no device" : cudaGetErrorString(code));
    return 77;
  }
  int failed = 0;
  body([&](const char* name, const auto& test) {
    try {
      test();
      std::printf("ok   %s\n", name);
    } catch (const std::exception& wrong) {
      std::printf("FAIL %s: %s\n", name, wrong.what());
      ++failed;
    }
  });
  std::printf("%d failed\n", failed);
  return failed == 0 ? 0 : 1;
}

#endif
