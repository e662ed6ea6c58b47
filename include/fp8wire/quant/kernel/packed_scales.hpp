// SPDX-License-Identifier: Apache-2.0
/// Scales of packed layouts: E8M0 bytes, one for every row of the weight, whatever the rows of a block.
///
/// A quantizing kernel stores the byte of a block's first row; the spreading body repeats it over the block's rows and
/// writes the padding, both in the order of the buffer. No number in between needs memory of its own.
#ifndef FP8WIRE_QUANT_KERNEL_PACKED_SCALES_HPP
#define FP8WIRE_QUANT_KERNEL_PACKED_SCALES_HPP
#include <fp8wire/layout/scale_encoding.hpp>
#include <fp8wire/quant/kernel/grouped.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Where a quantize_task's scales go when they are packed. to: one row for each row of the weight. times: rows of a
/// block. block_rows: how many of them a matrix has, known in advance since a division is what a tile's registers have
/// no room for. refused: a word that was no_index; it falls to the rank, in the order of the block grid, of the first
/// scale that E8M0 cannot hold; or null.
template <class Layout> struct packed_scales {
  laid_out<Layout, e8m0> to;
  i64 times, block_rows;
  u64* refused;
};

/// The E8M0 byte of a scale: FF, and the block's rank reported, where E8M0 does not hold it.
template <class Context, class Stored> FP8WIRE_BODY e8m0 packed_scale(Context& c, Stored scale, u64* refused,
                                                                      i64 rank) {
  if constexpr (std::same_as<Stored, e8m0>) {
    return scale;
  } else {
    const float value = to_float(scale);
    if (fits_e8m0(value)) return exact_e8m0(value);
    if (refused != nullptr) c.global_min(refused, static_cast<u64>(rank));
    return {e8m0::nan_code};
  }
}

template <class Context, class Layout, class Stored>
FP8WIRE_BODY void store_scale(Context& c, const packed_scales<Layout>& scales, i64 batch, i64 row, i64 col,
                              const Stored& scale) {
  const i64 rank = (batch * scales.block_rows + row) * scales.to.cols + col;
  c.store(&scales.to(batch, row * scales.times, col), packed_scale(c, scale, scales.refused, rank));
}

/// From: block scales, a view of const elements; or no_source, where the first row of every block is there already.
struct no_source {};
template <class From, class Layout> struct spread_task {
  From from;
  packed_scales<Layout> scales;
};

/// Blocks of a spread_task: one for every 256 bytes.
template <class Task> struct spread_body;
template <class From, class Layout> struct spread_body<spread_task<From, Layout>> {
  using params = spread_task<From, Layout>;
  static constexpr int threads = 256, blocks_per_sm = 4;
  static constexpr i64 block_elements = threads;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& task) {
    const auto& to = task.scales.to;
    const auto mapping = to.mapping();
    const i64 offset = c.block() * block_elements + c.thread();
    if (offset >= mapping.size()) return;
    const index3 at = mapping.index(offset);
    e8m0 made = padding_of<Layout, e8m0>();
    if (at.batch >= 0) {
      const i64 block_row = at.row / task.scales.times, first = block_row * task.scales.times;
      if constexpr (std::same_as<From, no_source>) {
        if (at.row == first) return;
        made = c.load(&to(at.batch, first, at.col));
      } else {
        const i64 rank = (at.batch * task.scales.block_rows + block_row) * to.cols + at.col;
        made = packed_scale(c, c.load(&task.from(at.batch, block_row, at.col)),
                            at.row == first ? task.scales.refused : nullptr, rank);
      }
    }
    c.store(to.data + offset, made);
  }
};

template <class From, class Layout>
FP8WIRE_HD constexpr i64 tiles_of_task(const spread_task<From, Layout>& task) noexcept {
  return ceil_div(task.scales.to.size(), spread_body<spread_task<From, Layout>>::block_elements);
}
template <class From, class Layout> struct body_of<spread_task<From, Layout>> {
  using task = spread_task<From, Layout>;
  static constexpr int turn = std::same_as<From, no_source> ? 1 : 0;
  template <class Source> using from = sourced_body<spread_body<task>, Source, task>;
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
