// SPDX-License-Identifier: Apache-2.0
/// Condition C7 on live data: bytes arrive as they left, where a reader can read them, and stay until all have.
#ifndef FP8WIRE_WIRE_CONDITIONS_BUFFERS_HPP
#define FP8WIRE_WIRE_CONDITIONS_BUFFERS_HPP
#include <span>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/wire/placement.hpp>

FP8WIRE_ABI_BEGIN

/// One tensor's bytes against the checksum that its sender made. Errors: checksum (C7). Cost: one read.
inline error check_bytes(std::string_view tensor, std::span<const std::byte> bytes, u64 sum) {
  const u64 here = checksum(bytes.data(), bytes.size());
  if (here == sum) return {};
  return make_error(errc::checksum, std::string(tensor), "its bytes are not those that were sent; the checksum",
                    static_cast<i64>(here), static_cast<i64>(sum), condition::c7_transport);
}

/// The plans that two ends made by themselves, before the first byte. Errors: plan_mismatch (C7).
inline error check_plans(u64 plan_hash_here, u64 plan_hash_there) {
  if (plan_hash_here == plan_hash_there) return {};
  return make_error(errc::plan_mismatch, "plan", "the two ends plan differently; the hash",
                    static_cast<i64>(plan_hash_there), static_cast<i64>(plan_hash_here), condition::c7_transport);
}

/// 0xFF everywhere: NaN in E4M3, E5M2, E8M0, FP32, FP16 and BF16. A buffer that is given back, or one that an update
/// must fill, is made loud this way. Cost: one write.
inline void poison(std::span<std::byte> memory) noexcept {
  if (!memory.empty()) __builtin_memset(memory.data(), 0xFF, memory.size());
}

/// Whether an update wrote all of a tensor that was poisoned before. Errors: missing (C3) with the first element that
/// is still 0xFF throughout. Codes of NaN that were sent on purpose look the same. Cost: one read.
inline error check_written(std::string_view tensor, dtype type, std::span<const std::byte> memory) {
  const std::size_t width = bit_width(type) < 8 ? 1 : static_cast<std::size_t>(bit_width(type)) / 8;
  for (std::size_t at = 0; at + width <= memory.size(); at += width) {
    std::size_t same = 0;
    while (same < width && memory[at + same] == std::byte{0xFF}) ++same;
    if (same == width)
      return make_error(errc::missing, std::string(tensor), "was not written; the first element",
                        static_cast<i64>(at / width), static_cast<i64>(memory.size() / width),
                        condition::c3_complete_pairs);
  }
  return {};
}

/// Who reads which buffer: the counts that a transport of one's own needs so that no slot is written too early.
/// Cost: one count a slot, two bits a reader. Threads: one at a time.
class lease_book {
 public:
  /// `readers`: engines, each of which gives every buffer back once.
  lease_book(u32 slots, int readers) : leases_(slots), readers_(readers) {}

  /// The slot of plan buffer `buffer` is about to be written. Errors: out_of_order (C7) while somebody reads it.
  error acquire(u32 buffer) const {
    const lease& one = of(buffer);
    if (one.out == 0) return {};
    return make_error(errc::out_of_order, "buffer " + std::to_string(buffer),
                      "is written while buffer " + std::to_string(one.buffer) + " is read in its slot; the readers",
                      one.out, 0, condition::c7_transport);
  }
  /// All engines may read it from here on.
  void publish(u32 buffer) {
    lease& one = of(buffer);
    one.buffer = buffer;
    one.out = readers_;
    one.back.assign(static_cast<std::size_t>(readers_), 0);
  }
  /// Whether that engine may read it now. Errors: out_of_order (C7) after it gave it back, or before it was published.
  error check_read(u32 buffer, int reader) const {
    const lease& one = of(buffer);
    const std::size_t who = static_cast<std::size_t>(reader);
    if (one.buffer == buffer && who < one.back.size() && one.back[who] == 0) return {};
    return make_error(errc::out_of_order, "buffer " + std::to_string(buffer),
                      "is read by engine " + std::to_string(reader) + ", which does not hold it",
                      condition::c7_transport);
  }
  /// An engine is done with it. Errors: duplicate (C7) where it does not hold the buffer (any more).
  error release(u32 buffer, int reader) {
    if (check_read(buffer, reader))
      return make_error(errc::duplicate, "buffer " + std::to_string(buffer),
                        "is given back by engine " + std::to_string(reader) + ", which does not hold it",
                        condition::c7_transport);
    lease& one = of(buffer);
    one.back[static_cast<std::size_t>(reader)] = 1;
    --one.out;
    return {};
  }
  /// At the end of an update: everything came back. Errors: missing (C7) with the first engine that kept a buffer.
  error settled() const {
    for (const lease& one : leases_)
      for (std::size_t who = 0; who < one.back.size() && one.out > 0; ++who)
        if (one.back[who] == 0)
          return make_error(errc::missing, "buffer " + std::to_string(one.buffer),
                            "was not given back by engine " + std::to_string(who) + "; the readers", one.out, 0,
                            condition::c7_transport);
    return {};
  }

 private:
  struct lease {
    u32 buffer = 0;
    int out = 0;
    std::vector<u8> back;  // one a reader
  };
  const lease& of(u32 buffer) const { return leases_[buffer % leases_.size()]; }
  lease& of(u32 buffer) { return leases_[buffer % leases_.size()]; }
  std::vector<lease> leases_;
  int readers_;
};

FP8WIRE_ABI_END
#endif
