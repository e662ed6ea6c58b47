// SPDX-License-Identifier: Apache-2.0
/// The body that quantizes dense rows in blocks of 1 x 32 by bulk copies: a block a thread, piece after piece.
///
/// Threads load no weights from global memory and store no codes there: one of them asks for copies of many kilobytes,
/// and what the others issue is arithmetic.
#ifndef FP8WIRE_QUANT_KERNEL_QUANTIZE_BULK_HPP
#define FP8WIRE_QUANT_KERNEL_QUANTIZE_BULK_HPP
#include <fp8wire/quant/kernel/edge_tile.hpp>
#include <fp8wire/quant/kernel/quantize.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// A dense tensor as a run of `count` blocks: 32 weights, 32 codes and a scale each. in, codes, scales: see fits_bulk.
/// status, index_base, amax_floor: as in quantize_task.
template <any_recipe Recipe, class In> struct bulk_task {
  static_assert(Recipe::block::rows == 1 && Recipe::block::cols == 32, "bulk copies serve blocks of 1 x 32");
  using recipe = Recipe;
  using input = In;
  const In* in;
  u8* codes;
  stored_t<Recipe>* scales;
  i64 count;
  u64* status;
  i64 index_base;
  float amax_floor;
};

namespace detail {

/// Whether the elements of a view follow each other without a gap, from a multiple of 16 bytes on.
template <class Value> constexpr bool is_run(const matrix_view<Value>& view) noexcept {
  return (view.col_stride == 1 || view.cols <= 1) && (view.row_stride == view.cols || view.rows <= 1) &&
         (view.batch_stride == view.rows * view.cols || view.batch <= 1) &&
         reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

/// Shared or global memory under the same two names, for what works in both.
template <class Context> struct in_shared {
  Context& c;
  template <class Value> FP8WIRE_BODY Value get(const Value* at) const { return c.read(at); }
  template <class Value> FP8WIRE_BODY void put(Value* at, const Value& value) const { c.write(at, value); }
};
template <class Context> struct in_global {
  Context& c;
  template <class Value> FP8WIRE_BODY Value get(const Value* at) const { return c.load(at); }
  template <class Value> FP8WIRE_BODY void put(Value* at, const Value& value) const { c.store(at, value); }
};

}  // namespace detail

/// Whether a tensor is one run of blocks: rows of a multiple of 32 weights, and weights, codes and scales without gaps,
/// each from a multiple of 16 bytes on.
template <class Recipe, class In> bool fits_bulk(const quantize_task<Recipe, In>& task) noexcept {
  return task.in.cols % 32 == 0 && detail::is_run(task.in) && detail::is_run(task.codes) && detail::is_run(task.scales);
}
/// The run of a tensor. Expects: fits_bulk(task).
template <class Recipe, class In> bulk_task<Recipe, In> bulk_of(const quantize_task<Recipe, In>& task) noexcept {
  return {task.in.data, task.codes.data, task.scales.data, task.in.size() / 32,
          task.status,  task.index_base, task.amax_floor};
}

/// Any number of blocks of threads: they take the pieces in turn, and are best as many as the device holds at once.
/// Bytes: those of quantize(). Where there are no bulk copies, and at the end of a run that no piece fits, every thread
/// loads and stores its own blocks.
template <class Task> struct bulk_body {
  using recipe = typename Task::recipe;
  using input = typename Task::input;
  using stored = stored_t<recipe>;
  using params = Task;
  static constexpr int threads = 128, blocks_per_sm = 16 / static_cast<int>(sizeof(input));
  static constexpr int width = recipe::block::cols;
  static constexpr int piece = threads * width;  // elements
  static constexpr int in_bytes = piece * static_cast<int>(sizeof(input));
  static constexpr int scale_bytes = threads * static_cast<int>(sizeof(stored));
  static constexpr int stages = 2;  // one is filled while the other is worked on
  using held = vectors<recipe, input, 16, width* static_cast<int>(sizeof(input)) / 16>;

  template <int> struct shared {
    // Bytes, since shared memory holds nothing that a constructor would have to run for.
    alignas(16) u8 in[stages][static_cast<std::size_t>(in_bytes)];
    alignas(16) u8 codes[stages][static_cast<std::size_t>(piece)];
    alignas(16) u8 scales[stages][static_cast<std::size_t>(scale_bytes)];
    alignas(8) u64 arrival[stages];
  };

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>& s, const params& task) {
    i64 done = 0;
    if constexpr (Context::bulk_copies) {
      const i64 pieces = task.count / threads;
      whole_pieces(c, s, task, pieces);
      done = pieces * threads;
    }
    for (i64 at = done + c.block() * threads + c.thread(); at < task.count; at += c.blocks() * threads)
      one_block(c, detail::in_global<Context>{c}, task.in + at * width, task.codes + at * width, task.scales + at, task,
                at);
  }

