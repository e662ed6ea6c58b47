// SPDX-License-Identifier: Apache-2.0
/// Any tile, element by element: ragged edges, any strides, NaN and Inf, status words. It reads the weights twice.
///
/// Whole, aligned tiles of finite weights go the fast way; this is the way of all others, and it makes the same bytes.
#ifndef FP8WIRE_QUANT_KERNEL_EDGE_TILE_HPP
#define FP8WIRE_QUANT_KERNEL_EDGE_TILE_HPP
#include <fp8wire/quant/kernel/block_scales.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Calls see(row, col) for the thread's elements of a tile, `inside` telling whether the matrix has them: all threads
/// of a warp are in one row, in 32 adjacent columns.
template <int Threads, class Context, class See>
FP8WIRE_BODY void each_element(Context& c, const tile_place& place, const See& see) {
  for (int element = c.thread(); element < tile_extent * tile_extent; element += Threads) {
    const int row = element / tile_extent, col = element % tile_extent;
    see(row, col, row < place.rows && col < place.cols);
  }
}

/// What a rule sees of a weight: magnitude bits of its FP32 value, 0 for a NaN that does not count.
template <class Recipe, class In> FP8WIRE_BODY u32 seen_magnitude(In weight) {
  const u32 bits = f32::magnitude(bits_of(reference::load<Recipe>(weight)));
  return f32::is_nan(bits) && !Recipe::rule::nan_poisons_amax ? 0 : bits;
}

/// The logical index of the first NaN or Inf among what a thread has seen.
template <class In> struct nonfinite_seen {
  u64 first = no_index;
  FP8WIRE_BODY void see(In weight, i64 index) {
    if (!f32::is_finite(bits_of(to_float(weight))) && static_cast<u64>(index) < first) first = static_cast<u64>(index);
  }
  template <class Context> FP8WIRE_BODY void report(Context& c, u64* status) const {
    if (status != nullptr && first != no_index) c.global_min(status, first);
  }
};

/// The shared memory of an edge tile.
template <class Recipe> struct edge_shared {
  u32 amax[static_cast<std::size_t>(block_grid<Recipe>::count)];
};

/// Quantizes a tile whatever it looks like. task: in, amax_floor, status, index_base. operands: one for each block.
template <class Recipe, class In, int Threads, class Context, class Task, class Codes, class Scales>
FP8WIRE_BODY void quantize_edge_tile(Context& c, edge_shared<Recipe>& shared, float* operands, const Task& task,
                                     const Codes& codes, const Scales& scales, const tile_place& place) {
  using grid = block_grid<Recipe>;
  using block = typename Recipe::block;
  const auto in = task.in.slice_of(place.batch);
  for (int i = c.thread(); i < grid::count; i += Threads) c.write(shared.amax + i, u32{0});
  c.sync();
  nonfinite_seen<In> bad;
  each_element<Threads>(c, place, [&](int row, int col, bool inside) {
    u32 magnitude = 0;
    if (inside) {
      const In weight = c.load(&in(place.row() + row, place.col() + col));
      bad.see(weight, task.index_base + (place.batch * in.rows + place.row() + row) * in.cols + place.col() + col);
      magnitude = seen_magnitude<Recipe>(weight);
    }
    u32* amax = shared.amax + row / block::rows * grid::cols + col / block::cols;
    if constexpr (block::cols % warp_size == 0) {
      magnitude = c.warp_max(magnitude);
      if (c.thread() % warp_size == 0) c.shared_max(amax, magnitude);
    } else {
      c.shared_max(amax, magnitude);
    }
  });
  bad.report(c, task.status);
  c.sync();
  for (int i = c.thread(); i < grid::count; i += Threads) {
    const int row = i / grid::cols, col = i % grid::cols;
    u32 amax = c.read(shared.amax + i);
    if constexpr (Recipe::num.edge == edge_pad::last_element) {
      const bool ragged = (row + 1) * block::rows > place.rows || (col + 1) * block::cols > place.cols;
      const u32 last = seen_magnitude<Recipe>(c.load(&in(in.rows - 1, in.cols - 1)));
      if (ragged && last > amax) amax = last;
    }
    settle<Recipe, In>(c, scales, place, row, col, amax, task.amax_floor, operands);
  }
  c.sync();
  each_element<Threads>(c, place, [&](int row, int col, bool inside) {
    if (!inside) return;
    const In weight = c.load(&in(place.row() + row, place.col() + col));
    const float operand = c.read(operands + row / block::rows * grid::cols + col / block::cols);
    c.store(&codes(place.batch, place.row() + row, place.col() + col), any_code<Recipe>(c, weight, operand));
  });
}

}  // namespace kernel
FP8WIRE_ABI_END
#endif
