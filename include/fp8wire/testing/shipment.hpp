// SPDX-License-Identifier: Apache-2.0
/// One update as data: the frames and bytes that a learner sends, and the faults of the way that they take.
#ifndef FP8WIRE_TESTING_SHIPMENT_HPP
#define FP8WIRE_TESTING_SHIPMENT_HPP
#include <fp8wire/core/checksum.hpp>
#include <fp8wire/testing/toy_model.hpp>
#include <fp8wire/wire/message.hpp>
#include <fp8wire/wire/placement.hpp>

FP8WIRE_ABI_BEGIN
namespace testing {

/// One published buffer.
struct parcel {
  frame announced;
  std::vector<std::byte> bytes;
};

/// One tensor as a loader that goes by names sees it.
struct arrival {
  u32 entry = 0;  // whose bytes they are
  std::string name;
  dtype type{};
  std::vector<i64> shape;
  u64 weight_version = 0;
  u32 buffer = 0;
  u64 offset = 0;
};

/// How an update ends.
enum class ending : u8 {
  whole,    // finish, vote, commit
  aborted,  // no finish, and a commit that nobody should obey
  lost      // nothing more comes
};

struct shipment {
  u64 weight_version = 0;
  std::vector<parcel> parcels;
  std::vector<arrival> arrivals;
  std::vector<u64> sums;  // one a piece of the plan
  std::vector<i64> statuses;  // one an item
  ending end = ending::whole;
};

/// A whole update. bytes: one a manifest entry. Expects: the plan was made from the manifest.
inline shipment pack(const manifest& tensors, const plan& wire, u64 weight_version, const entry_bytes& bytes) {
  shipment made;
  made.weight_version = weight_version;
  for (u32 b = 0; b < wire.buffers().size(); ++b) {
    const plan_buffer& buffer = wire.buffers()[b];
    parcel one{{protocol_version, b, wire.hash(), weight_version, buffer.used_bytes},
               std::vector<std::byte>(static_cast<std::size_t>(buffer.used_bytes))};
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
      const plan_piece& piece = wire.pieces()[i];
      const manifest_entry& entry = tensors.entries()[piece.entry];
      const std::byte* from = bytes[piece.entry].data() + piece.from;
      const std::size_t size = static_cast<std::size_t>(piece.bytes);
      if (size > 0) __builtin_memcpy(one.bytes.data() + piece.offset, from, size);
      made.sums.push_back(checksum(from, size));
      if (piece.from == 0)
        made.arrivals.push_back({piece.entry, entry.name, entry.dtype, entry.shape, weight_version, b, piece.offset});
    }
    made.parcels.push_back(std::move(one));
  }
  made.statuses.assign(tensors.items().size(), -1);
  return made;
}

/// Takes the arrivals of one buffer away.
inline void drop_arrivals(shipment& of, u32 buffer) {
  std::vector<arrival> left;
  for (arrival& one : of.arrivals)
    if (one.buffer != buffer) left.push_back(std::move(one));
  of.arrivals = std::move(left);
}

/// The first arrival for which `wanted(name)` holds, or nullptr.
template <class Wanted> arrival* first_arrival(shipment& of, const Wanted& wanted) {
  for (arrival& one : of.arrivals)
    if (wanted(std::string_view(one.name))) return &one;
  return nullptr;
}

/// Does to a shipment what the fault does; kinds of other places leave it alone. `before`: the version before this one,
/// packed by the same plan. Expects: at least six buffers in the plan. Answers whether anything changed.
inline bool damage(fault kind, shipment& one, const shipment& before, const manifest& tensors, const plan& wire) {
  std::vector<parcel>& parcels = one.parcels;
  const std::size_t middle = parcels.size() / 2;
  const auto is_scale = [](std::string_view name) { return name.ends_with("_scale_inv"); };
  switch (kind) {
    case fault::drop:
      drop_arrivals(one, static_cast<u32>(middle));
      parcels.erase(parcels.begin() + static_cast<std::ptrdiff_t>(middle));
      return true;
    case fault::duplicate: {
      parcels.insert(parcels.begin() + static_cast<std::ptrdiff_t>(middle), parcels[middle]);
      const arrival again = *first_arrival(one, is_scale);
      one.arrivals.push_back(again);
      return true;
    }
    case fault::reorder: return std::swap(parcels[middle], parcels[middle - 1]), true;
    case fault::rename: {
      std::string& name = first_arrival(one, is_scale)->name;
      return name.resize(name.size() - std::string_view("_inv").size()), true;
    }
    case fault::wrong_dtype: return first_arrival(one, is_scale)->type = dtype::int32, true;
    case fault::squeezed_scale: {
      arrival* scale = first_arrival(one, [&](std::string_view name) {
        const auto& shape = tensors.entries()[static_cast<std::size_t>(tensors.find(name))].shape;
        return is_scale(name) && shape.back() == 1;
      });
      return scale->shape.pop_back(), true;
    }
    case fault::partial_experts: {
      std::vector<arrival> left;
      u32 lost = 0;
      for (arrival& each : one.arrivals) {
        if (matches("**.experts.1.**", each.name)) lost = each.buffer;
        else left.push_back(std::move(each));
      }
      one.arrivals = std::move(left);
      for (std::size_t i = 0; i < parcels.size(); ++i)
        if (parcels[i].announced.buffer == lost)
          return parcels.erase(parcels.begin() + static_cast<std::ptrdiff_t>(i)), true;
      return false;
    }
    case fault::mixed_version:
      parcels[middle] = before.parcels[middle];
      for (arrival& each : one.arrivals)
        if (each.buffer == middle) each.weight_version = before.weight_version;
      return true;
    case fault::flip_bit: return parcels[middle].bytes[0] ^= std::byte{0x20}, true;
    case fault::short_buffer: return parcels[middle].bytes.resize(parcels[middle].bytes.size() - 1), true;
    case fault::early_ack: {
      // The slot is filled with the buffer after next while this one is still read from it.
      const parcel& next = parcels[middle + wire.options().slots];
      for (std::size_t i = 0; i < parcels[middle].bytes.size() && i < next.bytes.size(); ++i)
        parcels[middle].bytes[i] = next.bytes[i];
      return true;
    }
    case fault::boundary_mismatch: {
      // One buffer takes the first bytes of the next.
      parcel &first = parcels[middle], &second = parcels[middle + 1];
      const std::ptrdiff_t moved = 256;
      first.bytes.insert(first.bytes.end(), second.bytes.begin(), second.bytes.begin() + moved);
      second.bytes.erase(second.bytes.begin(), second.bytes.begin() + moved);
      for (parcel* each : {&first, &second}) each->announced.used_bytes = each->bytes.size();
      return true;
    }
    case fault::misaligned_offset: {
      arrival* scale = first_arrival(one, is_scale);
      return scale->offset += 1, true;
    }
    case fault::version_replay: return one = before, true;
    case fault::aborted_update:
    case fault::dead_peer:
      for (u32 b = static_cast<u32>(middle); b < wire.buffers().size(); ++b) drop_arrivals(one, b);
      parcels.resize(middle);
      one.end = kind == fault::dead_peer ? ending::lost : ending::aborted;
      return true;
    default: return false;
  }
}

}  // namespace testing
FP8WIRE_ABI_END
#endif
