// SPDX-License-Identifier: Apache-2.0
/// What a kernel body may ask of the machine that runs it: a thread block of a GPU, or its emulation in tests.
///
/// A body is a type with `shared` (its shared memory), `params` (a plain aggregate), `threads` (of a block) and
/// `run(context, shared, params)`, which reads as CUDA. Everything that only hardware can do goes through the context,
/// so that one text is compiled for GPUs and run, with every access checked, where there is none.
#ifndef FP8WIRE_QUANT_KERNEL_CONTEXT_HPP
#define FP8WIRE_QUANT_KERNEL_CONTEXT_HPP
#include <concepts>

#include <fp8wire/format/fp16.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// What one vector access moves: Count 32-bit words, aligned as a whole.
template <int Count> struct alignas(4 * Count) words {
  u32 at[static_cast<std::size_t>(Count)];
};
/// The unsigned integer of that many bytes; 16 and 32 bytes are words.
template <int Bytes> struct sized;
template <> struct sized<1> {
  using type = u8;
};
template <> struct sized<2> {
  using type = u16;
};
template <> struct sized<4> {
  using type = u32;
};
template <> struct sized<8> {
  using type = u64;
};
template <> struct sized<16> {
  using type = words<4>;
};
template <> struct sized<32> {
  using type = words<8>;
};
template <int Bytes> using sized_t = typename sized<Bytes>::type;

/// thread: rank in the block. block: rank in the grid. sync: barrier of the block; sync_or: the same, and whether any
/// thread said yes. warp_max, warp_count, from_lane: among the 32 threads of a warp, all of which must take part.
/// load, store: global memory. read, write: shared memory. *_max, *_min, *_add: atomic, no result.
/// vector_bytes: the widest load that pays. max_halves: the larger of each unsigned half. multiply2: two IEEE
/// products. widen: the value of a half. convert2<Element>: the codes of two finite floats, the first in the low byte.
template <class Context>
concept block_context = requires(Context& c, u32 v, u64 wide, bool yes, float x, u32* word, u64* words_of_8) {
  { c.thread() } -> std::same_as<int>;
  { c.block() } -> std::same_as<i64>;
  c.sync();
  { c.sync_or(yes) } -> std::same_as<bool>;
  { c.warp_max(v) } -> std::same_as<u32>;
  { c.warp_count(yes) } -> std::same_as<int>;
  { c.from_lane(wide, 0) } -> std::same_as<u64>;
  { c.load(word) } -> std::same_as<u32>;
  c.store(word, v);
  { c.read(word) } -> std::same_as<u32>;
  c.write(word, v);
  c.shared_max(word, v);
  c.global_max(word, v);
  c.global_min(words_of_8, wide);
  c.global_add(words_of_8, wide);
  { Context::vector_bytes } -> std::convertible_to<int>;
  { Context::max_halves(v, v) } -> std::same_as<u32>;
  Context::multiply2(x, x, x, x, x, x);
  { Context::widen(fp16{}) } -> std::same_as<float>;
};

/// What bodies that move runs of bytes by bulk copies ask for besides. blocks: of the grid. bulk_copies: whether the
/// device has them; the words below are not called where it has none. Addresses and sizes: multiples of 16 bytes.
/// arm: makes *barrier, in shared memory, one that waits for fetches. fetch: asks for bytes of global memory; all who
/// wait(barrier, parity) go on when the bytes of the barrier's fetch number n are there, parity n % 2. show: what the
/// thread wrote to shared memory becomes visible to bulk copies. send: asks for bytes of shared memory to be stored.
/// sent: returns when all sends of this thread have read shared memory. finish: when they have written, too.
template <class Context>
concept bulk_context = block_context<Context> && requires(Context& c, u64* barrier, u8* to, const u8* from) {
  { c.blocks() } -> std::same_as<i64>;
  { Context::bulk_copies } -> std::convertible_to<bool>;
  c.arm(barrier);
  c.fetch(to, from, 16, barrier);
  c.wait(barrier, u32{0});
  c.show();
  c.send(to, from, 16);
  c.sent();
  c.finish();
};

/// Threads of a warp, on every machine that CUDA knows.
inline constexpr int warp_size = 32;

}  // namespace kernel
FP8WIRE_ABI_END
#endif
