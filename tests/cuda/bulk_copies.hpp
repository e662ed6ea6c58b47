// SPDX-License-Identifier: Apache-2.0
// Bulk copies between global and shared memory, and the barriers that count their bytes: what the emulator and the PTX
// interpreter share. A copy lands as late as it may: what a fetch brings when all threads wait for it, what a store
// takes when its thread waits for that. Whoever looks or writes too early is found, and so is who does not fence.
// Written from what the PTX ISA says of cp.async.bulk, mbarrier and fence.proxy.async.
#ifndef FP8WIRE_TESTS_CUDA_BULK_COPIES_HPP
#define FP8WIRE_TESTS_CUDA_BULK_COPIES_HPP
#include <algorithm>
#include <cstring>
#include <map>

#include "memory_checks.hpp"

namespace checks {

using fp8wire::i64;
using fp8wire::u32;

/// Of the blocks of one launch, one after another. Addresses in shared memory count from its begin.
class bulk_copies {
 public:
  bulk_copies(device_memory& memory, shared_shadow& shadow) : memory_(memory), shadow_(shadow) {}

  /// A new block. watched: whether it has bulk copies at all; where not, nothing here costs time.
  void reset(u8* shared, std::size_t threads, bool watched) {
    shared_ = shared;
    watched_ = watched;
    barriers_.clear();
    fetches_.clear();
    sends_.clear();
    bytes_.assign(watched ? shadow_.size() : 0, {});
    threads_.assign(watched ? threads : 0, {});
  }

  /// mbarrier.init
  void init(u64 at, u64 count, int thread) {
    if (count == 0) throw fault("an mbarrier of no arrivals");
    if (barriers_.count(at) != 0) throw fault("an mbarrier is initialised twice");
    touch(at, 8, thread, true);
    shadow_.touch(at, 8, thread, true);
    barriers_[at] = {count, count, 0, 0, false};
  }
  /// mbarrier.arrive.expect_tx
  void arrive(u64 at, u64 bytes, int thread) {
    barrier& b = found(at, thread);
    if (b.pending == 0) throw fault("an arrival beyond the count of an mbarrier");
    b.expected += static_cast<i64>(bytes);
    --b.pending;
    complete(b);
  }
  /// mbarrier.try_wait.parity: whether the phase of that parity is over, and the thread knows what it brought.
  bool over(u64 at, u64 parity, int thread) {
    const barrier& b = found(at, thread);
    if ((b.phase & 1) == (parity & 1)) {
      threads_[static_cast<std::size_t>(thread)].asks = at + 1;
      return false;
    }
    threads_[static_cast<std::size_t>(thread)].knows[at] = b.phase;
    return true;
  }
  /// cp.async.bulk of global memory to shared memory
  void fetch(u64 to, const void* from, u64 bytes, u64 at, int thread) {
    expect_aligned(to, from, bytes);
    const barrier& b = found(at, thread);
    if (!b.shown) throw fault("a bulk copy counts on an mbarrier that was initialised without fence.proxy.async");
    memory_.run(from, bytes, false);
    expect_inside(to, bytes);
    expect_not_read(to, bytes, "a bulk copy into shared memory that a bulk store still reads");
    expect_no_barrier(to, bytes);
    for (u64 i = to; i < to + bytes; ++i) {
      if (bytes_[i].fetched) throw fault("two bulk copies into the same shared memory");
      if (bytes_[i].writer != 0) throw fault("a bulk copy into shared memory written without fence.proxy.async");
      bytes_[i].fetched = true;
    }
    shadow_.hand_over(to, bytes, thread);
    std::memset(shared_ + to, 0xCD, bytes);
    fetches_.push_back({to, static_cast<const u8*>(from), bytes, at});
  }
  /// fence.proxy.async
  void fence(int thread) {
    for (const auto& [from, bytes] : threads_[static_cast<std::size_t>(thread)].wrote)
      for (u64 i = from; i < from + bytes; ++i)
        if (bytes_[i].writer == thread + 1) bytes_[i].writer = 0;
    threads_[static_cast<std::size_t>(thread)].wrote.clear();
    for (auto& [at, b] : barriers_) b.shown = b.shown || bytes_[at].writer == 0;
  }
  /// cp.async.bulk of shared memory to global memory
  void send(void* to, u64 from, u64 bytes, int thread) {
    expect_aligned(from, to, bytes);
    memory_.may_write(to, bytes);
    expect_inside(from, bytes);
    look(from, bytes, thread);
    for (u64 i = from; i < from + bytes; ++i)
      if (bytes_[i].writer != 0) throw fault("a bulk store of shared memory written without fence.proxy.async");
    shadow_.run(from, bytes, thread, false);
    sends_.push_back(
        {static_cast<u8*>(to), from, bytes, thread, threads_[static_cast<std::size_t>(thread)].groups, false, {}});
  }
  /// cp.async.bulk.commit_group
  void commit(int thread) { ++threads_[static_cast<std::size_t>(thread)].groups; }
  /// cp.async.bulk.wait_group: all but the newest `keep` groups of the thread have read, and unless only_read, written.
  void wait(u64 keep, bool only_read, int thread) {
    const u64 groups = threads_[static_cast<std::size_t>(thread)].groups;
    for (store& s : sends_)
      if (s.thread == thread && s.group + keep < groups) {
        read(s);
        if (!only_read) write(s);
      }
    sends_.erase(std::remove_if(sends_.begin(), sends_.end(), [](const store& s) { return s.to == nullptr; }),
                 sends_.end());
  }

