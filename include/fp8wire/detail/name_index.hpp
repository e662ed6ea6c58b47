// SPDX-License-Identifier: Apache-2.0
/// Name to index in constant time, over names that somebody else stores.
#ifndef FP8WIRE_DETAIL_NAME_INDEX_HPP
#define FP8WIRE_DETAIL_NAME_INDEX_HPP
#include <string_view>
#include <vector>

#include <fp8wire/core/hash.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Open addressing over indices. `name_of(index)` gives a stored name back, so that no name is kept twice.
class name_index {
 public:
  template <class NameOf> i64 find(std::string_view name, const NameOf& name_of) const noexcept {
    if (slots_.empty()) return -1;
    for (std::size_t at = start(name);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == 0) return -1;
      if (name_of(slots_[at] - 1) == name) return static_cast<i64>(slots_[at]) - 1;
    }
  }
  /// Expects: the name of `index` is stored and not yet indexed.
  template <class NameOf> void insert(u32 index, const NameOf& name_of) {
    if (2 * (count_ + 1) > slots_.size()) {
      std::vector<u32> old(slots_.empty() ? 16 : 2 * slots_.size());
      old.swap(slots_);
      for (const u32 slot : old)
        if (slot != 0) place(slot, name_of(slot - 1));
    }
    place(index + 1, name_of(index));
    ++count_;
  }

 private:
  std::size_t start(std::string_view name) const noexcept {
    const u64 state = hash(name);
    return static_cast<std::size_t>(state ^ state >> 32) & (slots_.size() - 1);
  }
  void place(u32 slot, std::string_view name) noexcept {
    std::size_t at = start(name);
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
  std::vector<u32> slots_;  // index + 1, 0 is free; the size is a power of two
  std::size_t count_ = 0;
};

}  // namespace detail
FP8WIRE_ABI_END
#endif
