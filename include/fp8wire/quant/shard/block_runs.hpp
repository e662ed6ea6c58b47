// SPDX-License-Identifier: Apache-2.0
/// A rectangle of a tensor cut at block edges: what partial amax and partial cast both walk.
#ifndef FP8WIRE_QUANT_SHARD_BLOCK_RUNS_HPP
#define FP8WIRE_QUANT_SHARD_BLOCK_RUNS_HPP
#include <fp8wire/core/flat_range.hpp>
#include <fp8wire/quant/reference.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Elements of one row of a rectangle that lie in one block.
struct block_run {
  i64 batch, block_row, block_col;
  i64 row, col, count;  // within the rectangle
};

/// Calls visit(block_run) row by row. `part` counts rows through the batch. Divides once a rectangle, never once an
/// element.
template <block_shape Block, class Visit>
constexpr void for_each_run(const matrix_extents& of, const slice& part, const Visit& visit) {
  if (part.empty()) return;
  const i64 height = block_extent(Block::rows, of.rows), width = block_extent(Block::cols, of.cols);
  i64 batch = part.row / of.rows, row = part.row % of.rows;
  i64 block_row = row / height, rows_left = height - row % height;
  const i64 first_block = part.col / width, first_width = width - part.col % width;
  for (i64 at = 0; at < part.rows; ++at) {
    i64 block_col = first_block, room = first_width;
    for (i64 col = 0; col < part.cols; room = width, ++block_col) {
      const i64 count = room < part.cols - col ? room : part.cols - col;
      visit(block_run{batch, block_row, block_col, at, col, count});
      col += count;
    }
    if (++row == of.rows) {
      row = block_row = 0;
      rows_left = height;
      ++batch;
    } else if (--rows_left == 0) {
      rows_left = height;
      ++block_row;
    }
  }
}

/// Throws precondition_error unless the rectangle lies in the tensor and the tensor's size fits 63 bits.
constexpr void expect_part(const matrix_extents& of, const slice& part) {
  i64 rows = 0, count = 0;
  if (!multiply_checked(of.batch, of.rows, rows) || !multiply_checked(rows, of.cols, count))
    raise("shard: the tensor's extents must be >= 0 and fit 63 bits", of.rows, of.cols);
  if (part.rows < 0 || part.cols < 0) raise("shard: extents must be >= 0", part.rows, part.cols);
  if (part.row < 0 || part.rows > rows || part.row > rows - part.rows)
    raise("shard: the part ends behind the rows of the tensor", part.row + part.rows, rows);
  if (part.col < 0 || part.cols > of.cols || part.col > of.cols - part.cols)
    raise("shard: the part ends behind the columns of the tensor", part.col + part.cols, of.cols);
}

/// Throws precondition_error unless the range lies in the tensor.
constexpr void expect_range(const matrix_extents& of, flat_range range) {
  expect_part(of, {});
  const i64 count = of.batch * of.rows * of.cols;
  if (range.length < 0) raise("shard: its length must be >= 0", range.length, 0);
  if (range.start < 0 || range.length > count || range.start > count - range.length)
    raise("shard: it ends behind the tensor; its start", range.start, count - range.length);
}

/// Throws precondition_error unless the grid has one entry for each block of the tensor.
template <any_recipe Recipe, class Value>
constexpr void expect_grid(const matrix_extents& of, const matrix_view<Value>& grid, const char* what) {
  expect_valid(grid, what);
  expect_equal(grid.batch, of.batch, what);
  expect_equal(grid.rows, scale_rows<typename Recipe::block>(of.rows), what);
  expect_equal(grid.cols, scale_cols<typename Recipe::block>(of.cols), what);
}

/// A part of a flat shard as a view. `shard` is the element at range.start.
template <class Value>
constexpr matrix_view<Value> view_of_part(Value* shard, flat_range range, const slice& part, i64 cols) noexcept {
  return {shard + (part.row * cols + part.col - range.start), part.rows, part.cols, cols, 1, 0, 1};
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
