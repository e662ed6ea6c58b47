// SPDX-License-Identifier: Apache-2.0
/// Pairs whose blocks span tiles, a scale for each matrix, row or column: four launches for a table of any number.
///
/// Maxima lie where the scales will, so that no memory is needed beside the pair: clear, raise the maxima, cast, then
/// each maximum becomes its scale. The steps are tasks of their own kinds, which are launched by turns.
#ifndef FP8WIRE_QUANT_KERNEL_SPANNING_HPP
#define FP8WIRE_QUANT_KERNEL_SPANNING_HPP
#include <fp8wire/quant/kernel/grouped.hpp>
#include <fp8wire/quant/kernel/partial.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// One pair. Everything as in quantize_task; scales: their batch x rows x cols grid.
template <any_recipe Recipe, class In> struct spanning_task {
  using recipe = Recipe;
  using input = In;
  using block = typename Recipe::block;
  static_assert(sizeof(stored_t<Recipe>) == sizeof(u32), "scales of whole rows and matrices are float on a device");
  static_assert((block::rows == whole || tile_extent % block::rows == 0) &&
                    (block::cols == whole || tile_extent % block::cols == 0),
                "a block's extents divide 128, or are fp8wire::whole");
  matrix_view<const In> in;
  matrix_view<u8> codes;
  matrix_view<stored_t<Recipe>> scales;
  u64* status;
  i64 index_base;
  float amax_floor;
  int vector;

  FP8WIRE_HD u32* amax(i64 b, i64 row, i64 col) const noexcept { return reinterpret_cast<u32*>(&scales(b, row, col)); }
  /// Matrix b of the batch as a part that is all of it.
  FP8WIRE_HD partial_task<Recipe, In> matrix(i64 b) const noexcept {
    return {in.slice_of(b),
            0,
            0,
            in.rows,
            in.cols,
            {amax(b, 0, 0), scales.rows, scales.cols, scales.row_stride, 1, 0, scales.col_stride},
            codes.slice_of(b),
            status,
            index_base + b * in.rows * in.cols,
            amax_floor,
            vector};
  }
};

template <class Task> struct clear_step : Task {};
template <class Task> struct amax_step : Task {};
template <class Task> struct cast_step : Task {};
template <class Task> struct scale_step : Task {};

/// One tile of a task that was made on the way.
template <class Task> struct one_tile {
  Task task;
  i64 tile;
  template <class Context> FP8WIRE_BODY assignment<Task> assigned(Context&) const { return {&task, tile}; }
};

/// Body, partial_amax_body or partial_cast_body, on every matrix of a batch.
template <template <class, class> class Body, class Source, class Step> struct matrices_body {
  using part = partial_task<typename Step::recipe, typename Step::input>;
  using one_matrix = Body<one_tile<part>, part>;
  using params = Source;
  static constexpr int threads = one_matrix::threads, blocks_per_sm = one_matrix::blocks_per_sm;
  static constexpr bool laid = true;  // as short of registers as bodies with a layout's arithmetic
  template <int Bytes> using shared = typename one_matrix::template shared<Bytes>;

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>& s, const params& source) {
    const assignment<Step> mine = source.assigned(c);
    const i64 tiles = tiles_of(1, mine.task->in.rows, mine.task->in.cols);
    const i64 b = mine.tile < tiles ? 0 : mine.tile / tiles;
    one_matrix::run(c, s, {mine.task->matrix(b), mine.tile - b * tiles});
  }
};

/// A thread a scale: clears its maximum, or makes the scale of it.
template <bool Makes, class Source, class Step> struct grid_body {
  using params = Source;
  static constexpr int threads = 256, blocks_per_sm = 4;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& source) {
    const assignment<Step> mine = source.assigned(c);
    const auto& scales = mine.task->scales;
    const i64 at = mine.tile * threads + c.thread();
    if (at >= scales.batch * scales.rows * scales.cols) return;
    const i64 line = at / scales.cols, col = at - line * scales.cols, b = line / scales.rows;
    const i64 row = line - b * scales.rows;
    u32* const amax = mine.task->amax(b, row, col);
    if constexpr (Makes) {
      using recipe = typename Step::recipe;
      const u32 bits = c.load(static_cast<const u32*>(amax));
      const auto scale = reference::block_scale<recipe, typename Step::input>(bits, mine.task->amax_floor);
      c.store(&scales(b, row, col), scale.stored);
    } else {
      c.store(amax, u32{0});
    }
  }
};

template <class Task> FP8WIRE_HD constexpr i64 tiles_of_task(const amax_step<Task>& task) noexcept {
  return tiles_of(task.in.batch, task.in.rows, task.in.cols);
}
template <class Task> FP8WIRE_HD constexpr i64 tiles_of_task(const cast_step<Task>& task) noexcept {
  return tiles_of(task.in.batch, task.in.rows, task.in.cols);
}
template <class Task> FP8WIRE_HD constexpr i64 tiles_of_task(const clear_step<Task>& task) noexcept {
  return ceil_div(task.scales.size(), 256);
}
template <class Task> FP8WIRE_HD constexpr i64 tiles_of_task(const scale_step<Task>& task) noexcept {
  return ceil_div(task.scales.size(), 256);
}

template <class Task> struct body_of<clear_step<Task>> {
  static constexpr int turn = 0;
  template <class Source> using from = grid_body<false, Source, clear_step<Task>>;
};
template <class Task> struct body_of<amax_step<Task>> {
  static constexpr int turn = 1;
  template <class Source> using from = matrices_body<partial_amax_body, Source, amax_step<Task>>;
};
template <class Task> struct body_of<cast_step<Task>> {
  static constexpr int turn = 2;
  template <class Source> using from = matrices_body<partial_cast_body, Source, cast_step<Task>>;
};
template <class Task> struct body_of<scale_step<Task>> {
  static constexpr int turn = 3;
  template <class Source> using from = grid_body<true, Source, scale_step<Task>>;
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
