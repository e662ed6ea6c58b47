// SPDX-License-Identifier: Apache-2.0
/// Manifest and capacity to buffers with explicit offsets: pure, the same on both ends, no unit cut by accident.
#ifndef FP8WIRE_WIRE_PLAN_HPP
#define FP8WIRE_WIRE_PLAN_HPP
#include <span>

#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

struct plan_options {
  u64 capacity_bytes = u64{64} << 20;
  u64 align_bytes = 256;    // of every tensor; a power of two, at least 8
  u32 slots = 2;            // buffers in flight
  bool split_rows = false;  // cut a pair that is larger than the capacity between block rows, each piece a pair
  bool by_dtype = false;    // a buffer holds units of one dtype (of their first tensor) only
  bool operator==(const plan_options&) const = default;
};

/// A pair is cut into this many pieces at most; one that would need more has an oversized buffer.
inline constexpr i64 largest_cut = 65536;

/// Where a range of an entry's bytes lies. Whole entries unless its pair was cut.
struct plan_piece {
  u32 entry = 0;            // index into manifest::entries()
  u32 buffer = 0;
  u64 offset = 0;           // in the buffer
  u64 from = 0, bytes = 0;  // of the entry
};

/// One transport buffer. Units are whole, unless the buffer is a piece of one that was cut.
struct plan_buffer {
  u32 first = 0, count = 0;  // a range of plan::pieces()
  u64 used_bytes = 0;
  bool oversized = false;    // holds one unit that is larger than the capacity
  bool cut = false;          // holds a piece of a pair
};

/// A range of plan::pieces().
struct piece_range {
  u32 first = 0, count = 0;
};

/// Holds numbers only; the manifest need not outlive it.
class plan {
 public:
  /// 64-bit id of manifest, options and every offset; both ends compare it before the first byte.
  u64 hash() const noexcept { return hash_; }
  const plan_options& options() const noexcept { return options_; }
  const std::vector<plan_buffer>& buffers() const noexcept { return buffers_; }
  /// Buffer after buffer. A pair's codes are followed by its scales; a cut pair alternates: codes, scales, codes,
  /// scales.
  const std::vector<plan_piece>& pieces() const noexcept { return pieces_; }
  /// The pieces of one item; they lie side by side.
  piece_range of_item(std::size_t item) const noexcept { return items_[item]; }
  /// max(capacity, largest unit that is not cut): the size of every slot, agreed once.
  u64 slot_bytes() const noexcept { return slot_bytes_; }
  /// Memory that one end holds for transport: all slots.
  u64 peak_bytes() const noexcept { return slot_bytes_ * options_.slots; }

 private:
  friend class planner;
  plan_options options_;
  std::vector<plan_buffer> buffers_;
  std::vector<plan_piece> pieces_;
  std::vector<piece_range> items_;
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

/// Makes plans and keeps its scratch memory, so that planning again into the same plan allocates nothing.
///
/// Units lie in the order in which they first appear, each item in manifest order; a buffer is closed before the unit
/// that would overflow it; a unit larger than the capacity has a buffer of its own and all slots grow to it, or its
/// pairs are cut between block rows where options and encoding allow it. Padding is at tensor ends only.
/// Cost: linear in the tensors.
class planner {
 public:
  /// Errors: bad_argument for impossible options, overflow. `into` is then not to be used.
  error make(const manifest& source, const plan_options& options, plan& into);

 private:
  static error check(const plan_options& options);
  error measure(u32 unit, u64& bytes) const;
  void open(bool oversized, bool cut);
  void place(u32 entry, u64 from, u64 bytes);
  bool cut(const manifest_item& item);
  void place_unit(u32 unit, u64 bytes);
  u64 hash_of() const noexcept;

