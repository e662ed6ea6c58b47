// SPDX-License-Identifier: Apache-2.0
/// Which codes and scales of a quantized weight belong to a rank: byte-equal to quantizing its part, or refused.
#ifndef FP8WIRE_MODEL_RANK_SLICES_HPP
#define FP8WIRE_MODEL_RANK_SLICES_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/slice.hpp>

FP8WIRE_ABI_BEGIN

/// How tensor parallelism cuts a weight [rows = out, cols = in]. gate_up: the fused [gate; up] of MoE w13, each half
/// by its rows.
enum class sharding : u8 { replicated, column, row, gate_up };

/// Extents of a quantized weight; a block extent of 0 covers the matrix.
struct quantized_extents {
  i64 rows = 0, cols = 0;
  i64 block_rows = 128, block_cols = 128;
};

/// The same rectangle in codes and in scales.
struct pair_slice {
  slice codes, scales;
  bool operator==(const pair_slice&) const = default;
};

namespace detail {

/// Blocks [begin, end) of extent `count` as blocks; empty text, or the rule that is broken.
inline std::string block_range(i64 begin, i64 end, i64 count, i64 block, std::string_view what, i64& first,
                               i64& blocks) {
  const i64 size = block > 0 ? block : (count > 0 ? count : 1);
  const auto text = [&](i64 at, std::string_view side) {
    return std::string(what)
        .append(" ")
        .append(std::to_string(at))
        .append(" ")
        .append(side)
        .append(" of the part is inside a block of ")
        .append(std::to_string(size));
  };
  if (begin % size != 0) return text(begin, "at the start");
  if (end % size != 0 && end != count) return text(end, "at the end");
  first = begin / size;
  blocks = ceil_div(end, size) - first;
  return {};
}

}  // namespace detail

/// The scales of a rectangle of codes. A block on the rectangle's edge is taken whole only where the matrix ends.
/// Errors: wrong_shape (C5): outside the matrix, or an edge inside a block, where quantizing the part alone would give
/// other bytes.
inline result<pair_slice> slice_pair(std::string_view tensor, const quantized_extents& of, const slice& codes) {
  const std::string name(tensor);
  if (codes.row < 0 || codes.rows < 0 || codes.row > of.rows - codes.rows)
    return make_error(errc::wrong_shape, name, "the part ends behind the rows", codes.row + codes.rows, of.rows,
                      condition::c5_geometry);
  if (codes.col < 0 || codes.cols < 0 || codes.col > of.cols - codes.cols)
    return make_error(errc::wrong_shape, name, "the part ends behind the columns", codes.col + codes.cols, of.cols,
                      condition::c5_geometry);
  slice scales;
  std::string wrong =
      detail::block_range(codes.row, codes.row + codes.rows, of.rows, of.block_rows, "row", scales.row, scales.rows);
  if (wrong.empty())
    wrong = detail::block_range(codes.col, codes.col + codes.cols, of.cols, of.block_cols, "column", scales.col,
                                scales.cols);
  if (!wrong.empty()) return make_error(errc::wrong_shape, name, std::move(wrong), condition::c5_geometry);
  return pair_slice{codes, scales};
}

/// What rank `rank` of `tp` keeps of a weight, in the order in which the engine stacks it: one rectangle; gate_up two.
/// Errors: wrong_shape (C5): extents that tp does not divide, cuts inside a block; bad_argument: no such rank.
inline result<std::vector<pair_slice>> rank_slices(std::string_view tensor, const quantized_extents& of, sharding how,
                                                   i64 tp, i64 rank) {
  const std::string name(tensor);
  if (tp < 1 || rank < 0 || rank >= tp) return make_error(errc::bad_argument, name, "no such rank", rank, tp);
  const i64 halves = how == sharding::gate_up ? 2 : 1;
  const i64 cut = how == sharding::row ? of.cols : of.rows;
  if (how != sharding::replicated && cut % (halves * tp) != 0)
    return make_error(
        errc::wrong_shape, name,
        std::string(how == sharding::row ? "its columns" : "its rows").append(" are not a multiple of tp * parts"), cut,
        ceil_div(cut, halves * tp) * halves * tp, condition::c5_geometry);
  std::vector<slice> parts;
  const i64 part = cut / (halves * tp);
  switch (how) {
    case sharding::replicated: parts = {{0, 0, of.rows, of.cols}}; break;
    case sharding::column: parts = {{rank * part, 0, part, of.cols}}; break;
    case sharding::row: parts = {{0, rank * part, of.rows, part}}; break;
    case sharding::gate_up:
      parts = {{rank * part, 0, part, of.cols}, {of.rows / 2 + rank * part, 0, part, of.cols}};
      break;
  }
  std::vector<pair_slice> slices;
  for (const slice& one : parts) {
    auto pair = slice_pair(tensor, of, one);
    if (!pair) return pair.error();
    slices.push_back(*pair);
  }
  return slices;
}

/// Experts [first, first + count).
struct expert_range {
  i64 first = 0, count = 0;
  bool operator==(const expert_range&) const = default;
};

/// The experts of one rank, as even as can be, the larger shares first: vLLM's linear placement (vllm PR 21497); the
/// only one where ep divides experts. Expects: 0 <= rank < ep, experts >= 0.
constexpr expert_range experts_of_rank(i64 experts, i64 ep, i64 rank) noexcept {
  const i64 share = experts / ep, rest = experts % ep;
  return {rank * share + (rank < rest ? rank : rest), share + (rank < rest ? 1 : 0)};
}

FP8WIRE_ABI_END
#endif
