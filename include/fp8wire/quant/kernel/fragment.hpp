// SPDX-License-Identifier: Apache-2.0
/// One thread's share of a whole tile: a vector of a row in each of a few row bands, kept in registers.
#ifndef FP8WIRE_QUANT_KERNEL_FRAGMENT_HPP
#define FP8WIRE_QUANT_KERNEL_FRAGMENT_HPP
#include <fp8wire/quant/kernel/place.hpp>
#include <fp8wire/quant/kernel/tasks.hpp>
#include <fp8wire/quant/kernel/vectors.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// How many threads share a tile of In: enough that one holds 32 words of it.
template <class In> inline constexpr int tile_threads = 128 * static_cast<int>(sizeof(In));

/// 8 x 16 or 4 x 32 bytes: thread t holds columns [col, col + width) of the rows row + i * step.
template <class Recipe, class In, int Bytes> struct fragment : vectors<Recipe, In, Bytes, 128 / Bytes> {
  using part = vectors<Recipe, In, Bytes, 128 / Bytes>;
  static constexpr int threads = tile_threads<In>;
  static constexpr int lanes = tile_extent / part::width;  // threads that share a row
  static constexpr int step = threads / lanes;             // rows of a band
  static_assert(part::bands * step == tile_extent);

  static FP8WIRE_HD constexpr int row_of(int thread) noexcept { return thread / lanes; }
  static FP8WIRE_HD constexpr int col_of(int thread) noexcept { return thread % lanes * part::width; }

  template <class Context>
  FP8WIRE_BODY void load(Context& c, const matrix_view<const In>& in, i64 batch, i64 row, i64 col) {
    const auto rows = rows_of(in, batch, row + row_of(c.thread()), col + col_of(c.thread()), step);
    FP8WIRE_UNROLL
    for (int i = 0; i < part::bands; ++i)
      part::take(i, c.load(reinterpret_cast<const typename part::vector*>(rows(i))));
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
