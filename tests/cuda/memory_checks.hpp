// SPDX-License-Identifier: Apache-2.0
// What the emulator and the PTX interpreter both watch: bounds, alignment, bytes nobody wrote, and races.
#ifndef FP8WIRE_TESTS_CUDA_MEMORY_CHECKS_HPP
#define FP8WIRE_TESTS_CUDA_MEMORY_CHECKS_HPP
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include <fp8wire/core/bits.hpp>

namespace checks {

using fp8wire::u64;
using fp8wire::u8;

struct fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory that a kernel may touch. Reading a byte of `output` that no store wrote is a fault.
class device_memory {
 public:
  template <class Values> void input(const Values& values) { add(values.data(), bytes_of(values), true, false); }
  template <class Values> void output(Values& values) { add(values.data(), bytes_of(values), false, true); }
  template <class Values> void both(Values& values) { add(values.data(), bytes_of(values), true, true); }
  void add(const void* data, std::size_t bytes, bool readable, bool writable) {
    ranges_.push_back({static_cast<const u8*>(data), bytes, writable, std::vector<bool>(bytes, readable)});
  }
  /// Memory of which only the bounds are watched.
  void bounds_only(const void* data, std::size_t bytes) {
    ranges_.push_back({static_cast<const u8*>(data), bytes, true, {}});
  }
  void access(const void* at, std::size_t bytes, bool write) {
    if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) throw fault("misaligned access to global memory");
    run(at, bytes, write);
  }
  /// As access, of any number of bytes anywhere.
  void run(const void* at, std::size_t bytes, bool write) {
    range& r = reached(at, bytes, write);
    if (r.written.empty()) return;
    const auto from = static_cast<std::size_t>(static_cast<const u8*>(at) - r.data);
    for (std::size_t i = from; i < from + bytes; ++i) {
      if (write) r.written[i] = true;
      else if (!r.written[i]) throw fault("load of global memory that nobody wrote");
    }
  }
  /// Whether a store may go there, before it does.
  void may_write(const void* at, std::size_t bytes) { static_cast<void>(reached(at, bytes, true)); }

 private:
  template <class Values> static std::size_t bytes_of(const Values& values) {
    return values.size() * sizeof(values[0]);
  }
  struct range {
    const u8* data;
    std::size_t bytes;
    bool writable;
    std::vector<bool> written;
  };
  range& reached(const void* at, std::size_t bytes, bool write) {
    const u8* first = static_cast<const u8*>(at);
    for (range& r : ranges_) {
      if (first < r.data || first + bytes > r.data + r.bytes) continue;
      if (write && !r.writable) throw fault("store to an input");
      return r;
    }
    throw fault("access outside of global memory");
  }
  std::vector<range> ranges_;
};

/// Who touched each byte of a block's shared memory since the last barrier: of the block, or of one's own warp.
class shared_shadow {
 public:
  /// only_bounds: another tool looks for races.
  explicit shared_shadow(bool only_bounds = false) : only_bounds_(only_bounds) {}
  void reset(std::size_t bytes) {
    bytes_.assign(bytes, {});
    epoch_ = 1;
    warps_.fill(1);
  }
  void barrier() { ++epoch_; }
  void warp_barrier(std::size_t warp) { ++warps_[warp]; }
  std::size_t size() const { return bytes_.size(); }
  void touch(u64 from, std::size_t bytes, int thread, bool write, bool atomic = false) {
    if (from % bytes != 0) throw fault("misaligned access to shared memory");
    run(from, bytes, thread, write, atomic);
  }
  /// As touch, of any number of bytes anywhere.
  void run(u64 from, std::size_t bytes, int thread, bool write, bool atomic = false) {
    if (from + bytes > bytes_.size()) throw fault("access outside of shared memory");
    if (only_bounds_) return;
    const moment now{epoch_, warps_[static_cast<std::size_t>(thread / 32)]};
    for (u64 i = from; i < from + bytes; ++i) {
      byte& b = bytes_[i];
      if ((!write || atomic) && !b.written) throw fault("read of shared memory that nobody wrote");
      if (b.written_by.others(thread, now) || (!atomic && b.changed_by.others(thread, now)) ||
          (write && b.read_by.others(thread, now)))
        throw fault("race in shared memory");
      (atomic ? b.changed_by : write ? b.written_by : b.read_by).add(thread, now);
      b.written = b.written || write;
    }
  }
  /// The bytes are no thread's any more: somebody else writes them, at this thread's wish.
  void hand_over(u64 from, std::size_t bytes, int thread) {
    run(from, bytes, thread, true);
    for (u64 i = from; i < from + bytes; ++i) {
      bytes_[i] = {};
      bytes_[i].written = true;
    }
  }

 private:
  struct moment {
    unsigned block = 0, warp = 0;  // barriers so far
  };
  /// Which thread, if any, since the last barrier.
  struct visitors {
    int thread = 0, warp = 0;  // -1: more than one
    moment when;
    bool others(int one, moment now) const {
      const bool met = warp == one / 32 && when.warp != now.warp;  // all of them, since then
      return when.block == now.block && thread != one && !met;
    }
    void add(int one, moment now) {
      const bool another_warp = when.block == now.block && warp != one / 32;
      thread = another_warp || others(one, now) ? -1 : one;  // more than one: everybody races with one of them
      warp = another_warp ? -1 : one / 32;
      when = now;
    }
  };
  struct byte {
    visitors written_by, changed_by, read_by;  // changed: by an atomic operation
    bool written = false;
  };
  bool only_bounds_;
  std::vector<byte> bytes_;
  unsigned epoch_ = 1;
  std::array<unsigned, 32> warps_{};
};

}  // namespace checks
#endif
