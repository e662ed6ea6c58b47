// SPDX-License-Identifier: Apache-2.0
// The kernels under clang's CUDA front end, host and device pass, parsed and instantiated only. What clang 14 includes
// by itself does not know CUDA 13; -nocudainc leaves it out, and what the kernels call is declared here.
#define __CUDACC__
#include <__clang_cuda_builtin_vars.h>
#include <cuda_runtime_api.h>

#include <cstdlib>

extern "C" __device__ std::size_t __cvta_generic_to_global(const void*);
extern "C" __device__ std::size_t __cvta_generic_to_shared(const void*);
__device__ unsigned atomicMax(unsigned*, unsigned);
__device__ unsigned long long atomicMin(unsigned long long*, unsigned long long);
__device__ unsigned long long atomicAdd(unsigned long long*, unsigned long long);
__device__ unsigned __shfl_sync(unsigned, unsigned, int, int = 32);
__device__ unsigned __ballot_sync(unsigned, int);
__device__ unsigned __reduce_max_sync(unsigned, unsigned);
__device__ int __syncthreads_or(int);
__device__ int __popc(unsigned);
__device__ int max(int, int);
__device__ unsigned max(unsigned, unsigned);
__device__ void __syncthreads();

#include <fp8wire/cuda/launch.cuh>

#include "kernel_list.hpp"

#define FP8WIRE_LAUNCHED(name) \
  template cudaError_t fp8wire::cuda::launch<kernels::name>(fp8wire::i64, const kernels::name::params&, cudaStream_t);
FP8WIRE_TEST_KERNELS(FP8WIRE_LAUNCHED)
