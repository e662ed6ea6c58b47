// SPDX-License-Identifier: Apache-2.0
/// Which tensor a block works on: one passed by value, or a table in device memory that thousands share a launch by.
#ifndef FP8WIRE_QUANT_KERNEL_TASKS_HPP
#define FP8WIRE_QUANT_KERNEL_TASKS_HPP
#include <fp8wire/core/matrix_view.hpp>
#include <fp8wire/quant/kernel/context.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Rows and columns of the piece of a matrix that one block of threads works on.
inline constexpr int tile_extent = 128;

/// Tile `tile` of a task.
template <class Task> struct assignment {
  const Task* task;
  i64 tile;
};

/// One task, in the kernel's parameters. Block n works on tile n.
template <class Task> struct one_task {
  Task task;
  template <class Context> FP8WIRE_BODY assignment<Task> assigned(Context& c) const { return {&task, c.block()}; }
};

/// A job table in device memory: tasks[i] owns the blocks [first_tile[i], first_tile[i + 1]), the last one the rest.
/// first_tile: `count` sums in 64 bits, ascending from 0; tasks without tiles may repeat a sum. The launch has as many
/// blocks as there are tiles. Refreshing the pointers of a table leaves a captured graph valid.
template <class Task> struct task_table {
  const i64* first_tile;
  const Task* tasks;
  i64 count;

  // Every warp looks for itself, 32 sums at a time: three loads for 32768 tasks, and no barrier.
  template <class Context> FP8WIRE_BODY assignment<Task> assigned(Context& c) const {
    const i64 block = c.block();
    const int lane = c.thread() % warp_size;
    i64 low = 0, high = count;  // first_tile[low] <= block < first_tile[high]
    while (high - low > 1) {
      const i64 step = ceil_div(high - low, warp_size);
      const i64 probe = low + lane * step;
      const bool reached = probe < high && c.load(first_tile + probe) <= block;
      low += (c.warp_count(reached) - 1) * step;  // lane 0 has always reached
      high = low + step < high ? low + step : high;
    }
    return {tasks + low, block - c.load(first_tile + low)};
  }
};

/// Tiles along an extent >= 0. A shift: signed division costs more than the tile's other address arithmetic together.
FP8WIRE_HD constexpr i64 tiles_along(i64 extent) noexcept { return (extent + tile_extent - 1) >> 7; }
static_assert(tile_extent == 1 << 7);

/// Tiles of a batch of matrices.
FP8WIRE_HD constexpr i64 tiles_of(i64 batch, i64 rows, i64 cols) noexcept {
  return batch * tiles_along(rows) * tiles_along(cols);
}

/// Where a tile lies: its matrix, its number down and across, and how much of it is inside the matrix. A launch has
/// less than 2^31 tiles; elements are counted in 64 bits.
struct tile_place {
  int batch, down, across;
  int rows, cols;
  FP8WIRE_HD constexpr i64 row() const noexcept { return i64{down} * tile_extent; }
  FP8WIRE_HD constexpr i64 col() const noexcept { return i64{across} * tile_extent; }
  FP8WIRE_HD constexpr bool whole() const noexcept { return rows == tile_extent && cols == tile_extent; }
  /// The same of a whole tile, whose extents the compiler then knows: registers are what the fast path is short of.
  FP8WIRE_HD constexpr tile_place as_whole() const noexcept { return {batch, down, across, tile_extent, tile_extent}; }
};

/// Tile `tile` of matrices of rows x cols, row after row.
FP8WIRE_HD constexpr tile_place place_of(i64 tile, i64 rows, i64 cols) noexcept {
  const i64 across = tiles_along(cols), matrix = tiles_along(rows) * across;
  const i64 batch = tile < matrix ? 0 : tile / matrix;
  const i64 inside = tile - batch * matrix;
  const i64 down = inside / across;
  const tile_place place{static_cast<int>(batch), static_cast<int>(down), static_cast<int>(inside - down * across),
                         0, 0};
  const i64 below = rows - place.row(), right = cols - place.col();
  return {place.batch, place.down, place.across, static_cast<int>(below < tile_extent ? below : tile_extent),
          static_cast<int>(right < tile_extent ? right : tile_extent)};
}

/// Fills the sums of a table; tiles(task) is a task's number of blocks. Returns the blocks of the launch.
template <class Task, class Tiles> constexpr i64 sum_tiles(const Task* tasks, i64 count, i64* first_tile,
                                                           const Tiles& tiles) noexcept {
  i64 sum = 0;
  for (i64 i = 0; i < count; ++i) {
    first_tile[i] = sum;
    sum += tiles(tasks[i]);
  }
  return sum;
}

/// The rank of the NaN or Inf that came first, as a status word: all ones (-1) while there is none.
inline constexpr u64 no_index = ~u64{0};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
