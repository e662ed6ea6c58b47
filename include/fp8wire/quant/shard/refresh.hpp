// SPDX-License-Identifier: Apache-2.0
/// Persistent FP8 parameters after an optimizer step: masters -> FP8 shard -> the gathered tensor and its scales.
#ifndef FP8WIRE_QUANT_SHARD_REFRESH_HPP
#define FP8WIRE_QUANT_SHARD_REFRESH_HPP
#include <fp8wire/core/communicator.hpp>
#include <fp8wire/quant/shard/block_scales.hpp>
#include <fp8wire/quant/shard/partial_amax.hpp>
#include <fp8wire/quant/shard/partial_cast.hpp>

FP8WIRE_ABI_BEGIN

/// A parameter that a rank keeps in FP8, in memory of the caller's, dense. What the last refresh left in codes and
/// scales is what the next one counts against.
template <any_recipe Recipe> struct persistent_parameter {
  matrix_extents of;
  u8* codes = nullptr;                 // batch x rows x cols: the whole tensor
  stored_t<Recipe>* scales = nullptr;  // batch x scale_rows x scale_cols
  u32* amaxes = nullptr;               // scratch, as many as scales
  float* operands = nullptr;           // scratch, as many as scales

  constexpr i64 grid_rows() const noexcept { return scale_rows<typename Recipe::block>(of.rows); }
  constexpr i64 grid_cols() const noexcept { return scale_cols<typename Recipe::block>(of.cols); }
  constexpr i64 elements() const noexcept { return of.batch * of.rows * of.cols; }
  constexpr i64 blocks() const noexcept { return of.batch * grid_rows() * grid_cols(); }
  template <class Value> constexpr matrix_view<Value> grid(Value* values) const noexcept {
    return dense(values, grid_rows(), grid_cols(), of.batch);
  }
  constexpr const_pair_view<Recipe> pair() const noexcept {
    return {dense<const u8>(codes, of.rows, of.cols, of.batch), grid<const stored_t<Recipe>>(scales)};
  }
};

/// What an optimizer step changed. Masters and codes are this rank's; scales are the tensor's, the same at every rank.
struct refresh_counts {
  i64 masters = 0, masters_changed = 0;  // changed: in any bit, where the earlier ones are given
  i64 codes_changed = 0;
  i64 scales = 0, scales_changed = 0;
  i64 blocks_moved = 0;           // blocks whose scale went to another power of two
  i64 first_nonfinite = -1;       // index of this rank's first NaN or Inf in the tensor

  constexpr bool finite() const noexcept { return first_nonfinite < 0; }
  bool operator==(const refresh_counts&) const = default;
  /// Of several ranks or tensors together. The first NaN or Inf is the lowest index of any of them.
  constexpr refresh_counts& operator+=(const refresh_counts& more) noexcept {
    masters += more.masters;
    masters_changed += more.masters_changed;
    codes_changed += more.codes_changed;
    scales += more.scales;
    scales_changed += more.scales_changed;
    blocks_moved += more.blocks_moved;
    if (finite() || (!more.finite() && more.first_nonfinite < first_nonfinite)) first_nonfinite = more.first_nonfinite;
    return *this;
  }
};

/// Values that differ in any bit.
constexpr i64 count_changed(const float* before, const float* after, i64 count) noexcept {
  i64 changed = 0;
  for (i64 i = 0; i < count; ++i) changed += bits_of(before[i]) != bits_of(after[i]) ? 1 : 0;
  return changed;
}

/// Quantizes this rank's masters under scales of the whole tensor and gathers the codes of all ranks; every rank calls
/// it. A learner whose model is BF16 gives a recipe with `f32_through_bf16`: its tools round the masters to the model's
/// dtype first, so that the bytes are those of the BF16 weights.
/// ranges: each rank's part of the tensor, which cover it without overlap (model/shards.hpp checks that). masters:
/// ranges[rank] elements. before: the same masters as the last refresh saw them, or null: they are not counted then.
/// Throws: precondition_error, before any collective call. NaN and Inf: bytes by the rule, and the first index.
/// Exact: codes and scales are those of quantizing the whole tensor. Threads: one rank a thread, a parameter each.
template <any_recipe Recipe, communicator Communicator>
constexpr refresh_counts refresh(const persistent_parameter<Recipe>& parameter, std::span<const flat_range> ranges,
                                 const float* masters, const float* before, Communicator& with,
                                 float amax_floor = Recipe::num.amax_floor) {
  detail::expect_equal(static_cast<i64>(ranges.size()), with.size(), "shards: one range for each rank");
  const flat_range mine = ranges[static_cast<std::size_t>(with.rank())];
  detail::expect_range(parameter.of, mine);
  refresh_counts counts;
  counts.masters = mine.length;
  counts.scales = parameter.blocks();
  if (before != nullptr) counts.masters_changed = count_changed(before, masters, mine.length);

  for (i64 i = 0; i < counts.scales; ++i) parameter.amaxes[i] = 0;
  counts.first_nonfinite = partial_amax<Recipe, float>(parameter.of, mine, masters, parameter.grid(parameter.amaxes));
  with.all_max(parameter.amaxes, counts.scales);
  const scale_changes scales =
      block_scales<Recipe, float>(parameter.template grid<const u32>(parameter.amaxes),
                                  parameter.grid(parameter.scales), parameter.grid(parameter.operands), amax_floor);
  counts.scales_changed = scales.changed;
  counts.blocks_moved = scales.moved;
  counts.codes_changed =
      partial_cast<Recipe, float>(parameter.of, mine, masters, parameter.template grid<const float>(parameter.operands),
                                  mine.empty() ? nullptr : parameter.codes + mine.start);
  with.all_gather(parameter.codes, ranges);
  return counts;
}

FP8WIRE_ABI_END
#endif
