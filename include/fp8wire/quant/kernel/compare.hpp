// SPDX-License-Identifier: Apache-2.0
/// The body that compares two versions of codes: a bit for every element that changed, a byte for every tile.
#ifndef FP8WIRE_QUANT_KERNEL_COMPARE_HPP
#define FP8WIRE_QUANT_KERNEL_COMPARE_HPP
#include <fp8wire/quant/kernel/place.hpp>
#include <fp8wire/quant/kernel/tasks.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// before, after: batch x rows x cols codes. changed: batch x rows x ceil(cols / 8) bytes, bit col % 8 of byte col / 8
/// is the element's, bits beyond the last column are 0. tiles: one byte for each tile of 128 x 128, 1 where it holds a
/// change, in the order of the tiles; or null. vector: see vector_of.
struct compare_task {
  matrix_view<const u8> before, after;
  matrix_view<u8> changed;
  u8* tiles;
  int vector;
};

inline int vector_of(const compare_task& task) noexcept {
  const int before = vector_width(task.before), after = vector_width(task.after);
  const int bits = 8 * vector_width(task.changed);
  const int codes = before < after ? before : after;
  return codes < bits ? codes : bits;
}

FP8WIRE_HD constexpr i64 tiles_of_task(const compare_task& task) noexcept {
  return tiles_of(task.after.batch, task.after.rows, task.after.cols);
}

/// Source: one_task or task_table of compare_task.
template <class Source> struct compare_body {
  using params = Source;
  static constexpr int threads = 256, blocks_per_sm = 4;
  static constexpr int width = 16, lanes = tile_extent / width, step = threads / lanes;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& source) {
    const assignment<compare_task> mine = source.assigned(c);
    const compare_task& task = *mine.task;
    const tile_place place = place_of(mine.tile, task.after.rows, task.after.cols);
    const bool any = place.whole() && task.vector >= width ? whole_tile(c, task, place) : edge_tile(c, task, place);
    if (task.tiles == nullptr) return;
    const bool tile_changed = c.sync_or(any);
    if (c.thread() == 0) c.store(task.tiles + mine.tile, static_cast<u8>(tile_changed ? 1 : 0));
  }

 private:
  /// A bit for each of four bytes that is not zero.
  static FP8WIRE_BODY u32 four_bits(u32 difference) {
    const u32 high = (difference | ((difference & 0x7F7F7F7Fu) + 0x7F7F7F7Fu)) & 0x80808080u;
    return (high >> 7) * 0x01020408u >> 24 & 0xF;
  }
  template <class Context>
  static FP8WIRE_BODY bool whole_tile(Context& c, const compare_task& task, const tile_place& place) {
    const i64 row = place.row() + c.thread() / lanes, col = place.col() + c.thread() % lanes * width;
    const auto before = rows_of(task.before, place.batch, row, col, step);
    const auto after = rows_of(task.after, place.batch, row, col, step);
    const auto changed = rows_of(task.changed, place.batch, row, col / 8, step);
    words<4> old[tile_extent / step], now[tile_extent / step];
    FP8WIRE_UNROLL
    for (int i = 0; i < tile_extent / step; ++i) {
      old[i] = c.load(reinterpret_cast<const words<4>*>(before(i)));
      now[i] = c.load(reinterpret_cast<const words<4>*>(after(i)));
    }
    u32 any = 0;
    FP8WIRE_UNROLL
    for (int i = 0; i < tile_extent / step; ++i) {
      u32 bits = 0;
      FP8WIRE_UNROLL
      for (int w = 0; w < 4; ++w) bits |= four_bits(old[i].at[w] ^ now[i].at[w]) << (4 * w);
      c.store(reinterpret_cast<u16*>(changed(i)), static_cast<u16>(bits));
      any |= bits;
    }
    return any != 0;
  }
  template <class Context>
  static FP8WIRE_BODY bool edge_tile(Context& c, const compare_task& task, const tile_place& place) {
    u32 any = 0;
    const int row_bytes = (place.cols + 7) / 8;
    for (int at = c.thread(); at < place.rows * row_bytes; at += threads) {
      const int inside_row = at / row_bytes, byte = at % row_bytes;
      const i64 row = place.row() + inside_row;
      u32 bits = 0;
      for (int bit = 0; bit < 8 && 8 * byte + bit < place.cols; ++bit) {
        const i64 col = place.col() + 8 * byte + bit;
        const u8 before = c.load(&task.before(place.batch, row, col)), now = c.load(&task.after(place.batch, row, col));
        if (before != now) bits |= 1u << bit;
      }
      c.store(&task.changed(place.batch, row, place.col() / 8 + byte), static_cast<u8>(bits));
      any |= bits;
    }
    return any != 0;
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
