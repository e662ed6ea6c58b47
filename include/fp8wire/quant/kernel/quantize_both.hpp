// SPDX-License-Identifier: Apache-2.0
/// The body of the kernel that makes rowwise and columnwise pairs (MXFP8 for training) from one read of the weights.
#ifndef FP8WIRE_QUANT_KERNEL_QUANTIZE_BOTH_HPP
#define FP8WIRE_QUANT_KERNEL_QUANTIZE_BOTH_HPP
#include <fp8wire/quant/kernel/quantize.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// As quantize_task, twice: Row's blocks lie along rows, Column's along columns. Neither pair is transposed.
template <any_recipe Row, any_recipe Column, class In, class RowScales = matrix_view<stored_t<Row>>,
          class ColumnScales = matrix_view<stored_t<Column>>>
struct both_task {
  using row_recipe = Row;
  using column_recipe = Column;
  using input = In;
  static_assert(Row::num.f32_through_bf16 == Column::num.f32_through_bf16,
                "one read serves both recipes: give both the same f32_through_bf16");
  matrix_view<const In> in;
  matrix_view<u8> codes, column_codes;
  RowScales scales;
  ColumnScales column_scales;
  u64* status;
  i64 index_base;
  float amax_floor;
  int vector;
};

template <class Row, class Column, class In, class RowScales, class ColumnScales>
inline int vector_of(const both_task<Row, Column, In, RowScales, ColumnScales>& task) noexcept {
  int vector = vector_width(task.in);
  for (const int codes : {vector_width(task.codes), vector_width(task.column_codes)})
    if (codes < vector) vector = codes;
  return vector;
}

/// Source: one_task or task_table of a both_task. Bytes: those of two calls of quantize().
template <class Source, class Task> struct both_body {
  using row_recipe = typename Task::row_recipe;
  using column_recipe = typename Task::column_recipe;
  using input = typename Task::input;
  using rows = row_stage<row_recipe, input, 16>;
  using columns = column_stage<column_recipe, input, 16>;
  using params = Source;
  static constexpr int threads = tile_threads<input>, blocks_per_sm = 1024 / threads;

  // A block may have 48 KiB: FP32's maxima of rows make room for those of columns, at the price of two barriers.
  static constexpr bool by_turns = sizeof(input) == 4;
  struct side_by_side {
    typename rows::shared row;
    typename columns::shared column;
  };
  union in_turn {
    typename rows::shared row;
    typename columns::shared column;
  };
  struct shared_memory {
    std::conditional_t<by_turns, in_turn, side_by_side> maxima;
    edge_shared<row_recipe> row_edge;
    edge_shared<column_recipe> column_edge;
    alignas(16) float row_operands[block_grid<row_recipe>::count];
    alignas(16) float column_operands[block_grid<column_recipe>::count];
  };
  static_assert(sizeof(shared_memory) <= 48 << 10);
  template <int> using shared = shared_memory;

  template <class Context> static FP8WIRE_BODY void run(Context& c, shared_memory& s, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    const Task& task = *mine.task;
    const tile_place place = place_of(mine.tile, task.in.rows, task.in.cols);
    if (place.whole() && task.vector >= rows::held::width && quantize_whole(c, s, task, place.as_whole()))
      return;
    quantize_edge_tile<row_recipe, input, threads>(c, s.row_edge, s.row_operands, task, task.codes, task.scales, place);
    quantize_edge_tile<column_recipe, input, threads>(c, s.column_edge, s.column_operands, task, task.column_codes,
                                                      task.column_scales, place);
  }

 private:
  template <class Context>
  static FP8WIRE_BODY bool quantize_whole(Context& c, shared_memory& s, const Task& task, const tile_place& place) {
    typename rows::held tile;
    tile.load(c, task.in, place.batch, place.row(), place.col());
    typename columns::held same;
    FP8WIRE_UNROLL
    for (int i = 0; i < rows::held::bands; ++i) same.at[i] = tile.at[i];
    if constexpr (!by_turns) columns::collect(c, s.maxima.column, same);
    if (c.sync_or(rows::held::nonfinite(rows::collect(c, s.maxima.row, tile)))) return false;
    bool finite = rows::settle(c, s.maxima.row, task.scales, place, task.amax_floor, s.row_operands);
    if constexpr (by_turns) {
      c.sync();
      columns::collect(c, s.maxima.column, same);
      c.sync();
    }
    finite &= columns::settle(c, s.maxima.column, task.column_scales, place, task.amax_floor, s.column_operands);
    if constexpr (converts_all<typename row_recipe::element> && converts_all<typename column_recipe::element>) c.sync();
    else if (c.sync_or(!finite)) return false;
    using held = typename rows::held;
    const i64 row = place.row() + held::row_of(c.thread()), col = place.col() + held::col_of(c.thread());
    const auto codes = rows_of(task.codes, place.batch, row, col, held::step);
    const auto column_codes = rows_of(task.column_codes, place.batch, row, col, held::step);
    using vector = typename held::codes_vector;
    FP8WIRE_UNROLL
    for (int i = 0; i < held::bands; ++i) {
      c.store(reinterpret_cast<vector*>(codes(i)), tile.codes(c, i, rows::operands(c, s.row_operands, i)));
      c.store(reinterpret_cast<vector*>(column_codes(i)),
              same.codes(c, i, columns::operands(c, s.column_operands, i)));
    }
    return true;
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
