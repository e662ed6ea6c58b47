// SPDX-License-Identifier: Apache-2.0
/// checkpoint-engine's buckets: two halves of one IPC buffer, tensors at multiples of 256 bytes, offsets on the wire.
#ifndef FP8WIRE_WIRE_FORMS_CHECKPOINT_ENGINE_HPP
#define FP8WIRE_WIRE_FORMS_CHECKPOINT_ENGINE_HPP
#include <fp8wire/wire/forms/form.hpp>

FP8WIRE_ABI_BEGIN
namespace forms {

inline constexpr u64 bucket_alignment = 256;

/// One bucket a buffer of the plan, each in its half: number g at (g % 2) * bucket_bytes of the IPC buffer. The
/// metadata of a bucket is rows_of(), whose offsets count from the IPC buffer's beginning, as the worker wants them.
/// The worker loads bucket by bucket and calls its post hook once at the end; it does not ask whether all tensors came:
/// compare manifests before and count arrivals (conditions/arrivals.hpp).
/// Errors: capacity (C7) for a buffer that is larger than a bucket; unsupported for cut pairs; bad_argument.
/// Source: checkpoint-engine checkpoint_engine/ps.py:604-888, worker.py:35-123 at 59a3c4f.
inline result<placement> checkpoint_buckets(const manifest& update, const plan& wire, u64 bucket_bytes) {
  if (bucket_bytes == 0 || bucket_bytes % bucket_alignment != 0)
    return make_error(errc::bad_argument, "bucket_bytes", "must be a multiple of 256", static_cast<i64>(bucket_bytes),
                      static_cast<i64>(bucket_alignment));
  auto made = aligned(update, wire, bucket_alignment);
  if (!made) return made;
  for (placed_tensor& one : made->tensors) {
    if (made->buffer_bytes[one.buffer] > bucket_bytes)
      return make_error(errc::capacity, update.entries()[one.entry].name, "and its unit do not fit a bucket",
                        static_cast<i64>(made->buffer_bytes[one.buffer]), static_cast<i64>(bucket_bytes),
                        condition::c7_transport);
    one.offset += one.buffer % 2 * bucket_bytes;
  }
  // Sizes count from the IPC buffer's beginning, too.
  for (std::size_t b = 0; b < made->buffer_bytes.size(); ++b) made->buffer_bytes[b] += b % 2 * bucket_bytes;
  return made;
}

}  // namespace forms
FP8WIRE_ABI_END
#endif
