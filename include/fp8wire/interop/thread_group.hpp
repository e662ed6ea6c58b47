// SPDX-License-Identifier: Apache-2.0
/// A communicator among threads of one process.
#ifndef FP8WIRE_INTEROP_THREAD_GROUP_HPP
#define FP8WIRE_INTEROP_THREAD_GROUP_HPP
#include <barrier>
#include <cstring>
#include <vector>

#include <fp8wire/core/communicator.hpp>
#include <fp8wire/core/expects.hpp>

FP8WIRE_ABI_BEGIN

/// `ranks` threads, each with its member(rank). Outlives its members.
class thread_group {
 public:
  explicit thread_group(int ranks) : meeting_(ranks), memory_(static_cast<std::size_t>(ranks)) {}
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;

  /// One rank's end. Threads: one at a time; all ranks make the same calls with the same counts.
  class member {
   public:
    int rank() const noexcept { return rank_; }
    int size() const noexcept { return static_cast<int>(group_->memory_.size()); }

    /// Every rank reduces its share of the values for all.
    void all_max(u32* values, i64 count) {
      meet(values);
      const auto share = [&](i64 rank) {
        return count / size() * rank + (rank < count % size() ? rank : count % size());
      };
      for (i64 i = share(rank_); i < share(rank_ + 1); ++i) {
        u32 largest = 0;
        for (void* const from : group_->memory_) {
          const u32 value = static_cast<const u32*>(from)[i];
          largest = value > largest ? value : largest;
        }
        for (void* const to : group_->memory_) static_cast<u32*>(to)[i] = largest;
      }
      group_->meeting_.arrive_and_wait();
    }
    /// Ranks may share one memory, or have one each.
    void all_gather(u8* bytes, std::span<const flat_range> ranges) {
      detail::expect_equal(static_cast<i64>(ranges.size()), size(), "all_gather: one range for each rank");
      meet(bytes);
      for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
        const auto* from = static_cast<const u8*>(group_->memory_[rank]);
        if (from != bytes && !ranges[rank].empty())
          std::memcpy(bytes + ranges[rank].start, from + ranges[rank].start,
                      static_cast<std::size_t>(ranges[rank].length));
      }
      group_->meeting_.arrive_and_wait();
    }

   private:
    friend class thread_group;
    member(thread_group& group, int rank) : group_(&group), rank_(rank) {}
    void meet(void* memory) {
      group_->memory_[static_cast<std::size_t>(rank_)] = memory;
      group_->meeting_.arrive_and_wait();
    }
    thread_group* group_;
    int rank_;
  };

  /// Expects: 0 <= rank < ranks, each taken by one thread (unchecked).
  member join(int rank) noexcept { return {*this, rank}; }

 private:
  std::barrier<> meeting_;
  std::vector<void*> memory_;  // of the call that all ranks are in
};
static_assert(communicator<thread_group::member>);

FP8WIRE_ABI_END
#endif