  const manifest* source_ = nullptr;
  plan* made_ = nullptr;
  std::vector<u32> head_, tail_, next_;  // items of each unit, linked in manifest order; index + 1, 0 ends
  u64 used_ = 0;
};

/// One plan by a planner of its own. Errors: as planner::make.
inline result<plan> make_plan(const manifest& source, const plan_options& options) {
  plan made;
  if (error wrong = planner().make(source, options, made)) return wrong;
  return made;
}

/// Refuses a plan before the first byte if `slots + beside` is over a budget; `beside` is what this end holds besides
/// the slots (an engine that stages: the payload once more). Errors: capacity, naming both numbers.
inline error within_budget(const plan& wanted, u64 beside, u64 budget_bytes) {
  u64 need = wanted.peak_bytes();
  if (detail::add_aligned(need, beside, 1) && need <= budget_bytes) return {};
  return make_error(errc::capacity, "plan", "its peak bytes are over the budget", static_cast<i64>(need),
                    static_cast<i64>(budget_bytes & 0x7FFFFFFFFFFFFFFF));
}

inline error planner::check(const plan_options& options) {
  if (options.align_bytes < 8 || (options.align_bytes & (options.align_bytes - 1)) != 0 ||
      options.align_bytes > (u64{1} << 30))
    return make_error(errc::bad_argument, "align_bytes", "must be a power of two in 8 .. 2^30",
                      static_cast<i64>(options.align_bytes), 8);
  if (options.slots == 0) return make_error(errc::bad_argument, "slots", "at least one slot", 0, 1);
  if (options.capacity_bytes == 0 || options.capacity_bytes > (u64{1} << 62))
    return make_error(errc::bad_argument, "capacity_bytes", "must lie in 1 .. 2^62",
                      static_cast<i64>(options.capacity_bytes), 1);
  return {};
}

inline error planner::measure(u32 unit, u64& bytes) const {
  bytes = 0;
  for (u32 link = head_[unit]; link != 0; link = next_[link - 1]) {
    const manifest_item& item = source_->items()[link - 1];
    for (u32 e = item.first_entry; e < item.first_entry + item.entries; ++e)
      if (!detail::add_aligned(bytes, source_->entries()[e].bytes, made_->options_.align_bytes))
        return make_error(errc::overflow, source_->units()[unit], "its bytes do not fit 63 bits");
  }
  return {};
}

inline void planner::open(bool oversized, bool cut) {
  made_->buffers_.push_back({static_cast<u32>(made_->pieces_.size()), 0, 0, oversized, cut});
  used_ = 0;
}

inline void planner::place(u32 entry, u64 from, u64 bytes) {
  plan_buffer& buffer = made_->buffers_.back();
  made_->pieces_.push_back({entry, static_cast<u32>(made_->buffers_.size() - 1), used_, from, bytes});
  detail::add_aligned(used_, bytes, made_->options_.align_bytes);
  ++buffer.count;
  buffer.used_bytes = used_;
  if (used_ > made_->slot_bytes_) made_->slot_bytes_ = used_;
}

/// Cuts one pair into buffers of its own: several matrices of a batch each, or several block rows of one matrix.
/// False, placing nothing, where not even one block row fits, or where the pieces would be more than largest_cut.
inline bool planner::cut(const manifest_item& item) {
  if (item.entries != 2 || item.facts.split_rows == 0) return false;
  const matrix_extents& m = item.facts.extents;
  const u64 code_bytes = source_->entries()[item.first_entry].bytes,
            scale_bytes = source_->entries()[item.first_entry + 1].bytes;
  const i64 block_rows = ceil_div(m.rows, item.facts.split_rows);
  if (code_bytes == 0 || scale_bytes == 0 || block_rows == 0) return false;
  const i64 row_codes = static_cast<i64>(code_bytes) / (m.batch * m.rows);
  const i64 row_scales = static_cast<i64>(scale_bytes) / (m.batch * block_rows);  // of one block row
  const auto fits = [&](i64 rows, i64 rows_of_scales) {
    u64 bytes = 0;
    return detail::add_aligned(bytes, static_cast<u64>(rows * row_codes), made_->options_.align_bytes) &&
           detail::add_aligned(bytes, static_cast<u64>(rows_of_scales * row_scales), made_->options_.align_bytes) &&
           bytes <= made_->options_.capacity_bytes;
  };
  const auto rows_of = [&](i64 blocks) {
    return blocks * item.facts.split_rows < m.rows ? blocks * item.facts.split_rows : m.rows;
  };
  const auto largest = [](i64 most, const auto& fitting) {  // in 0 .. most, by bisection
    i64 good = 0, bad = most + 1;
    while (bad - good > 1) (fitting(good + (bad - good) / 2) ? good : bad) = good + (bad - good) / 2;
    return good;
  };
  const i64 matrices = largest(m.batch, [&](i64 count) { return fits(count * m.rows, count * block_rows); });
  const i64 blocks =
      matrices > 0 ? block_rows : largest(block_rows, [&](i64 count) { return fits(rows_of(count), count); });
  const i64 step = matrices > 0 ? matrices : 1;
  if (blocks == 0 || ceil_div(m.batch, step) > largest_cut / ceil_div(block_rows, blocks)) return false;
  for (i64 b = 0; b < m.batch; b += step) {
    const i64 count = m.batch - b < step ? m.batch - b : step;
    for (i64 block = 0; block < block_rows; block += blocks) {
      const i64 last = block_rows - block < blocks ? block_rows : block + blocks;
      const i64 from = block * item.facts.split_rows, rows = (count - 1) * m.rows + rows_of(last) - from;
      const i64 scale_rows_here = (count - 1) * block_rows + last - block;
      open(false, true);
      place(item.first_entry, static_cast<u64>((b * m.rows + from) * row_codes), static_cast<u64>(rows * row_codes));
      place(item.first_entry + 1, static_cast<u64>((b * block_rows + block) * row_scales),
            static_cast<u64>(scale_rows_here * row_scales));
    }
  }
  return true;
}

inline void planner::place_unit(u32 unit, u64 bytes) {
  const u64 capacity = made_->options_.capacity_bytes;
  const bool oversized = bytes > capacity, cuts = oversized && made_->options_.split_rows;
  if (!cuts && (made_->buffers_.empty() || made_->buffers_.back().oversized || made_->buffers_.back().cut ||
                oversized || used_ > capacity - bytes))
    open(oversized, false);
  bool fresh = cuts;
  for (u32 link = head_[unit]; link != 0; link = next_[link - 1]) {
    const manifest_item& item = source_->items()[link - 1];
    piece_range& range = made_->items_[link - 1];
    range.first = static_cast<u32>(made_->pieces_.size());
    if (cuts && cut(item)) {
      fresh = true;
    } else {
      if (fresh) open(true, false);  // what cannot be cut of a unit that is cut shares one buffer
      fresh = false;
      for (u32 e = item.first_entry; e < item.first_entry + item.entries; ++e) place(e, 0, source_->entries()[e].bytes);
    }
    range.count = static_cast<u32>(made_->pieces_.size()) - range.first;
  }
}

inline u64 planner::hash_of() const noexcept {
  const plan_options& options = made_->options_;
  u64 state = hash("fp8wire plan 1", source_->hash());
  state = hash(options.capacity_bytes, hash(options.align_bytes, hash(u64{options.slots}, state)));
  state = hash(u64{options.split_rows} | u64{options.by_dtype} << 1, state);
  for (const plan_piece& piece : made_->pieces_) {
    state = hash(piece.offset, hash(u64{piece.buffer}, hash(u64{piece.entry}, state)));
    state = hash(piece.bytes, hash(piece.from, state));
  }
  return state;
}

inline error planner::make(const manifest& source, const plan_options& options, plan& into) {
  source_ = &source;
  made_ = &into;
  into.options_ = options;
  into.buffers_.clear();
  into.pieces_.clear();
  into.items_.assign(source.items().size(), {});
  into.slot_bytes_ = options.capacity_bytes;
  used_ = 0;
  if (error wrong = check(options)) return wrong;

  const std::size_t units = source.units().size();
  head_.assign(units, 0);
  tail_.assign(units, 0);
  next_.assign(source.items().size(), 0);
  for (u32 i = 0; i < source.items().size(); ++i) {
    const u32 unit = source.items()[i].unit;
    (head_[unit] == 0 ? head_[unit] : next_[tail_[unit] - 1]) = i + 1;
    tail_[unit] = i + 1;
  }
  const auto lay_out = [&](u32 unit) {
    u64 bytes = 0;
    error wrong = measure(unit, bytes);
    if (!wrong) place_unit(unit, bytes);
    return wrong;
  };
  if (options.by_dtype) {
    for (int type = 0; type < detail::dtype_count; ++type) {
      bool first = true;
      for (u32 unit = 0; unit < units; ++unit) {
        const manifest_item& item = source.items()[head_[unit] - 1];
        if (static_cast<int>(source.entries()[item.first_entry].dtype) != type) continue;
        if (first) used_ = options.capacity_bytes + 1;  // nothing fits behind another dtype
        first = false;
        if (error wrong = lay_out(unit)) return wrong;
      }
    }
  } else {
    for (u32 unit = 0; unit < units; ++unit)
      if (error wrong = lay_out(unit)) return wrong;
  }
  u64 peak = 0;
  for (u32 slot = 0; slot < options.slots; ++slot)
    if (!detail::add_aligned(peak, into.slot_bytes_, 1))
      return make_error(errc::overflow, "slots", "times the slot size does not fit 63 bits", options.slots, 0);
  into.hash_ = hash_of();
  return {};
}

FP8WIRE_ABI_END
#endif
