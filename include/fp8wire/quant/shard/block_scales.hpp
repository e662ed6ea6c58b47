// SPDX-License-Identifier: Apache-2.0
/// Scales of all blocks of a tensor, once, from amaxes that every rank has.
#ifndef FP8WIRE_QUANT_SHARD_BLOCK_SCALES_HPP
#define FP8WIRE_QUANT_SHARD_BLOCK_SCALES_HPP
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN

/// Stored scales that differ from what lay there before; and of those, the ones that went to another power of two.
struct scale_changes {
  i64 changed = 0, moved = 0;
  bool operator==(const scale_changes&) const = default;
};

namespace detail {
constexpr u32 stored_pattern(float scale) noexcept { return bits_of(scale); }
constexpr u32 stored_pattern(bf16 scale) noexcept { return bits_of(to_float(scale)); }
constexpr u32 stored_pattern(e8m0 scale) noexcept { return static_cast<u32>(scale.bits) << 23; }
}  // namespace detail

/// The stored scale of every block, and the operand its elements are combined with, which a rule may not be able to
/// tell from the stored scale.
/// amaxes: batch x rows x cols magnitudes as bits, whole: after the maximum over the ranks. scales: what the last call
/// left is counted against; operands: written; both of the same shape. In: the type of the weights, which may bound the
/// scale. amax_floor: finite, >= 0.
/// Throws: precondition_error, before any write. Exact: the scales of quantize; a recipe with the flush-to-zero rule
/// (te-sharded) diverges below 2^-118 as its tool does. Threads: no shared state.
template <any_recipe Recipe, class In>
constexpr scale_changes block_scales(matrix_view<const u32> amaxes, matrix_view<stored_t<Recipe>> scales,
                                     matrix_view<float> operands, float amax_floor = Recipe::num.amax_floor) {
  detail::expect_valid(amaxes, "amaxes: extents must be >= 0, fit 63 bits and have data");
  detail::expect_valid(scales, "scales: extents must be >= 0, fit 63 bits and have data");
  detail::expect_valid(operands, "operands: extents must be >= 0, fit 63 bits and have data");
  const auto expect_same = [&](const auto& view, const char* what) {
    detail::expect_equal(view.batch, amaxes.batch, what);
    detail::expect_equal(view.rows, amaxes.rows, what);
    detail::expect_equal(view.cols, amaxes.cols, what);
  };
  expect_same(scales, "scales: their shape differs from the amaxes");
  expect_same(operands, "operands: their shape differs from the amaxes");
  const u32 floor_bits = bits_of(amax_floor);
  if (!f32::is_finite(floor_bits) || ((floor_bits & f32::sign_mask) != 0 && !f32::is_zero(floor_bits)))
    detail::raise("amax floor: must be finite and not negative; its bits", static_cast<i64>(floor_bits), 0);

  scale_changes found;
  for (i64 b = 0; b < amaxes.batch; ++b) {
    for (i64 row = 0; row < amaxes.rows; ++row) {
      for (i64 col = 0; col < amaxes.cols; ++col) {
        const auto made = reference::block_scale<Recipe, In>(amaxes(b, row, col), amax_floor);
        const u32 before = detail::stored_pattern(scales(b, row, col)), now = detail::stored_pattern(made.stored);
        found.changed += before != now ? 1 : 0;
        found.moved += before >> 23 != now >> 23 ? 1 : 0;
        scales(b, row, col) = made.stored;
        operands(b, row, col) = made.operand;
      }
    }
  }
  return found;
}

FP8WIRE_ABI_END
#endif
