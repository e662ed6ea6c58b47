// SPDX-License-Identifier: Apache-2.0
/// The body of the quantize kernel: one block of threads a tile of 128 x 128 weights, each read once.
#ifndef FP8WIRE_QUANT_KERNEL_QUANTIZE_HPP
#define FP8WIRE_QUANT_KERNEL_QUANTIZE_HPP
#include <fp8wire/quant/kernel/edge_tile.hpp>
#include <fp8wire/quant/kernel/stages.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// One tensor to quantize. in: batch x rows x cols of In. Codes, Scales: a matrix_view or a laid_out buffer, whose
/// padding stays as it is. status: where the first NaN's or Inf's index_base + index goes if it is less, or null.
/// vector: what vector_of said of the task; a smaller number is slower and makes the same bytes.
template <any_recipe Recipe, class In, class Codes = matrix_view<u8>, class Scales = matrix_view<stored_t<Recipe>>>
struct quantize_task {
  using recipe = Recipe;
  using input = In;
  matrix_view<const In> in;
  Codes codes;
  Scales scales;
  u64* status;
  i64 index_base;
  float amax_floor;
  int vector;
};

/// The widest access that fits the weights and the codes of a task, in elements.
template <class Task> inline int vector_of(const Task& task) noexcept {
  const int in = vector_width(task.in), codes = vector_width(task.codes);
  return in < codes ? in : codes;
}

/// Blocks of threads that a task takes.
template <class Task> FP8WIRE_HD constexpr i64 tiles_of_task(const Task& task) noexcept {
  return tiles_of(task.in.batch, task.in.rows, task.in.cols);
}

/// Source: one_task or task_table of a quantize_task. Bytes: those of quantize(), whatever the path.
template <class Source, class Task> struct quantize_body {
  using recipe = typename Task::recipe;
  using input = typename Task::input;
  using params = Source;
  static constexpr int threads = tile_threads<input>;
  // Four blocks of 256 threads fill the registers of an SM: 64 a thread, half of them the tile.
  static constexpr int blocks_per_sm = 1024 / threads;

  template <int Bytes> struct fast_shared {
    typename stage_of<recipe, input, Bytes>::type::shared stage;
  };
  struct nothing {};
  template <int Bytes> using fast_part =
      std::conditional_t<std::is_void_v<typename stage_of<recipe, input, Bytes>::type>, std::type_identity<nothing>,
                         std::type_identity<fast_shared<Bytes>>>;
  template <int Bytes> struct shared {
    typename fast_part<Bytes>::type fast;
    edge_shared<recipe> edge;
    alignas(16) float operands[static_cast<std::size_t>(block_grid<recipe>::count)];
  };

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>& s, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    const Task& task = *mine.task;
    const tile_place place = place_of(mine.tile, task.in.rows, task.in.cols);
    using stage = typename stage_of<recipe, input, Context::vector_bytes>::type;
    if constexpr (!std::is_void_v<stage>) {
      if (place.whole() && task.vector >= stage::held::width && quantize_whole<stage>(c, s, task, place.as_whole()))
        return;
    }
    quantize_edge_tile<recipe, input, threads>(c, s.edge, s.operands, task, task.codes, task.scales, place);
  }

 private:
  /// False, for all threads alike, where a weight is NaN or Inf or a product might become so.
  template <class Stage, class Context, class Shared>
  static FP8WIRE_BODY bool quantize_whole(Context& c, Shared& s, const Task& task, const tile_place& place) {
    using held = typename Stage::held;
    held tile;
    tile.load(c, task.in, place.batch, place.row(), place.col());
    if (c.sync_or(held::nonfinite(Stage::collect(c, s.fast.stage, tile)))) return false;
    const bool finite = Stage::settle(c, s.fast.stage, task.scales, place, task.amax_floor, s.operands);
    if constexpr (converts_all<typename recipe::element>) c.sync();
    else if (c.sync_or(!finite)) return false;
    const auto codes = rows_of(task.codes, place.batch, place.row() + held::row_of(c.thread()),
                               place.col() + held::col_of(c.thread()), held::step);
    FP8WIRE_UNROLL
    for (int i = 0; i < held::bands; ++i)
      c.store(reinterpret_cast<typename held::codes_vector*>(codes(i)),
              tile.codes(c, i, Stage::operands(c, s.operands, i)));
    return true;
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
