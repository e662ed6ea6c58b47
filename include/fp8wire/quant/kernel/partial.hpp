// SPDX-License-Identifier: Apache-2.0
/// Bodies for blocks that no tile holds whole: parts of a matrix, rows, tensors. Amax first, then scales and codes.
///
/// Between the two lies whatever makes the maxima those of the whole block: the end of a launch for a tensor, a MAX
/// over ranks for the shards of an optimizer. A flat range of a matrix is at most three of these parts.
#ifndef FP8WIRE_QUANT_KERNEL_PARTIAL_HPP
#define FP8WIRE_QUANT_KERNEL_PARTIAL_HPP
#include <fp8wire/quant/kernel/edge_tile.hpp>
#include <fp8wire/quant/kernel/stages.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// A part of one rows x cols matrix: part(0, 0) is its element (row, col).
/// amax: scale_rows x scale_cols of the whole matrix, FP32 magnitudes as bits; codes: the shape of the part, ignored by
/// the amax body.
template <any_recipe Recipe, class In> struct partial_task {
  using recipe = Recipe;
  using input = In;
  static_assert(Recipe::num.edge == edge_pad::zero, "a part does not know the matrix's last element");
  matrix_view<const In> part;
  i64 row, col, rows, cols;
  matrix_view<u32> amax;
  matrix_view<u8> codes;
  u64* status;
  i64 index_base;
  float amax_floor;
  int vector;
};

template <class Recipe, class In> inline int vector_of(const partial_task<Recipe, In>& task) noexcept {
  const int in = vector_width(task.part), codes = task.codes.data == nullptr ? 32 : vector_width(task.codes);
  return in < codes ? in : codes;
}

/// Tiles of the matrix that the part has elements in.
template <class Recipe, class In>
FP8WIRE_HD constexpr i64 tiles_of_task(const partial_task<Recipe, In>& task) noexcept {
  if (task.part.rows == 0 || task.part.cols == 0) return 0;
  return tiles_along(task.row % tile_extent + task.part.rows) * tiles_along(task.col % tile_extent + task.part.cols);
}

/// What both bodies share: where a tile of the matrix lies in the part, and which blocks it meets.
template <class Task> struct part_tile {
  using block = typename Task::recipe::block;
  using input = typename Task::input;
  static constexpr int grid_rows = block::rows == whole ? 1 : tile_extent / block::rows;
  static constexpr int grid_cols = block::cols == whole ? 1 : tile_extent / block::cols;
  static constexpr int count = grid_rows * grid_cols;
  static constexpr int threads = tile_threads<input>;

  const Task& task;
  i64 tile_row, tile_col;  // in the matrix
  i64 row, col;            // in the part; negative where the part begins inside the tile

  static FP8WIRE_BODY part_tile of(const Task& task, i64 tile) {
    const i64 across = tiles_along(task.col % tile_extent + task.part.cols);
    const i64 down = tile / across;
    const i64 tile_row = task.row / tile_extent + down, tile_col = task.col / tile_extent + (tile - down * across);
    return {task, tile_row, tile_col, tile_row * tile_extent - task.row, tile_col * tile_extent - task.col};
  }
  FP8WIRE_BODY bool whole_tile(int width) const {
    return row >= 0 && col >= 0 && row + tile_extent <= task.part.rows && col + tile_extent <= task.part.cols &&
           task.vector >= width && col % width == 0;
  }
  FP8WIRE_BODY bool inside(int r, int c) const {
    return row + r >= 0 && col + c >= 0 && row + r < task.part.rows && col + c < task.part.cols;
  }
  /// The block of the tile's element (r, c) in the tile's grid, and the amax of a block of that grid.
  static FP8WIRE_BODY int block_at(int r, int c) {
    const int block_row = block::rows == whole ? 0 : r / (block::rows == whole ? 1 : block::rows);
    const int block_col = block::cols == whole ? 0 : c / (block::cols == whole ? 1 : block::cols);
    return block_row * grid_cols + block_col;
  }
  FP8WIRE_BODY u32* amax(int at) const {
    const i64 block_row = (block::rows == whole ? 0 : tile_row * grid_rows) + at / grid_cols;
    const i64 block_col = (block::cols == whole ? 0 : tile_col * grid_cols) + at % grid_cols;
    if (block_row >= task.amax.rows || block_col >= task.amax.cols) return nullptr;
    return &task.amax(block_row, block_col);
  }
};