 private:
  template <class Context, class Shared>
  static FP8WIRE_BODY void whole_pieces(Context& c, Shared& s, const Task& task, i64 pieces) {
    const i64 every = c.blocks();
    const auto fetch = [&](i64 number, int stage) {
      if (number < pieces) c.fetch(s.in[stage], task.in + number * piece, in_bytes, s.arrival + stage);
    };
    if (c.thread() == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        c.arm(s.arrival + stage);
        fetch(c.block() + stage * every, stage);
      }
    }
    c.sync();
    int stage = 0;
    u32 parity = 0;
    for (i64 number = c.block(); number < pieces; number += every) {
      c.wait(s.arrival + stage, parity);
      one_block(c, detail::in_shared<Context>{c}, reinterpret_cast<const input*>(s.in[stage]) + c.thread() * width,
                s.codes[stage] + c.thread() * width, reinterpret_cast<stored*>(s.scales[stage]) + c.thread(), task,
                number * threads + c.thread());
      c.show();
      // The other stage's codes: all know after the barrier that they may be overwritten.
      if (c.thread() == 0) c.sent();
      c.sync();
      if (c.thread() == 0) {
        c.send(task.codes + number * piece, s.codes[stage], piece);
        c.send(task.scales + number * threads, s.scales[stage], scale_bytes);
        fetch(number + stages * every, stage);
      }
      parity ^= static_cast<u32>(stage);
      stage ^= 1;
    }
    if (c.thread() == 0) c.finish();
  }

  template <class Context, class Memory>
  static FP8WIRE_BODY void one_block(Context& c, const Memory& memory, const input* in, u8* codes, stored* scale,
                                     const Task& task, i64 number) {
    // Each of eight neighbours begins with another vector: the banks of shared memory serve them at once.
    const int turn = c.thread() * held::bands / 8 % held::bands;
    held block;
    FP8WIRE_UNROLL
    for (int i = 0; i < held::bands; ++i)
      block.take(i, memory.get(reinterpret_cast<const typename held::vector*>(in) + (i ^ turn)));
    const u32 largest = held::folded(block.all_magnitudes(c));
    if (!held::nonfinite(largest)) {
      const u32 amax = widened<input>(largest);
      const auto made = reference::block_scale<recipe, input>(amax, task.amax_floor);
      if (stays_finite<recipe>(amax, made.operand)) {
        memory.put(scale, made.stored);
        FP8WIRE_UNROLL
        for (int i = 0; i < held::bands; ++i)
          memory.put(reinterpret_cast<typename held::codes_vector*>(codes) + (i ^ turn),
                     block.codes(c, i, same_operand{made.operand}));
        return;
      }
    }
    one_by_one(c, memory, in, codes, scale, task, number);
  }

  /// A block that holds NaN or Inf, or might make them.
  template <class Context, class Memory>
  static FP8WIRE_BODY void one_by_one(Context& c, const Memory& memory, const input* in, u8* codes, stored* scale,
                                      const Task& task, i64 number) {
    nonfinite_seen<input> bad;
    u32 amax = 0;
    for (int i = 0; i < width; ++i) {
      const input weight = memory.get(in + i);
      bad.see(weight, task.index_base + number * width + i);
      const u32 magnitude = seen_magnitude<recipe>(weight);
      amax = magnitude > amax ? magnitude : amax;
    }
    bad.report(c, task.status);
    const auto made = reference::block_scale<recipe, input>(amax, task.amax_floor);
    memory.put(scale, made.stored);
    for (int i = 0; i < width; ++i) memory.put(codes + i, any_code<recipe>(c, memory.get(in + i), made.operand));
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
