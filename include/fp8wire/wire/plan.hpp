// SPDX-License-Identifier: Apache-2.0
/// Manifest and capacity to buffers with explicit offsets: pure, the same on both ends, no unit ever split.
#ifndef FP8WIRE_WIRE_PLAN_HPP
#define FP8WIRE_WIRE_PLAN_HPP
#include <algorithm>

#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

struct plan_options {
  u64 capacity_bytes = u64{64} << 20;
  u64 align_bytes = 256;  // of every tensor; a power of two, at least 8
  u32 slots = 2;          // buffers in flight
  bool operator==(const plan_options&) const = default;
};

/// Where an entry lies. Indexed like manifest::entries().
struct placement {
  u32 buffer = 0;
  u32 unit = 0;
  u64 offset = 0;
};

/// One transport buffer: whole units only.
struct plan_buffer {
  u32 first = 0, count = 0;  // a range of plan::order()
  u64 used_bytes = 0;
  bool oversized = false;    // holds one unit that is larger than the capacity
};

/// Holds numbers and unit names only; the manifest need not outlive it.
class plan {
 public:
  /// 64-bit id of manifest, options and every offset; both ends compare it before the first byte.
  u64 hash() const noexcept { return hash_; }
  const plan_options& options() const noexcept { return options_; }
  const std::vector<plan_buffer>& buffers() const noexcept { return buffers_; }
  const std::vector<placement>& placements() const noexcept { return placements_; }
  /// Entry indices in wire order, buffer after buffer.
  const std::vector<u32>& order() const noexcept { return order_; }
  /// Unit names in order of first appearance.
  const std::vector<std::string>& units() const noexcept { return units_; }
  /// max(capacity, largest unit): the size of every slot, agreed once.
  u64 slot_bytes() const noexcept { return slot_bytes_; }
  /// Memory that one end holds for transport: all slots.
  u64 peak_bytes() const noexcept { return slot_bytes_ * options_.slots; }

 private:
  friend result<plan> make_plan(const manifest&, plan_options);
  plan_options options_;
  std::vector<plan_buffer> buffers_;
  std::vector<placement> placements_;
  std::vector<u32> order_;
  std::vector<std::string> units_;
  u64 slot_bytes_ = 0, hash_ = 0;
};

namespace detail {
/// Adds `bytes` rounded up to `align` to `total`; false on overflow of 63 bits.
constexpr bool add_aligned(u64& total, u64 bytes, u64 align) noexcept {
  constexpr u64 largest = 0x7FFFFFFFFFFFFFFF;
  if (bytes > largest - (align - 1)) return false;
  const u64 padded = (bytes + align - 1) / align * align;
  if (padded > largest - total) return false;
  total += padded;
  return true;
}
}  // namespace detail

/// Lays units out in the order in which they first appear; a buffer is closed before the unit that would overflow it; a
/// unit larger than the capacity has a buffer of its own, and all slots grow to it. Padding is at tensor ends only.
/// Errors: bad_argument for impossible options, overflow.
result<plan> make_plan(const manifest& source, plan_options options);

inline result<plan> make_plan(const manifest& source, plan_options options) {
  if (options.align_bytes < 8 || (options.align_bytes & (options.align_bytes - 1)) != 0)
    return make_error(errc::bad_argument, "align_bytes", "must be a power of two and at least 8", static_cast<i64>(options.align_bytes), 8);
  if (options.slots == 0) return make_error(errc::bad_argument, "slots", "at least one slot", 0, 1);
  if (options.capacity_bytes == 0 || options.capacity_bytes > (u64{1} << 62))
    return make_error(errc::bad_argument, "capacity_bytes", "must lie in 1 .. 2^62", static_cast<i64>(options.capacity_bytes), 1);

  plan made;
  made.options_ = options;
  const auto& items = source.items();
  const auto& entries = source.entries();

  // Items of one unit, in order of the unit's first item: sort by (unit name, index), then units by first index.
  std::vector<u32> by_unit(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) by_unit[i] = static_cast<u32>(i);
  std::sort(by_unit.begin(), by_unit.end(), [&](u32 a, u32 b) {
    const int order = items[a].unit.compare(items[b].unit);
    return order != 0 ? order < 0 : a < b;
  });
  struct group {
    u32 first, begin, end;
  };
  std::vector<group> groups;
  for (u32 begin = 0; begin < by_unit.size();) {
    u32 end = begin + 1;
    while (end < by_unit.size() && items[by_unit[end]].unit == items[by_unit[begin]].unit) ++end;
    groups.push_back({by_unit[begin], begin, end});
    begin = end;
  }
  std::sort(groups.begin(), groups.end(), [](const group& a, const group& b) { return a.first < b.first; });

  made.placements_.resize(entries.size());
  made.order_.reserve(entries.size());
  made.slot_bytes_ = options.capacity_bytes;
  u64 used = 0;
  for (const group& unit : groups) {
    u64 bytes = 0;
    for (u32 i = unit.begin; i < unit.end; ++i) {
      const manifest_item& item = items[by_unit[i]];
      for (u32 e = item.first_entry; e < item.first_entry + item.entries; ++e)
        if (!detail::add_aligned(bytes, entries[e].bytes, options.align_bytes))
          return make_error(errc::overflow, item.unit, "its bytes do not fit 63 bits", static_cast<i64>(entries[e].bytes), 0);
    }
    const bool fresh = made.buffers_.empty() || made.buffers_.back().oversized || bytes > options.capacity_bytes ||
                       used > options.capacity_bytes - bytes;
    if (fresh) {
      made.buffers_.push_back({static_cast<u32>(made.order_.size()), 0, 0, bytes > options.capacity_bytes});
      used = 0;
    }
    plan_buffer& buffer = made.buffers_.back();
    for (u32 i = unit.begin; i < unit.end; ++i) {
      const manifest_item& item = items[by_unit[i]];
      for (u32 e = item.first_entry; e < item.first_entry + item.entries; ++e) {
        made.placements_[e] = {static_cast<u32>(made.buffers_.size() - 1), static_cast<u32>(made.units_.size()), used};
        made.order_.push_back(e);
        detail::add_aligned(used, entries[e].bytes, options.align_bytes);
        ++buffer.count;
      }
    }
    buffer.used_bytes = used;
    made.slot_bytes_ = (std::max)(made.slot_bytes_, used);
    made.units_.push_back(items[unit.first].unit);
  }
  u64 peak = 0;
  for (u32 slot = 0; slot < options.slots; ++slot)
    if (!detail::add_aligned(peak, made.slot_bytes_, 1))
      return make_error(errc::overflow, "slots", "times the slot size does not fit 63 bits", options.slots, 0);

  u64 state = hash("fp8wire plan 1", source.hash());
  state = hash(options.capacity_bytes, hash(options.align_bytes, hash(u64{options.slots}, state)));
  for (const u32 entry : made.order_)
    state = hash(made.placements_[entry].offset, hash(u64{made.placements_[entry].buffer}, hash(u64{entry}, state)));
  made.hash_ = state;
  return made;
}

FP8WIRE_ABI_END
#endif