/// Raises amax to that of the part's elements and reports NaN and Inf. Expects: amax was zero before the first part.
/// Source: one_task or task_table of a partial_task.
template <class Source, class Task> struct partial_amax_body {
  using recipe = typename Task::recipe;
  using input = typename Task::input;
  using tile = part_tile<Task>;
  using params = Source;
  static constexpr int threads = tile::threads, blocks_per_sm = 1024 / threads;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    const tile at = tile::of(*mine.task, mine.tile);
    if constexpr (tile::count == 1) {
      using held = fragment<recipe, input, Context::vector_bytes>;
      if (at.whole_tile(held::width)) {
        held part;
        part.load(c, at.task.part, 0, at.row, at.col);
        u32 largest = held::folded(part.all_magnitudes(c));
        if (!c.sync_or(held::nonfinite(largest))) {
          largest = c.warp_max(largest);
          if (c.thread() % warp_size == 0 && largest > 0)
            c.global_max(at.amax(0), widened<input>(largest));
          return;
        }
      }
    }
    each(c, at);
  }

 private:
  template <class Context> static FP8WIRE_BODY void each(Context& c, const tile& at) {
    constexpr bool shared_by_warp = tile::block::cols == whole || tile::block::cols % warp_size == 0;
    nonfinite_seen<input> bad;
    for (int element = c.thread(); element < tile_extent * tile_extent; element += threads) {
      const int row = element / tile_extent, col = element % tile_extent;
      u32 magnitude = 0;
      if (at.inside(row, col)) {
        const i64 part_row = at.row + row, part_col = at.col + col;
        const input weight = c.load(&static_cast<const input&>(at.task.part(part_row, part_col)));
        bad.see(weight, at.task.index_base + (at.task.row + part_row) * at.task.cols + at.task.col + part_col);
        magnitude = seen_magnitude<recipe>(weight);
      }
      if constexpr (shared_by_warp) magnitude = c.warp_max(magnitude);
      if (magnitude > 0 && (!shared_by_warp || c.thread() % warp_size == 0))
        c.global_max(at.amax(tile::block_at(row, col)), magnitude);
    }
    bad.report(c, at.task.status);
  }
};

/// Codes of the part under the scales of amax. Source: one_task or task_table of a partial_task.
template <class Source, class Task> struct partial_cast_body {
  using recipe = typename Task::recipe;
  using input = typename Task::input;
  using tile = part_tile<Task>;
  using params = Source;
  static constexpr int threads = tile::threads, blocks_per_sm = 1024 / threads;
  template <int> struct shared {
    alignas(16) float operands[static_cast<std::size_t>(tile::count)];
  };

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>& s, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    const tile at = tile::of(*mine.task, mine.tile);
    bool finite = true;
    for (int i = c.thread(); i < tile::count; i += threads) {
      const u32* amax = at.amax(i);
      const u32 bits = amax == nullptr ? 0 : c.load(amax);
      const float operand = reference::block_scale<recipe, input>(bits, at.task.amax_floor).operand;
      c.write(s.operands + i, operand);
      finite &= f32::is_finite(bits) && f32::is_finite(bits_of(recipe::rule::apply(float_of(bits), operand)));
    }
    using held = fragment<recipe, input, Context::vector_bytes>;
    constexpr bool fast = tile::block::cols == whole || tile::block::cols % held::width == 0;
    if constexpr (fast) {
      if (at.whole_tile(held::width)) {
        held part;
        part.load(c, at.task.part, 0, at.row, at.col);
        if constexpr (!converts_all<typename recipe::element>) {
          // A NaN need not show in the amax.
          for (int i = 0; i < held::bands; ++i) finite &= !held::nonfinite(held::folded(part.band_magnitudes(c, i)));
        } else {
          finite = true;
        }
        if (!c.sync_or(!finite)) {
          const int row = held::row_of(c.thread()), col = held::col_of(c.thread());
          const auto codes = rows_of(at.task.codes, 0, at.row + row, at.col + col, held::step);
          FP8WIRE_UNROLL
          for (int i = 0; i < held::bands; ++i) {
            const same_operand operand{c.read(s.operands + tile::block_at(row + i * held::step, col))};
            c.store(reinterpret_cast<typename held::codes_vector*>(codes(i)), part.codes(c, i, operand));
          }
          return;
        }
      }
    }
    c.sync();
    for (int element = c.thread(); element < tile_extent * tile_extent; element += threads) {
      const int row = element / tile_extent, col = element % tile_extent;
      if (!at.inside(row, col)) continue;
      const input weight = c.load(&static_cast<const input&>(at.task.part(at.row + row, at.col + col)));
      const float operand = c.read(s.operands + tile::block_at(row, col));
      c.store(&at.task.codes(at.row + row, at.col + col), reference::encode<recipe, input>(weight, operand));
    }
  }
};

/// Scales of a grid of maxima, wherever they belong.
template <any_recipe Recipe, class In, class Scales = matrix_view<stored_t<Recipe>>> struct scales_task {
  using recipe = Recipe;
  using input = In;
  matrix_view<const u32> amax;
  Scales scales;
  float amax_floor;
};

/// One thread a scale; the launch has ceil(scales / threads) blocks.
template <class Task> struct scales_body {
  using recipe = typename Task::recipe;
  using params = Task;
  static constexpr int threads = 256, blocks_per_sm = 4;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& task) {
    const i64 at = c.block() * threads + c.thread(), cols = task.amax.cols;
    if (at >= task.amax.rows * cols) return;
    const i64 row = at / cols, col = at - row * cols;
    const u32 amax = c.load(&task.amax(row, col));
    const auto scale = reference::block_scale<recipe, typename Task::input>(amax, task.amax_floor);
    c.store(&task.scales(0, row, col), scale.stored);
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