  /// An access of a thread's own, before it happens.
  void touch(u64 from, u64 bytes, int thread, bool write) {
    if (!watched_) return;
    expect_inside(from, bytes);
    expect_no_barrier(from, bytes);
    if (write) expect_not_read(from, bytes, "a write to shared memory that a bulk store still reads");
    look(from, bytes, thread);
    if (!write) return;
    for (u64 i = from; i < from + bytes; ++i) bytes_[i] = {thread + 1, false, 0, 0};
    threads_[static_cast<std::size_t>(thread)].wrote.emplace_back(from, bytes);
  }
  /// All threads have met: what one knows of barriers all know.
  void met() {
    std::map<u64, u64> all;
    for (const one_thread& t : threads_)
      for (const auto& [at, phase] : t.knows) all[at] = std::max(all[at], phase);
    for (one_thread& t : threads_) t.knows = all;
  }
  /// Nobody can go on before bytes arrive that somebody asked for: they do. False where there are none.
  bool land() {
    bool any = false;
    for (one_thread& t : threads_) {
      if (t.asks == 0) continue;
      const u64 at = t.asks - 1;
      t.asks = 0;
      barrier& b = barriers_.at(at);
      if (b.pending != 0) continue;
      i64 coming = 0;
      for (const load& f : fetches_)
        if (f.barrier == at) coming += static_cast<i64>(f.bytes);
      if (b.expected == 0) continue;  // another thread asked for the same
      if (coming != b.expected)
        throw fault("an mbarrier expects " + std::to_string(b.expected) + " bytes, and bulk copies bring " +
                    std::to_string(coming));
      for (const load& f : fetches_) {
        if (f.barrier != at) continue;
        std::memcpy(shared_ + f.to, f.from, f.bytes);
        for (u64 i = f.to; i < f.to + f.bytes; ++i) bytes_[i] = {0, false, at, b.phase + 1};
      }
      fetches_.erase(std::remove_if(fetches_.begin(), fetches_.end(), [&](const load& f) { return f.barrier == at; }),
                     fetches_.end());
      b.expected = 0;
      complete(b);
      any = true;
    }
    return any;
  }
  /// All threads have left.
  void finish() {
    if (!fetches_.empty()) throw fault("a block ends before a bulk copy into its shared memory has arrived");
    for (store& s : sends_) {
      if (!s.was_read) throw fault("a block ends before a bulk store has read its shared memory");
      write(s);
    }
    sends_.clear();
  }

