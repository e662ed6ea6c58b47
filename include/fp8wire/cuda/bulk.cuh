// SPDX-License-Identifier: Apache-2.0
/// MXFP8 of dense rows by bulk copies: for devices on which plain loads leave too few instructions an element.
#ifndef FP8WIRE_CUDA_BULK_CUH
#define FP8WIRE_CUDA_BULK_CUH
#include <fp8wire/cuda/quantize.cuh>
#include <fp8wire/quant/kernel/quantize_bulk.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// Enqueues one tensor of blocks of 1 x 32, as quantize does, with bulk copies (cp.async.bulk) for loads and stores. It
/// is chosen by name: bench/gpu_bench.cu tells which of the two is faster on a device.
/// Falls back to quantize where kernel::fits_bulk says no (ragged rows, gaps, addresses off 16 bytes) and on devices
/// before sm_90. Code compiled for less than sm_90 makes the same bytes without bulk copies, on any device.
/// Shapes, memory, NaN, Inf: as quantize. Errors: as quantize, and those of asking which device is current.
/// Exact: the bytes of fp8wire::quantize; no compiler flag changes them. Stream: capturable, no sync, no allocation.
template <any_recipe Recipe, class In>
cudaError_t quantize_bulk(matrix_view<const In> in, pair_view<Recipe> out, i64* status, float amax_floor,
                          cudaStream_t stream) noexcept {
  if (!detail::shapes_agree<typename Recipe::block>(in, out.codes, out.scales)) return cudaErrorInvalidValue;
  const auto task = quantize_task<Recipe>(in, out.codes, out.scales, status, amax_floor);
  int device = 0, major = 0, processors = 0;
  cudaError_t wrong = cudaGetDevice(&device);
  if (wrong == cudaSuccess) wrong = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (wrong == cudaSuccess) wrong = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (wrong != cudaSuccess) return wrong;
  if (major < 9 || !kernel::fits_bulk(task)) return quantize<Recipe>(in, out, status, amax_floor, stream);
  using body = kernel::bulk_body<kernel::bulk_task<Recipe, In>>;
  const auto run = kernel::bulk_of(task);
  const i64 pieces = ceil_div(run.count, body::threads), held = i64{processors} * body::blocks_per_sm;
  return launch<body>(pieces < held ? pieces : held, run, stream);
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
