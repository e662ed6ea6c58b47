// SPDX-License-Identifier: Apache-2.0
/// Bodies as kernels, and how they are launched: on the caller's stream, without a sync, a copy or an allocation.
#ifndef FP8WIRE_CUDA_LAUNCH_CUH
#define FP8WIRE_CUDA_LAUNCH_CUH
#include <cuda_runtime_api.h>

#include <fp8wire/cuda/context.cuh>

FP8WIRE_ABI_BEGIN
namespace cuda {

namespace detail {

constexpr int resident(int wanted, bool laid) noexcept {
  if (arch >= 1200 || (laid && arch >= 1000)) return (wanted + 1) / 2;
  if (laid) return wanted - (wanted + 3) / 4;
  return arch >= 900 ? wanted : (3 * wanted + 3) / 4;
}
template <class Body> inline constexpr bool is_laid = requires { requires Body::laid; };

}  // namespace detail

/// Blocks that an SM shall hold at once, and so the registers of a thread. Bodies are cut to fit sm_90 and sm_100; with
/// software conversions, with a layout's arithmetic, and as ptxas 13.0 schedules for sm_120, that many would spill.
template <class Body>
inline constexpr int resident_blocks = detail::resident(Body::blocks_per_sm, detail::is_laid<Body>);

/// A body as device code, for kernels that give it a name of their own.
template <class Body> FP8WIRE_BODY void run(const typename Body::params& params) {
  __shared__ typename Body::template shared<context::vector_bytes> shared;
  context c;
  Body::run(c, shared, params);
}

/// A body as a kernel. Static: two libraries that hold different versions of it never share one.
template <class Body>
static __global__ void __launch_bounds__(Body::threads, resident_blocks<Body>)
    entry(const __grid_constant__ typename Body::params params) {
  run<Body>(params);
}

/// Enqueues `blocks` blocks of a body; none for no blocks. Returns before it is done.
/// Errors: cudaErrorInvalidValue beyond 2^31 - 1 blocks; those of a launch. Stream: capturable.
template <class Body>
inline cudaError_t launch(i64 blocks, const typename Body::params& params, cudaStream_t stream) noexcept {
  if (blocks == 0) return cudaSuccess;
  if (blocks < 0 || blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
  typename Body::params copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&entry<Body>), dim3(static_cast<unsigned>(blocks)),
                          dim3(Body::threads), arguments, 0, stream);
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
