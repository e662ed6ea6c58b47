// SPDX-License-Identifier: Apache-2.0
/// Whether the parts of all ranks make up a tensor: none outside, none twice, none missing.
#ifndef FP8WIRE_MODEL_SHARDS_HPP
#define FP8WIRE_MODEL_SHARDS_HPP
#include <span>
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/flat_range.hpp>
#include <fp8wire/core/matrix_view.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {
inline std::string of_rank(std::size_t rank, std::string_view what) {
  return std::string("the shard of rank ").append(std::to_string(rank)).append(" ").append(what);
}
inline std::string of_ranks(std::size_t one, std::size_t other, std::string_view what) {
  return std::string("the shards of ranks ")
      .append(std::to_string(one < other ? one : other))
      .append(" and ")
      .append(std::to_string(one < other ? other : one))
      .append(" ")
      .append(what);
}
}  // namespace detail

/// Flat ranges by rank, in any order, empty ones among them. `elements`: of the whole tensor.
/// Errors (C5): wrong_offset: negative, or behind the tensor; duplicate: two ranks own an element, both are named;
/// missing: nobody owns one. Cost: linear where starts rise with the rank, else quadratic.
inline error check_shards(std::string_view tensor, i64 elements, std::span<const flat_range> ranges) {
  const auto wrong = [&](errc code, std::string what, i64 got, i64 expected) {
    return make_error(code, std::string(tensor), std::move(what), got, expected, condition::c5_geometry);
  };
  std::vector<std::size_t> order;
  for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
    const flat_range& range = ranges[rank];
    if (range.length < 0)
      return wrong(errc::wrong_offset, detail::of_rank(rank, "has a negative length"), range.length, 0);
    if (range.start < 0 || range.length > elements || range.start > elements - range.length)
      return wrong(errc::wrong_offset, detail::of_rank(rank, "does not fit the tensor; its start"), range.start,
                   elements - range.length);
    if (range.empty()) continue;
    order.push_back(rank);
    for (std::size_t i = order.size() - 1; i > 0 && ranges[order[i]].start < ranges[order[i - 1]].start; --i)
      std::swap(order[i], order[i - 1]);
  }
  i64 covered = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const flat_range& range = ranges[order[i]];
    if (range.start < covered)
      return wrong(errc::duplicate, detail::of_ranks(order[i - 1], order[i], "overlap; the later begins at"),
                   range.start, covered);
    if (range.start > covered)
      return wrong(errc::missing, "no rank owns an element; the next shard begins at", range.start, covered);
    covered = range.end();
  }
  if (covered != elements) return wrong(errc::missing, "no rank owns the last elements; shards", covered, elements);
  return {};
}

/// Rectangles by rank (tensor parallelism), rows counted through the batch. Errors: as above. Cost: n squared.
inline error check_shards(std::string_view tensor, const matrix_extents& of, std::span<const slice> parts) {
  const auto wrong = [&](errc code, std::string what, i64 got, i64 expected) {
    return make_error(code, std::string(tensor), std::move(what), got, expected, condition::c5_geometry);
  };
  const i64 rows = of.batch * of.rows;
  i64 covered = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const slice& part = parts[rank];
    if (part.rows < 0 || part.row < 0 || part.rows > rows || part.row > rows - part.rows)
      return wrong(errc::wrong_offset, detail::of_rank(rank, "does not fit the rows; its first row"), part.row,
                   rows - part.rows);
    if (part.cols < 0 || part.col < 0 || part.cols > of.cols || part.col > of.cols - part.cols)
      return wrong(errc::wrong_offset, detail::of_rank(rank, "does not fit the columns; its first column"), part.col,
                   of.cols - part.cols);
    if (part.empty()) continue;
    for (std::size_t other = 0; other < rank; ++other) {
      const slice& earlier = parts[other];
      if (!earlier.empty() && part.row < earlier.row + earlier.rows && earlier.row < part.row + part.rows &&
          part.col < earlier.col + earlier.cols && earlier.col < part.col + part.cols)
        return wrong(errc::duplicate, detail::of_ranks(other, rank, "overlap; their first rows"), part.row,
                     earlier.row);
    }
    covered += part.rows * part.cols;
  }
  if (covered != rows * of.cols)
    return wrong(errc::missing, "no rank owns some of the elements; shards hold", covered, rows * of.cols);
  return {};
}

FP8WIRE_ABI_END
#endif
