// SPDX-License-Identifier: Apache-2.0
/// The body of the dequantize kernel: codes times scales, sixteen elements a thread at a time.
#ifndef FP8WIRE_QUANT_KERNEL_DEQUANTIZE_HPP
#define FP8WIRE_QUANT_KERNEL_DEQUANTIZE_HPP
#include <fp8wire/quant/kernel/element.hpp>
#include <fp8wire/quant/kernel/place.hpp>
#include <fp8wire/quant/kernel/tasks.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// codes, scales: views or laid-out buffers. out: batch x rows x cols of float, bf16 or fp16. vector: see vector_of.
template <any_recipe Recipe, class Out, class Codes = matrix_view<const u8>,
          class Scales = matrix_view<const stored_t<Recipe>>>
struct dequantize_task {
  using recipe = Recipe;
  using output = Out;
  Codes codes;
  Scales scales;
  matrix_view<Out> out;
  int vector;
};

template <class Recipe, class Out, class Codes, class Scales>
inline int vector_of(const dequantize_task<Recipe, Out, Codes, Scales>& task) noexcept {
  const int out = vector_width(task.out), codes = vector_width(task.codes);
  return out < codes ? out : codes;
}

template <class Recipe, class Out, class Codes, class Scales>
FP8WIRE_HD constexpr i64 tiles_of_task(const dequantize_task<Recipe, Out, Codes, Scales>& task) noexcept {
  return tiles_of(task.out.batch, task.out.rows, task.out.cols);
}

/// Source: one_task or task_table of a dequantize_task. Exact: the bytes of dequantize().
template <class Source, class Task> struct dequantize_body {
  using recipe = typename Task::recipe;
  using block = typename recipe::block;
  using output = typename Task::output;
  using params = Source;
  static constexpr int threads = 256, blocks_per_sm = 4;
  static constexpr int width = 16, lanes = tile_extent / width, step = threads / lanes;
  static constexpr int piece = 16 / static_cast<int>(sizeof(output));  // elements of one store
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    const Task& task = *mine.task;
    const tile_place place = place_of(mine.tile, task.out.rows, task.out.cols);
    const i64 height = fp8wire::detail::block_extent(block::rows, task.out.rows);
    const i64 across = fp8wire::detail::block_extent(block::cols, task.out.cols);
    if (!place.whole() || task.vector < width) {
      for (int element = c.thread(); element < tile_extent * tile_extent; element += threads) {
        const int inside_row = element / tile_extent, inside_col = element % tile_extent;
        if (inside_row >= place.rows || inside_col >= place.cols) continue;
        const i64 row = place.row() + inside_row, col = place.col() + inside_col;
        const u8 code = c.load(&task.codes(place.batch, row, col));
        const float scale = to_float(c.load(&task.scales(place.batch, row / height, col / across)));
        c.store(&task.out(place.batch, row, col), made(recipe::element::decode(code), scale));
      }
      return;
    }
    const i64 col = place.col() + c.thread() % lanes * width;
    const i64 first = place.row() + c.thread() / lanes;
    const auto codes = rows_of(task.codes, place.batch, first, col, step);
    const auto out = rows_of(task.out, place.batch, first, col, step);
    constexpr bool one_scale = block::cols == whole || block::cols % width == 0;
    FP8WIRE_UNROLL
    for (int i = 0; i < tile_extent / step; ++i) {
      const auto read = c.load(reinterpret_cast<const words<4>*>(codes(i)));
      const i64 scale_row = (first + i * step) / height;
      float scale = 0;
      if constexpr (one_scale) scale = to_float(c.load(&task.scales(place.batch, scale_row, col / across)));
      output values[width];
      FP8WIRE_UNROLL
      for (int pair = 0; pair < width / 2; ++pair) {
        float low, high;
        Context::template values2<typename recipe::element>(read.at[pair / 2] >> (16 * (pair % 2)) & 0xFFFF, low, high);
        float low_scale = scale, high_scale = scale;
        if constexpr (!one_scale) {
          low_scale = to_float(c.load(&task.scales(place.batch, scale_row, (col + 2 * pair) / across)));
          high_scale = to_float(c.load(&task.scales(place.batch, scale_row, (col + 2 * pair + 1) / across)));
        }
        values[2 * pair] = made(low, low_scale);
        values[2 * pair + 1] = made(high, high_scale);
      }
      FP8WIRE_UNROLL
      for (int part = 0; part < width / piece; ++part) {
        words<4> packed;
        FP8WIRE_UNROLL
        for (int w = 0; w < 4; ++w) {
          if constexpr (sizeof(output) == 4) {
            packed.at[w] = bits_of(values[part * piece + w]);
          } else {
            const int at = part * piece + 2 * w;
            packed.at[w] = values[at].bits | static_cast<u32>(values[at + 1].bits) << 16;
          }
        }
        c.store(reinterpret_cast<words<4>*>(out(i)) + part, packed);
      }
    }
  }

 private:
  static FP8WIRE_BODY output made(float value, float scale) { return from_float<output>(ieee::mul(value, scale)); }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
