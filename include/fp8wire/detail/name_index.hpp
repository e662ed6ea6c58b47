// SPDX-License-Identifier: Apache-2.0
/// Name to index in constant time, over names that somebody else stores.
#ifndef FP8WIRE_DETAIL_NAME_INDEX_HPP
#define FP8WIRE_DETAIL_NAME_INDEX_HPP
#include <string_view>
#include <vector>

#include <fp8wire/core/hash.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Open addressing over indices. `name_of(index)` gives a stored name back, so that no name is kept twice; part of its
/// hash is kept beside the index, so that growing and most misses never look at a name.
class name_index {
 public:
  template <class NameOf> i64 find(std::string_view name, const NameOf& name_of) const noexcept {
    if (slots_.empty()) return -1;
    const u64 state = mixed(name);
    for (std::size_t at = start(state);; at = (at + 1) & (slots_.size() - 1)) {
      const slot& one = slots_[at];
      if (one.index == 0) return -1;
      if (one.hash == static_cast<u32>(state) && name_of(one.index - 1) == name) return static_cast<i64>(one.index) - 1;
    }
  }
  /// Expects: the name of `index` is stored and not yet indexed.
  template <class NameOf> void insert(u32 index, const NameOf& name_of) {
    if (2 * (count_ + 1) > slots_.size()) {
      std::vector<slot> old(slots_.empty() ? 16 : 2 * slots_.size());
      old.swap(slots_);
      for (const slot& one : old)
        if (one.index != 0) place(one);
    }
    place({index + 1, static_cast<u32>(mixed(name_of(index)))});
    ++count_;
  }

 private:
  struct slot {
    u32 index = 0;  // plus 1; 0 is free
    u32 hash = 0;
  };
  static u64 mixed(std::string_view name) noexcept {
    const u64 state = hash(name);
    return state ^ state >> 32;
  }
  // 32 bits of hash place up to 2^32 slots, which is as many as there are indices.
  std::size_t start(u64 state) const noexcept { return static_cast<u32>(state) & (slots_.size() - 1); }
  void place(const slot& one) noexcept {
    std::size_t at = start(one.hash);
    while (slots_[at].index != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = one;
  }
  std::vector<slot> slots_;  // the size is a power of two
  std::size_t count_ = 0;
};

}  // namespace detail
FP8WIRE_ABI_END
#endif
