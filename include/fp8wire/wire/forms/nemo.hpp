// SPDX-License-Identifier: Apache-2.0
/// NeMo-RL's two forms: groups of names over CUDA IPC, and packed broadcasts that both ends cut by themselves.
#ifndef FP8WIRE_WIRE_FORMS_NEMO_HPP
#define FP8WIRE_WIRE_FORMS_NEMO_HPP
#include <fp8wire/wire/forms/form.hpp>

FP8WIRE_ABI_BEGIN
namespace forms {

inline constexpr u64 ipc_alignment = 512;

/// One IPC message: a buffer, the names in it, the bytes used. Offsets do not travel: the reader makes them from the
/// names and its state_dict_info, each tensor padded to 512 bytes.
struct ipc_group {
  std::vector<std::string> names;
  u64 used = 0;
};

/// One group a buffer of the plan. `half_bytes`: half of the consumer's ping-pong buffer; a group that is larger is a
/// solo group, and NeMo gives one tensor at a time a buffer of its own: with split_units::refuse such a unit is
/// refused.
/// Errors: capacity (C4) naming the unit; unsupported for cut pairs.
/// Source: NeMo-RL nemo_rl/models/policy/utils.py:361-549 at 7ea279a.
inline result<placement> ipc_groups(const manifest& update, const plan& wire, u64 half_bytes,
                                    split_units units = split_units::refuse) {
  auto made = aligned(update, wire, ipc_alignment);
  if (!made) return made;
  placement fitting;
  for (std::size_t i = 0; i < made->tensors.size();) {
    const u32 buffer = made->tensors[i].buffer;
    std::size_t end = i;
    while (end < made->tensors.size() && made->tensors[end].buffer == buffer) ++end;
    const bool solo = made->buffer_bytes[buffer] > half_bytes;
    if (solo && end - i > 1 && units == split_units::refuse)
      return make_error(errc::capacity, update.entries()[made->tensors[i].entry].name,
                        "and what comes with it is larger than half of the consumer's buffer",
                        static_cast<i64>(made->buffer_bytes[buffer]), static_cast<i64>(half_bytes),
                        condition::c4_atomic_pairs);
    for (std::size_t first = i; i < end; ++i) {
      // A tensor that does not fit, or that follows one, begins a group.
      const u64 bytes = round_up(made->tensors[i].bytes, ipc_alignment);
      const bool fits =
          i != first && fitting.buffer_bytes.back() <= half_bytes && bytes <= half_bytes - fitting.buffer_bytes.back();
      if (i == first || (solo && !fits)) fitting.buffer_bytes.push_back(0);
      placed_tensor one = made->tensors[i];
      one.buffer = static_cast<u32>(fitting.buffer_bytes.size() - 1);
      one.offset = fitting.buffer_bytes.back();
      fitting.tensors.push_back(one);
      fitting.buffer_bytes.back() += bytes;
    }
  }
  return fitting;
}

/// What is sent beside a group's buffer.
inline ipc_group group_of(const manifest& update, const placement& where, u32 buffer) {
  ipc_group made;
  for (const placed_tensor& one : where.tensors)
    if (one.buffer == buffer) made.names.push_back(update.entries()[one.entry].name);
  made.used = where.buffer_bytes[buffer];
  return made;
}

/// The reader's half: rows from names and the manifest that it expects. NeMo's own check is that the offsets end at
/// `used`; it does not see two dtypes of one size, so the manifests must have been compared before (wire/compare.hpp).
/// Errors: unexpected, duplicate (C3); wrong_size (C7).
inline result<std::vector<row>> rows_of(const manifest& expected, const ipc_group& group) {
  std::vector<row> made;
  u64 offset = 0;
  for (const std::string& name : group.names) {
    const i64 found = expected.find(name);
    if (found < 0) return make_error(errc::unexpected, name, "is not in the manifest", condition::c3_complete_pairs);
    for (const row& one : made)
      if (one.name == name)
        return make_error(errc::duplicate, name, "stands twice in one group", condition::c3_complete_pairs);
    const manifest_entry& entry = expected.entries()[static_cast<std::size_t>(found)];
    made.push_back({entry.name, entry.dtype, entry.shape, offset, entry.bytes});
    offset += round_up(entry.bytes, ipc_alignment);
  }
  if (offset != group.used)
    return make_error(errc::wrong_size, "group", "its tensors do not fill it", static_cast<i64>(group.used),
                      static_cast<i64>(offset), condition::c7_transport);
  return made;
}

/// Packed broadcasts as NeMo's consumers cut them: tensors in manifest order, without padding, a buffer closed behind
/// the tensor that takes it over `threshold`. Nearly every such boundary lies between a weight and its scale, so that
/// split_units::refuse refuses nearly every update of more than one buffer: feed existing consumers with `accept`, and
/// only those that finalize once at the end.
/// The consumer must have the same threshold, and nothing in the form says it: send it, or fix it on both ends.
/// Errors: bad_argument for a threshold of 0; plan_mismatch (C4).
/// Source: NeMo-RL nemo_rl/utils/packed_tensor.py:39-256 at 7ea279a.
inline result<placement> packed_broadcast(const manifest& update, u64 threshold,
                                          split_units units = split_units::refuse) {
  if (threshold == 0) return make_error(errc::bad_argument, "threshold", "must be above zero", 0, 1);
  placement made;
  bool open = false;
  for (u32 e = 0; e < update.entries().size(); ++e) {
    if (!open) made.buffer_bytes.push_back(0);
    const u64 bytes = update.entries()[e].bytes;
    made.tensors.push_back({e, static_cast<u32>(made.buffer_bytes.size() - 1), made.buffer_bytes.back(), bytes});
    made.buffer_bytes.back() += bytes;
    open = made.buffer_bytes.back() <= threshold;
  }
  if (units == split_units::refuse)
    if (error wrong = check_units(update, made)) return wrong;
  return made;
}

/// The safe rule: the buffers of a plan, which both ends made and compared, packed without padding. For consumers that
/// take their boundaries from a plan. Errors: unsupported for cut pairs.
inline result<placement> packed_broadcast(const manifest& update, const plan& wire) {
  return aligned(update, wire, 1, false);
}

/// The reader's half of both: judges the size of buffer `buffer` of a placement that it made by itself, then see(row,
/// bytes) for each tensor. The bytes may lie at any offset: copy them, as NeMo's consumer clones what it cannot view.
/// Errors: wrong_size (C7) where the ends cut differently.
template <class See>
error read_packed(const manifest& expected, const placement& where, u32 buffer, std::span<const std::byte> received,
                  const See& see) {
  const u64 wanted = buffer < where.buffer_bytes.size() ? where.buffer_bytes[buffer] : 0;
  if (received.size() != wanted)
    return make_error(errc::wrong_size, "buffer " + std::to_string(buffer), "the two ends cut the update differently",
                      static_cast<i64>(received.size()), static_cast<i64>(wanted), condition::c7_transport);
  for (const row& one : rows_of(expected, where, buffer)) {
    if (error wrong = check_row(one, received, false)) return wrong;
    if (error wrong =
            see(one, received.subspan(static_cast<std::size_t>(one.offset), static_cast<std::size_t>(one.bytes))))
      return wrong;
  }
  return {};
}

}  // namespace forms
FP8WIRE_ABI_END
#endif
