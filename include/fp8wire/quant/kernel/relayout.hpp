// SPDX-License-Identifier: Apache-2.0
/// Bodies that move elements into a layout, and that write only a layout's padding.
#ifndef FP8WIRE_QUANT_KERNEL_RELAYOUT_HPP
#define FP8WIRE_QUANT_KERNEL_RELAYOUT_HPP
#include <fp8wire/quant/kernel/place.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// An element of padding.
template <class Layout, class Value> FP8WIRE_HD constexpr Value padding_of() noexcept {
  static_assert(sizeof(Value) <= 2 || sizeof(Value) == 4, "elements of codes and scales have 1, 2 or 4 bytes");
  if constexpr (sizeof(Value) == 1) return __builtin_bit_cast(Value, static_cast<u8>(Layout::padding_bits));
  else if constexpr (sizeof(Value) == 2) return __builtin_bit_cast(Value, static_cast<u16>(Layout::padding_bits));
  else return __builtin_bit_cast(Value, u32{Layout::padding_bits});
}

/// How many columns lie beside each other in a place, whatever the shape.
template <class Place> inline constexpr i64 run_of = whole_run;
template <class Layout, class Value> inline constexpr i64 run_of<laid_out<Layout, Value>> = Layout::col_run;

/// From: a view or a laid-out buffer of const Value. vector: what relayout_vector said; less is slower.
template <class From, class Layout, class Value> struct relayout_task {
  using value = Value;
  using target = Layout;
  using source = From;
  // At most 16 bytes, and only elements that both sides keep together.
  static constexpr i64 most = 16 / static_cast<i64>(sizeof(Value));
  static constexpr i64 shorter = run_of<From> < Layout::col_run ? run_of<From> : Layout::col_run;
  static constexpr int width = static_cast<int>(shorter < most ? shorter : most);
  From from;
  laid_out<Layout, Value> to;
  int vector;
};

template <class From, class Layout, class Value>
inline int vector_of(const relayout_task<From, Layout, Value>& task) noexcept {
  const int from = vector_width(task.from), to = vector_width(task.to);
  int columns = 32;  // a group of columns must not end in padding
  while (task.to.cols % columns != 0) columns /= 2;
  const int narrower = from < to ? from : to;
  return narrower < columns ? narrower : columns;
}

/// Writes every element of the target, its padding too. Blocks: ceil(size of the target / block_elements).
template <class Task> struct relayout_body {
  using value = typename Task::value;
  using layout = typename Task::target;
  using params = Task;
  static constexpr int threads = 256, blocks_per_sm = 4, turns = 4, width = Task::width;
  static constexpr i64 block_elements = i64{threads} * turns * width;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& task) {
    if (width > 1 && task.vector >= width) move<width>(c, task);
    else move<1>(c, task);
  }

 private:
  template <int Width, class Context> static FP8WIRE_BODY void move(Context& c, const params& task) {
    using vector = sized_t<Width * static_cast<int>(sizeof(value))>;
    const auto to = task.to.mapping();
    const i64 size = to.size(), first = c.block() * block_elements + c.thread() * Width;
    for (int i = 0; i < block_elements / Width / threads; ++i) {
      const i64 offset = first + i64{i} * threads * Width;
      if (offset >= size) return;
      const index3 at = to.index(offset);
      vector moved;
      if (at.batch < 0) {
        if constexpr (Width == 1) {
          moved = __builtin_bit_cast(vector, padding_of<layout, value>());
        } else {
          value all[static_cast<std::size_t>(Width)];
          FP8WIRE_UNROLL
          for (value& one : all) one = padding_of<layout, value>();
          __builtin_memcpy(&moved, all, sizeof(moved));
        }
      } else {
        moved = c.load(reinterpret_cast<const vector*>(&task.from(at.batch, at.row, at.col)));
      }
      c.store(reinterpret_cast<vector*>(task.to.data + offset), moved);
    }
  }
};

/// The padding of a buffer whose elements somebody else writes: a quantizer that stores at a layout's offsets.
template <class Layout, class Value> struct padding_body {
  using params = laid_out<Layout, Value>;
  static constexpr int threads = 256, blocks_per_sm = 4;
  static constexpr i64 block_elements = threads;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& to) {
    const auto mapping = to.mapping();
    const i64 offset = c.block() * block_elements + c.thread();
    if (offset < mapping.size() && mapping.index(offset).batch < 0)
      c.store(to.data + offset, padding_of<Layout, Value>());
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
