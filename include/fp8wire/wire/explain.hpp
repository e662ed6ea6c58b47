// SPDX-License-Identifier: Apache-2.0
/// A plan in words: what each buffer holds and why it ends where it ends.
#ifndef FP8WIRE_WIRE_EXPLAIN_HPP
#define FP8WIRE_WIRE_EXPLAIN_HPP
#include <fp8wire/wire/plan.hpp>

FP8WIRE_ABI_BEGIN

/// One line a buffer, and one for the whole. Expects: the plan was made from the manifest.
inline std::string explain(const manifest& tensors, const plan& wire) {
  const plan_options& options = wire.options();
  const auto text = [](u64 number) { return std::to_string(number); };
  const auto many = [&](u64 count, const char* thing) { return text(count) + " " + thing + (count == 1 ? "" : "s"); };
  const auto unit_of = [&](u32 piece) {
    return tensors.items()[tensors.entries()[wire.pieces()[piece].entry].item].unit;
  };
  std::vector<u64> unit_bytes(tensors.units().size());
  for (const manifest_entry& entry : tensors.entries())
    detail::add_aligned(unit_bytes[tensors.items()[entry.item].unit], entry.bytes, options.align_bytes);
  std::string out;
  for (std::size_t b = 0; b < wire.buffers().size(); ++b) {
    const plan_buffer& buffer = wire.buffers()[b];
    const std::string& first = tensors.units()[unit_of(buffer.first)];
    out.append("buffer ").append(text(b)).append(": ").append(text(buffer.used_bytes));
    if (buffer.used_bytes > options.capacity_bytes) {
      out.append(" bytes, more than the capacity of ").append(text(options.capacity_bytes)).append(": ").append(first);
      out.append(" fits no smaller one\n");
      continue;
    }
    out.append(" of ").append(text(options.capacity_bytes)).append(" bytes, ");
    if (buffer.cut) {
      const plan_piece& codes = wire.pieces()[buffer.first];
      out.append("a piece of ").append(tensors.entries()[codes.entry].name).append(": bytes ").append(text(codes.from));
      out.append(" .. ").append(text(codes.from + codes.bytes)).append(" and their scales\n");
      continue;
    }
    u64 units = 0;
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i)
      units += i == buffer.first || unit_of(i) != unit_of(i - 1) ? 1u : 0u;
    out.append(many(buffer.count, "tensor")).append(" of ").append(many(units, "unit")).append("; ends because ");
    if (b + 1 == wire.buffers().size()) {
      out.append("nothing is left\n");
      continue;
    }
    const u32 next = unit_of(wire.buffers()[b + 1].first);
    const u64 bytes = unit_bytes[next];
    const bool fits = bytes <= options.capacity_bytes - buffer.used_bytes;
    out.append(tensors.units()[next]).append(fits ? " has another dtype\n" : " needs " + text(bytes) + " more\n");
  }
  out.append(many(wire.buffers().size(), "buffer")).append(", ").append(many(options.slots, "slot")).append(" of ");
  return out.append(text(wire.slot_bytes()))
      .append(" bytes: ")
      .append(text(wire.peak_bytes()))
      .append(" bytes at each end\n");
}

FP8WIRE_ABI_END
#endif
