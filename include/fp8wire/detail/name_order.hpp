// SPDX-License-Identifier: Apache-2.0
/// Positions of named things in the order of their names, over names that somebody else stores.
///
/// For names from outside: whoever writes a file can make a hash table quadratic (name_index), but not a sort.
#ifndef FP8WIRE_DETAIL_NAME_ORDER_HPP
#define FP8WIRE_DETAIL_NAME_ORDER_HPP
#include <algorithm>
#include <string_view>
#include <vector>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// The order of names is that of their bytes. `name_of(position)` gives a stored name, for positions below `count`.
class name_order {
 public:
  name_order() = default;
  template <class NameOf> name_order(std::size_t count, const NameOf& name_of) : order_(count) {
    for (std::size_t i = 0; i < count; ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const int names = std::string_view(name_of(a)).compare(name_of(b));
      return names != 0 ? names < 0 : a < b;
    });
  }
  /// The position of `name`, the first of several, or -1.
  template <class NameOf> i64 find(std::string_view name, const NameOf& name_of) const {
    const auto at = std::lower_bound(
        order_.begin(), order_.end(), name,
        [&](std::size_t position, std::string_view wanted) { return std::string_view(name_of(position)) < wanted; });
    return at != order_.end() && name_of(*at) == name ? static_cast<i64>(*at) : -1;
  }
  /// The second position of a name that stands twice, or -1.
  template <class NameOf> i64 duplicate(const NameOf& name_of) const {
    for (std::size_t i = 1; i < order_.size(); ++i)
      if (name_of(order_[i - 1]) == name_of(order_[i])) return static_cast<i64>(order_[i]);
    return -1;
  }
  const std::vector<std::size_t>& positions() const noexcept { return order_; }

 private:
  std::vector<std::size_t> order_;
};

}  // namespace detail
FP8WIRE_ABI_END
#endif
