// SPDX-License-Identifier: Apache-2.0
// The kernels of kernel_list.hpp under names that the interpreter and the budgets can find.
#include <fp8wire/cuda/launch.cuh>

#include "kernel_list.hpp"

#define FP8WIRE_KERNEL(name)                                                                                          \
  extern "C" __global__ void __launch_bounds__(kernels::name::threads, fp8wire::cuda::resident_blocks<kernels::name>) \
      name(const __grid_constant__ kernels::name::params params) {                                                    \
    fp8wire::cuda::run<kernels::name>(params);                                                                        \
  }
FP8WIRE_TEST_KERNELS(FP8WIRE_KERNEL)
