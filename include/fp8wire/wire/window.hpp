// SPDX-License-Identifier: Apache-2.0
/// How many slots a generator of weights needs, known before it makes the first one.
#ifndef FP8WIRE_WIRE_WINDOW_HPP
#define FP8WIRE_WIRE_WINDOW_HPP
#include <fp8wire/wire/plan.hpp>

FP8WIRE_ABI_BEGIN

/// Slots that a sender needs for an export in manifest order: buffers that are open at once, from the first that still
/// lacks a member to the last one touched. More than the plan's slots means that siblings of one unit come too
/// far apart
/// (or, by dtype, that the order of the export is not the plan's): the sender would refuse half way.
/// Expects: the plan was made from the manifest. Cost: linear.
inline u32 slots_needed(const manifest& tensors, const plan& wire) {
  std::vector<u32> lacks;
  for (const plan_buffer& buffer : wire.buffers()) lacks.push_back(buffer.count);
  u32 first = 0, most = 0;
  for (std::size_t item = 0; item < tensors.items().size(); ++item) {
    const piece_range range = wire.of_item(item);
    const u32 begins = wire.pieces()[range.first].buffer, ends = wire.pieces()[range.first + range.count - 1].buffer;
    // A cut pair that comes when all before it is complete goes out piece by piece.
    const u32 open = begins == first ? 1 : ends - first + 1;
    if (open > most) most = open;
    for (u32 i = range.first; i < range.first + range.count; ++i) --lacks[wire.pieces()[i].buffer];
    while (first < lacks.size() && lacks[first] == 0) ++first;
  }
  return most;
}

/// Refuses an export that the plan's slots cannot hold, before its first weight.
/// Errors: capacity with both numbers of slots.
inline error check_window(const manifest& tensors, const plan& wire) {
  const u32 needed = slots_needed(tensors, wire);
  if (needed <= wire.options().slots) return {};
  return make_error(errc::capacity, "slots",
                    "the export order keeps more buffers open than there are; the slots needed", needed,
                    wire.options().slots, condition::c3_complete_pairs);
}

FP8WIRE_ABI_END
#endif
