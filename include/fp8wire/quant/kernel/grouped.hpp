// SPDX-License-Identifier: Apache-2.0
/// Bodies that were written for one buffer, given their work by a source: a single task, or a table of thousands.
#ifndef FP8WIRE_QUANT_KERNEL_GROUPED_HPP
#define FP8WIRE_QUANT_KERNEL_GROUPED_HPP
#include <fp8wire/quant/kernel/checksum.hpp>
#include <fp8wire/quant/kernel/quantize.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// A context whose block has the number of its tile in the task.
template <class Context> struct in_task : Context {
  i64 tile;
  FP8WIRE_BODY i64 block() const { return tile; }
};

/// Body, whose params are Task (or what Task derives from), on tasks of a Source.
template <class Body, class Source, class Task> struct sourced_body {
  using params = Source;
  static constexpr int threads = Body::threads, blocks_per_sm = Body::blocks_per_sm;
  template <int Bytes> using shared = typename Body::template shared<Bytes>;

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>& s, const params& source) {
    const assignment<Task> mine = source.assigned(c);
    in_task<Context> inside{c, mine.tile};
    Body::run(inside, s, *mine.task);
  }
};

/// A buffer of which only the padding is written.
template <class Layout, class Value> struct padding_task : laid_out<Layout, Value> {};

template <class Layout, class Value>
FP8WIRE_HD constexpr i64 tiles_of_task(const padding_task<Layout, Value>& task) noexcept {
  return ceil_div(task.size(), padding_body<Layout, Value>::block_elements);
}
template <class From, class Layout, class Value>
FP8WIRE_HD constexpr i64 tiles_of_task(const relayout_task<From, Layout, Value>& task) noexcept {
  return ceil_div(task.to.size(), relayout_body<relayout_task<From, Layout, Value>>::block_elements);
}

/// Body with the arithmetic of a layout in it, which takes registers that a tile does not leave: fewer are resident.
template <class Body> struct laid_body : Body {
  static constexpr bool laid = true;
};
template <class Place> inline constexpr bool is_view = false;
template <class Value> inline constexpr bool is_view<matrix_view<Value>> = true;

/// The body of a task, whatever its source: body_of<Task>::from<one_task<Task>> or from<task_table<Task>>. turn: tables
/// of a buffer are launched in this order, since a later one may read what an earlier one writes.
template <class Task> struct body_of;
inline constexpr int last_turn = 4;
template <class Recipe, class In, class Codes, class Scales> struct body_of<quantize_task<Recipe, In, Codes, Scales>> {
  static constexpr int turn = 0;
  template <class Source> using tile_body = quantize_body<Source, quantize_task<Recipe, In, Codes, Scales>>;
  template <class Source>
  using from = std::conditional_t<is_view<Codes> && is_view<Scales>, tile_body<Source>, laid_body<tile_body<Source>>>;
};
template <> struct body_of<checksum_task> {
  static constexpr int turn = last_turn;
  template <class Source> using from = checksum_body<Source>;
};
template <class Layout, class Value> struct body_of<padding_task<Layout, Value>> {
  static constexpr int turn = 0;
  template <class Source> using from = sourced_body<padding_body<Layout, Value>, Source, padding_task<Layout, Value>>;
};
template <class From, class Layout, class Value> struct body_of<relayout_task<From, Layout, Value>> {
  using task = relayout_task<From, Layout, Value>;
  static constexpr int turn = 0;
  template <class Source> using from = sourced_body<relayout_body<task>, Source, task>;
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
