// SPDX-License-Identifier: Apache-2.0
/// Groups of unequal size in one buffer: experts with different token counts, or K cut into groups.
#ifndef FP8WIRE_LAYOUT_GROUPS_HPP
#define FP8WIRE_LAYOUT_GROUPS_HPP
#include <span>

#include <fp8wire/core/expects.hpp>
#include <fp8wire/layout/concept.hpp>

FP8WIRE_ABI_BEGIN

/// Extents of one group's matrix.
struct group_extents {
  i64 rows = 0, cols = 0;
};

/// Element offset of every group when each is laid out and padded on its own, one after another; returns the total.
/// groups and offsets: the same number. An empty group takes no space. Throws precondition_error on shapes that Layout
/// refuses and on a total beyond 2^58.
/// Source: FlashInfer's grouped 128x4 scales; DeepGEMM's k-grouped packed scales, where every group starts a new int32.
template <layout Layout>
constexpr i64 group_offsets(std::span<const group_extents> groups, std::span<i64> offsets) {
  detail::expect_equal(static_cast<i64>(offsets.size()), static_cast<i64>(groups.size()), "group_offsets: offsets");
  i64 total = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const shape_check shape = Layout::accepts(1, groups[g].rows, groups[g].cols);
    if (!shape.ok()) detail::raise(shape.what, shape.got, shape.expected);
    offsets[g] = total;
    total += typename Layout::mapping{1, groups[g].rows, groups[g].cols}.size();
    if (total > i64{1} << 58) detail::raise("group_offsets: the groups exceed 2^58 elements", total, i64{1} << 58);
  }
  return total;
}

FP8WIRE_ABI_END
#endif