 private:
  struct barrier {
    u64 count, pending, phase;
    i64 expected;  // bytes that are to come
    bool shown;  // to bulk copies
  };
  struct load {
    u64 to;
    const u8* from;
    u64 bytes, barrier;
  };
  struct store {
    u8* to;
    u64 from, bytes;
    int thread;
    u64 group;
    bool was_read;
    std::vector<u8> taken;
  };
  struct one_thread {
    u64 groups = 0;  // committed
    u64 asks = 0;  // for the mbarrier at asks - 1
    std::map<u64, u64> knows;  // phases of mbarriers that are over
    std::vector<std::pair<u64, u64>> wrote;  // since its last fence
  };
  struct byte {
    int writer = 0;  // thread + 1 that wrote and has not fenced since
    bool fetched = false;  // a bulk copy is on its way
    u64 barrier = 0, phase = 0;  // of the copy that brought it; phase 0: none
  };

  static void expect_aligned(u64 shared, const void* global, u64 bytes) {
    if (bytes == 0 || bytes % 16 != 0 || shared % 16 != 0 || reinterpret_cast<std::uintptr_t>(global) % 16 != 0)
      throw fault("a bulk copy whose addresses or size are no multiples of 16 bytes");
  }
  void expect_inside(u64 from, u64 bytes) const {
    if (from + bytes > bytes_.size()) throw fault("access outside of shared memory");
  }
  void expect_no_barrier(u64 from, u64 bytes) const {
    const auto next = barriers_.lower_bound(from / 8 * 8);
    if (next != barriers_.end() && next->first < from + bytes) throw fault("an mbarrier is touched as plain memory");
  }
  void expect_not_read(u64 from, u64 bytes, const char* what) const {
    for (const store& s : sends_)
      if (!s.was_read && from < s.from + s.bytes && s.from < from + bytes) throw fault(what);
  }
  /// What a bulk copy brought is there for those who waited.
  void look(u64 from, u64 bytes, int thread) const {
    for (u64 i = from; i < from + bytes; ++i) {
      const byte& b = bytes_[i];
      if (b.fetched) throw fault("shared memory that a bulk copy still fills");
      if (b.phase == 0) continue;
      const auto& knows = threads_[static_cast<std::size_t>(thread)].knows;
      const auto known = knows.find(b.barrier);
      if (known == knows.end() || known->second < b.phase)
        throw fault("shared memory that a bulk copy filled, without a wait for its mbarrier");
    }
  }
  barrier& found(u64 at, int thread) {
    if (at % 8 != 0) throw fault("a misaligned mbarrier");
    const auto b = barriers_.find(at);
    if (b == barriers_.end()) throw fault("an mbarrier that nobody initialised");
    shadow_.touch(at, 8, thread, true, true);
    return b->second;
  }
  static void complete(barrier& b) {
    if (b.pending != 0 || b.expected != 0) return;
    b.pending = b.count;
    ++b.phase;
  }
  void read(store& s) {
    if (s.was_read) return;
    s.taken.assign(shared_ + s.from, shared_ + s.from + s.bytes);
    s.was_read = true;
    shadow_.run(s.from, s.bytes, s.thread, false);  // until now: whoever writes has to know by a barrier
  }
  void write(store& s) {
    memory_.run(s.to, s.bytes, true);
    std::memcpy(s.to, s.taken.data(), s.bytes);
    s.to = nullptr;
  }

  device_memory& memory_;
  shared_shadow& shadow_;
  u8* shared_ = nullptr;
  bool watched_ = false;
  std::map<u64, barrier> barriers_;
  std::vector<load> fetches_;
  std::vector<store> sends_;
  std::vector<byte> bytes_;
  std::vector<one_thread> threads_;
};

}  // namespace checks
#endif
