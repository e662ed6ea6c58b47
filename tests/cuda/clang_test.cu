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

#include <fp8wire/cuda/backend.cuh>

#include "kernel_list.hpp"

#define FP8WIRE_LAUNCHED(name) \
  template cudaError_t fp8wire::cuda::launch<kernels::name>(fp8wire::i64, const kernels::name::params&, cudaStream_t);
FP8WIRE_TEST_KERNELS(FP8WIRE_LAUNCHED)

// What the sender's backend launches beside them.
namespace fp8wire {
using matrix_scaled = recipe<e4m3, block<whole, whole>, rules::quotient>;
template error cuda::backend<matrix_scaled>::quantize<matrix_scaled, bf16>(const quantize_job&,
                                                                           matrix_view<const bf16>,
                                                                           pair_view<matrix_scaled>, float,
                                                                           cudaStream_t);
template error cuda::backend<presets::te_mxfp8::recipe>::quantize_into<
    presets::te_mxfp8::recipe, pair_layout<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales>, bf16>(
    const quantize_job&, matrix_view<const bf16>, u8*, std::byte*, float, cudaStream_t);
template error cuda::backend<presets::te_block_pow2::recipe>::quantize_into<
    presets::te_block_pow2::recipe, pair_layout<row_major, packed_ue8m0>, bf16>(const quantize_job&,
                                                                                matrix_view<const bf16>, u8*,
                                                                                std::byte*, float, cudaStream_t);
}  // namespace fp8wire
