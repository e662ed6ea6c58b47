// SPDX-License-Identifier: Apache-2.0
/// The body that sums pieces of a slot where they lie: eight threads a 64 KiB piece, one for each lane.
#ifndef FP8WIRE_QUANT_KERNEL_CHECKSUM_HPP
#define FP8WIRE_QUANT_KERNEL_CHECKSUM_HPP
#include <fp8wire/core/checksum.hpp>
#include <fp8wire/quant/kernel/tasks.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Bytes to sum; the checksum is added to *sum, which was zero.
struct checksum_task {
  const u8* data;
  i64 bytes;
  u64* sum;
};

/// Pieces that one block sums.
inline constexpr i64 checksum_block_pieces = 32;

/// Empty tensors have a checksum too.
FP8WIRE_HD constexpr i64 tiles_of_task(const checksum_task& task) noexcept {
  const i64 block_bytes = checksum_block_pieces * static_cast<i64>(checksum_piece_bytes);
  return task.bytes == 0 ? 1 : ceil_div(task.bytes, block_bytes);
}

/// Source: one_task or task_table of checksum_task. Exact: checksum().
template <class Source> struct checksum_body {
  using params = Source;
  static constexpr int threads = 8 * static_cast<int>(checksum_block_pieces), blocks_per_sm = 4;
  template <int> struct shared {};

  template <class Context>
  static FP8WIRE_BODY void run(Context& c, shared<Context::vector_bytes>&, const params& source) {
    const assignment<checksum_task> mine = source.assigned(c);
    const checksum_task& task = *mine.task;
    const int lane = c.thread() % 8;
    const i64 piece = mine.tile * checksum_block_pieces + c.thread() / 8;
    const i64 from = piece * static_cast<i64>(checksum_piece_bytes), left = task.bytes - from;
    const i64 bytes = left < static_cast<i64>(checksum_piece_bytes) ? left : static_cast<i64>(checksum_piece_bytes);
    const u8* at = task.data + from + 8 * lane;
    const bool aligned = reinterpret_cast<std::uintptr_t>(at) % 8 == 0;
    using fp8wire::detail::checksum_mix;
    u64 made = checksum_mix(static_cast<u64>(piece) * 8 + static_cast<u64>(lane) + 1);
    const i64 whole_stripes = bytes > 0 ? bytes / 64 : 0;
    for (i64 stripe = 0; stripe < whole_stripes; ++stripe) {
      const u8* word = at + stripe * 64;
      made = step(made, aligned ? c.load(reinterpret_cast<const u64*>(word)) : assembled(c, word, 8));
    }
    if (bytes > whole_stripes * 64) made = step(made, assembled(c, at + whole_stripes * 64,
                                                                  bytes - whole_stripes * 64 - 8 * lane));
    fp8wire::detail::checksum_lanes lanes(0);
    const int first = c.thread() % warp_size - lane;
    lanes.a = c.from_lane(made, first);
    lanes.b = c.from_lane(made, first + 1);
    lanes.c = c.from_lane(made, first + 2);
    lanes.d = c.from_lane(made, first + 3);
    lanes.e = c.from_lane(made, first + 4);
    lanes.f = c.from_lane(made, first + 5);
    lanes.g = c.from_lane(made, first + 6);
    lanes.h = c.from_lane(made, first + 7);
    if (lane != 0) return;
    u64 sum = bytes > 0 ? lanes.digest(static_cast<u64>(bytes)) : 0;
    if (piece == 0) sum += checksum_mix(static_cast<u64>(task.bytes));
    if (bytes > 0 || piece == 0) c.global_add(task.sum, sum);
  }

 private:
  static FP8WIRE_BODY u64 step(u64 lane, u64 word) { return fp8wire::detail::checksum_step(lane, word); }
  /// A little-endian word of which only the first `count` bytes are there.
  template <class Context> static FP8WIRE_BODY u64 assembled(Context& c, const u8* at, i64 count) {
    u64 word = 0;
    for (int i = 0; i < 8 && i < count; ++i) word |= static_cast<u64>(c.load(at + i)) << (8 * i);
    return word;
  }
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
