// SPDX-License-Identifier: Apache-2.0
/// The numbers of the tiles that changed, dense and in order, and where each tensor's begin: CUB's select and scan.
///
/// The only header that includes CUB; nothing else in the library needs it. CUB brings a namespace ::cuda: beside this
/// header, `using namespace fp8wire` belongs into a named namespace, not at the top of a file.
#ifndef FP8WIRE_CUDA_COMPACT_CUH
#define FP8WIRE_CUDA_COMPACT_CUH
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// Enqueues the numbers of the set flags, ascending, and how many there are. flags: a byte each, as compare's tiles.
/// numbers: room for all `count`; total: one word; all device memory.
/// temporary: null to ask for `bytes`, which launches nothing; then device memory of that many bytes, not shared with
/// other work until this is done. Errors: CUB's. Stream: capturable, no sync, no allocation.
inline cudaError_t compact(void* temporary, std::size_t& bytes, const u8* flags, i64 count, i64* numbers, i64* total,
                           cudaStream_t stream) noexcept {
  if (count < 0) return cudaErrorInvalidValue;
  return cub::DeviceSelect::Flagged(temporary, bytes, thrust::counting_iterator<i64>(0), flags, numbers, total, count,
                                    stream);
}

/// Enqueues offsets[i] = sizes[0] + ... + sizes[i - 1], for `count` of them: where each part of a batch begins.
/// Device memory; offsets may be sizes. temporary, bytes, errors, stream: as compact.
inline cudaError_t offsets_of(void* temporary, std::size_t& bytes, const i64* sizes, i64 count, i64* offsets,
                              cudaStream_t stream) noexcept {
  if (count < 0) return cudaErrorInvalidValue;
  return cub::DeviceScan::ExclusiveSum(temporary, bytes, sizes, offsets, count, stream);
}

}  // namespace cuda
FP8WIRE_ABI_END
#endif
