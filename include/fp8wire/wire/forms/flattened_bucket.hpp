// SPDX-License-Identifier: Apache-2.0
/// SGLang's FlattenedTensorBucket: tensors of any dtypes behind each other in one byte tensor, ranges beside it.
///
/// Its reader takes `flattened[start:end].view(dtype).reshape(shape)`, which torch refuses at an offset that the
/// dtype's size does not divide; SGLang's own packer does not pad, so that one E4M3 tensor of odd size breaks every
/// FP32 scale behind it.
#ifndef FP8WIRE_WIRE_FORMS_FLATTENED_BUCKET_HPP
#define FP8WIRE_WIRE_FORMS_FLATTENED_BUCKET_HPP
#include <fp8wire/wire/forms/form.hpp>

FP8WIRE_ABI_BEGIN
namespace forms {

/// One FlattenedTensorMetadata is {name, shape, dtype, start_idx, end_idx, numel}: a row with its end.
/// none: as SGLang packs; aligned: each tensor at a multiple of 16 bytes, which the same reader takes, since it goes by
/// start_idx alone.
enum class bucket_padding : u8 { none, aligned };

/// One bucket a buffer of the plan. Errors: wrong_offset (C7) without padding, where a tensor would lie at an offset
/// that cannot be viewed; unsupported for cut pairs and for dtypes that torch does not have.
/// Source: SGLang srt/weight_sync/tensor_bucket.py (supports_multi_dtypes).
inline result<placement> flattened_buckets(const manifest& update, const plan& wire, bucket_padding padding) {
  for (const manifest_entry& entry : update.entries())
    if (torch_name(entry.dtype).empty())
      return make_error(errc::unsupported, entry.name, "torch has no dtype " + std::string(name_of(entry.dtype)));
  auto made = aligned(update, wire, padding == bucket_padding::none ? 1 : 16, false);
  if (!made) return made;
  if (error wrong = check_placement(update, *made)) return wrong;
  return made;
}

/// The payload of per-dtype POSTs (NeMo-RL's HTTP path, SGLang without supports_multi_dtypes): the tensors of one dtype
/// of one buffer. Requests of a buffer follow each other in the order in which its dtypes first appear.
/// A request that fails leaves new codes beside old scales, so pairs are split between requests by design: with
/// split_units::refuse a buffer with a pair of two dtypes is refused.
/// Errors: plan_mismatch (C4) naming the pair; those of flattened_buckets, except offsets: one dtype never needs
/// padding. Source: NeMo-RL nemo_rl/models/policy/utils.py:671-789 at 7ea279a.
inline result<placement> dtype_posts(const manifest& update, const plan& wire,
                                     split_units pairs = split_units::refuse) {
  auto whole_buffers = flattened_buckets(update, wire, bucket_padding::aligned);
  if (!whole_buffers) return whole_buffers;
  placement made;
  for (u32 b = 0; b < whole_buffers->buffer_bytes.size(); ++b) {
    std::vector<dtype> seen;
    for (const placed_tensor& one : whole_buffers->tensors) {
      if (one.buffer != b) continue;
      const dtype type = update.entries()[one.entry].dtype;
      bool known = false;
      for (const dtype each : seen) known = known || each == type;
      if (!known) seen.push_back(type);
    }
    for (const dtype type : seen) {
      const u32 request = static_cast<u32>(made.buffer_bytes.size());
      made.buffer_bytes.push_back(0);
      for (const placed_tensor& one : whole_buffers->tensors) {
        if (one.buffer != b || update.entries()[one.entry].dtype != type) continue;
        made.tensors.push_back({one.entry, request, made.buffer_bytes.back(), one.bytes});
        made.buffer_bytes.back() += one.bytes;
      }
    }
  }
  if (pairs == split_units::refuse)
    if (error wrong = check_units(update, made)) return wrong;
  return made;
}

}  // namespace forms
FP8WIRE_ABI_END
#endif
