// SPDX-License-Identifier: Apache-2.0
/// Where the tensors of an update lie in transport buffers, whoever decided it, and what must hold for it.
#ifndef FP8WIRE_WIRE_PLACEMENT_HPP
#define FP8WIRE_WIRE_PLACEMENT_HPP
#include <fp8wire/wire/plan.hpp>

FP8WIRE_ABI_BEGIN

/// One tensor, or a piece of it, in one buffer.
struct placed_tensor {
  u32 entry = 0;   // index into manifest::entries()
  u32 buffer = 0;
  u64 offset = 0;  // in the buffer
  u64 bytes = 0;
  bool operator==(const placed_tensor&) const = default;
};

/// Buffer after buffer, in the order of the wire. A plan is one; the forms of other frameworks (wire/forms) are others.
struct placement {
  std::vector<placed_tensor> tensors;
  std::vector<u64> buffer_bytes;  // one a buffer
  bool operator==(const placement&) const = default;
};

/// A plan as a placement. Cost: linear in the pieces.
inline placement placement_of(const plan& wire) {
  placement made;
  for (const plan_piece& piece : wire.pieces())
    made.tensors.push_back({piece.entry, piece.buffer, piece.offset, piece.bytes});
  for (const plan_buffer& buffer : wire.buffers()) made.buffer_bytes.push_back(buffer.used_bytes);
  return made;
}

/// Whether a tensor of that dtype can be viewed at `offset` of a buffer that begins at address `base`.
/// Errors: wrong_offset (C7) with the offset and the next legal one.
inline error check_offset(std::string_view tensor, dtype type, u64 offset, u64 base = 0) {
  const u64 width = bit_width(type) < 8 ? 1 : static_cast<u64>(bit_width(type)) / 8;
  if ((base + offset) % width == 0) return {};
  const u64 next = (base + offset + width - 1) / width * width - base;
  std::string what = std::string("no ").append(name_of(type)).append(" can be viewed at that offset");
  if (base % width != 0)
    what.append(" of a buffer whose address modulo ")
        .append(std::to_string(width))
        .append(" is ")
        .append(std::to_string(base % width));
  return make_error(errc::wrong_offset, std::string(tensor), std::move(what), static_cast<i64>(offset),
                    static_cast<i64>(next), condition::c7_transport);
}

/// Condition C7 of a placement: every tensor where its reader can view it, inside its buffer, over no other one.
/// Errors: wrong_offset, capacity (C7). Expects: tensors of a buffer in the order of their offsets. Cost: linear.
inline error check_placement(const manifest& update, const placement& where, u64 base = 0) {
  u64 end = 0;
  for (std::size_t i = 0; i < where.tensors.size(); ++i) {
    const placed_tensor& one = where.tensors[i];
    const manifest_entry& entry = update.entries()[one.entry];
    if (i == 0 || one.buffer != where.tensors[i - 1].buffer) end = 0;
    if (error wrong = check_offset(entry.name, entry.dtype, one.offset, base)) return wrong;
    if (one.offset < end)
      return make_error(errc::wrong_offset, entry.name, "lies over the tensor before it; its offset",
                        static_cast<i64>(one.offset), static_cast<i64>(end), condition::c7_transport);
    end = one.offset + one.bytes;
    if (end > where.buffer_bytes[one.buffer])
      return make_error(errc::capacity, entry.name, "ends behind its buffer", static_cast<i64>(end),
                        static_cast<i64>(where.buffer_bytes[one.buffer]), condition::c7_transport);
  }
  return {};
}

/// Condition C4 of a placement: no unit lies in two buffers, so that nobody is ever given codes without their scales.
/// Pairs that were cut as pairs (plan_options::split_rows) fail this too: they are safe for another reason.
/// Errors: plan_mismatch (C4) naming the tensor, its unit and both buffers. Cost: linear.
inline error check_units(const manifest& update, const placement& where) {
  std::vector<i64> home(update.units().size(), -1);
  for (const placed_tensor& one : where.tensors) {
    const manifest_entry& entry = update.entries()[one.entry];
    i64& known = home[update.items()[entry.item].unit];
    if (known < 0) known = one.buffer;
    if (known == one.buffer) continue;
    return make_error(errc::plan_mismatch, entry.name,
                      "is apart from the rest of " + update.units()[update.items()[entry.item].unit] + "; its buffer",
                      one.buffer, known, condition::c4_atomic_pairs);
  }
  return {};
}

FP8WIRE_ABI_END
#endif
