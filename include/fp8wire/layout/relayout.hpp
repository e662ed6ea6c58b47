// SPDX-License-Identifier: Apache-2.0
/// Moves a batch of matrices from one layout to another: out of place, in place, and the proof that it was done.
#ifndef FP8WIRE_LAYOUT_RELAYOUT_HPP
#define FP8WIRE_LAYOUT_RELAYOUT_HPP
#include <fp8wire/layout/laid_out.hpp>
#include <fp8wire/layout/move_matrix.hpp>
#include <fp8wire/layout/padded.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

template <class Value> inline void fill(Value* data, i64 count, u32 bits) noexcept {
  static_assert(sizeof(Value) <= 4 && std::is_trivially_copyable_v<Value>,
                "relayout: an element of codes or scales is trivially copyable and has at most 4 bytes");
  if constexpr (sizeof(Value) == 1) {
    __builtin_memset(static_cast<void*>(data), static_cast<int>(bits & 0xFF), static_cast<std::size_t>(count));
  } else {
    for (i64 i = 0; i < count; ++i) __builtin_memcpy(static_cast<void*>(data + i), &bits, sizeof(Value));
  }
}

/// Every matrix of a batch into a layout, its padding first where it has any.
template <class From, class To, class In, class Value>
inline void move_batch(const From& from, const In* src, i64 batch_stride, const laid_out<To, Value>& target) noexcept {
  const laid_matrix<To> to{{1, target.rows, target.cols}};
  const i64 matrix = to.mapping.size();
  for (i64 b = 0; b < target.batch; ++b) {
    Value* out = target.data + b * matrix;
    if (matrix != target.rows * target.cols) fill(out, matrix, To::padding_bits);
    move_matrix(from, static_cast<const Value*>(src + b * batch_stride), to, out, target.rows, target.cols,
                is_large<Value>(target.rows * target.cols));
  }
}

inline void expect_apart(const void* a, i64 a_bytes, const void* b, i64 b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  const u64 first_end = first + static_cast<u64>(a_bytes), second_end = second + static_cast<u64>(b_bytes);
  if (a_bytes > 0 && b_bytes > 0 && first < second_end && second < first_end)
    raise("relayout: source and target overlap; the second one's distance in bytes", static_cast<i64>(second - first),
          first < second ? a_bytes : -b_bytes);
}

template <class One, class Other> constexpr void expect_same_shape(const One& a, const Other& b) {
  expect_equal(b.batch, a.batch, "relayout: batches of source and target differ");
  expect_equal(b.rows, a.rows, "relayout: rows of source and target differ");
  expect_equal(b.cols, a.cols, "relayout: cols of source and target differ");
}

/// Bytes from the first to the last element of a view.
template <class Value> constexpr i64 span_bytes(const matrix_view<Value>& view) noexcept {
  if (view.size() == 0) return 0;
  const i64 last =
      (view.batch - 1) * view.batch_stride + (view.rows - 1) * view.row_stride + (view.cols - 1) * view.col_stride;
  return (last + 1) * static_cast<i64>(sizeof(Value));
}

}  // namespace detail

/// Writes `target` from `source`: every live element and all padding; the source's padding is never read.
/// Both: the same batch x rows x cols of one trivially copyable type, at most 4 bytes wide. Cost: one pass; where the
/// target has padding, it is written twice.
/// Expects (checked): shapes that both layouts take, no overlap. Throws precondition_error.
/// Threads: no shared state; disjoint targets may run concurrently, the experts of a batch for instance.
template <layout From, layout To, class In, class Value>
  requires std::same_as<std::remove_const_t<In>, Value>
void relayout(laid_out<From, In> source, laid_out<To, Value> target) {
  detail::expect_valid(source);
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, source.size_bytes(), target.data, target.size_bytes());
  const detail::laid_matrix<From> from{{1, source.rows, source.cols}};
  detail::move_batch(from, source.data, from.mapping.size(), target);
}

/// The same from a row-major view with strides; nothing between its rows is read.
template <layout To, class In, class Value>
  requires std::same_as<std::remove_const_t<In>, Value>
void relayout(matrix_view<In> source, laid_out<To, Value> target) {
  detail::expect_valid(source, "relayout: source");
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, detail::span_bytes(source), target.data, target.size_bytes());
  const i64 row = source.row_stride, col = source.col_stride;
  if (col == 1) detail::move_batch(detail::strided_matrix<whole_run>{row, 1}, source.data, source.batch_stride, target);
  else detail::move_batch(detail::strided_matrix<1>{row, col}, source.data, source.batch_stride, target);
}

/// The way back, into a row-major view with strides; nothing between its rows is written. Crops all padding.
template <layout From, class In, class Value>
  requires std::same_as<std::remove_const_t<In>, Value>
void relayout(laid_out<From, In> source, matrix_view<Value> target) {
  detail::expect_valid(source);
  detail::expect_valid(target, "relayout: target");
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, source.size_bytes(), target.data, detail::span_bytes(target));
  const detail::laid_matrix<From> from{{1, source.rows, source.cols}};
  const i64 row = target.row_stride, col = target.col_stride;
  const bool large = detail::is_large<Value>(source.rows * source.cols);
  for (i64 b = 0; b < source.batch; ++b) {
    const Value* in = source.data + b * from.mapping.size();
    Value* out = target.data + b * target.batch_stride;
    if (col == 1)
      detail::move_matrix(from, in, detail::strided_matrix<whole_run>{row, 1}, out, source.rows, source.cols, large);
    else detail::move_matrix(from, in, detail::strided_matrix<1>{row, col}, out, source.rows, source.cols, large);
  }
}

/// Bytes of scratch that relayout_in_place needs for matrices of rows x cols, whatever the batch: one matrix.
template <class Value> constexpr i64 relayout_scratch_bytes(i64 rows, i64 cols) {
  const shape_check shape = row_major::accepts(1, rows, cols);
  if (!shape.ok()) detail::raise(shape.what, shape.got, shape.expected);
  return rows * cols * static_cast<i64>(sizeof(Value));
}

/// Rearranges a buffer where it lies and returns it under its new type; the old one names bytes that are gone.
/// scratch: rows * cols elements, used for one matrix after another; the bytes are those of one matrix at a time.
/// Into the layout it already has: nothing happens.
/// Expects (checked): neither layout has padding for this shape, so that one is a permutation of the other; the scratch
/// lies outside the buffer. Throws precondition_error. Threads: scratch belongs to the call.
template <layout To, layout From, class Value>
  requires(!std::is_const_v<Value>)
laid_out<To, Value> relayout_in_place(laid_out<From, Value> buffer, Value* scratch) {
  const laid_out<To, Value> target{buffer.data, buffer.batch, buffer.rows, buffer.cols};
  detail::expect_valid(buffer);
  detail::expect_valid(target);
  const i64 matrix = buffer.rows * buffer.cols, live = buffer.batch * matrix;
  detail::expect_equal(buffer.size(), live, "relayout_in_place: the source layout has padding");
  detail::expect_equal(target.size(), live, "relayout_in_place: the target layout has padding");
  if constexpr (!std::same_as<From, To>) {
    if (live > 0 && scratch == nullptr) detail::raise("relayout_in_place: there is no scratch", 0, matrix);
    detail::expect_apart(buffer.data, buffer.size_bytes(), scratch, matrix * static_cast<i64>(sizeof(Value)));
    const detail::laid_matrix<From> from{{1, buffer.rows, buffer.cols}};
    const detail::laid_matrix<To> to{{1, buffer.rows, buffer.cols}};
    for (i64 b = 0; b < buffer.batch; ++b) {
      Value* data = buffer.data + b * matrix;
      if constexpr (From::col_run == whole_run && To::col_run == whole_run) {
        if (buffer.rows > 1 && buffer.cols > 0) {
          detail::permute_rows(from, to, data, scratch, buffer.rows, buffer.cols);
          continue;
        }
      }
      if constexpr (sizeof(Value) == 1 && ((std::same_as<From, row_major> && std::same_as<To, transposed>) ||
                                           (std::same_as<From, transposed> && std::same_as<To, row_major>))) {
        const bool rows_first = std::same_as<From, row_major>;
        detail::transpose_in_place(reinterpret_cast<u8*>(data), rows_first ? buffer.rows : buffer.cols,
                                   rows_first ? buffer.cols : buffer.rows, reinterpret_cast<u8*>(scratch));
        continue;
      }
      detail::copy(scratch, static_cast<const Value*>(data), matrix);
      // What fits into the cache is in it, since it was just read.
      detail::move_matrix(from, static_cast<const Value*>(scratch), to, data, buffer.rows, buffer.cols,
                          matrix * static_cast<i64>(sizeof(Value)) > detail::cached_matrix);
    }
  }
  return target;
}

/// Proves a relayout: the offset of the first element of `target` that `source` and the padding rule contradict, or -1.
/// Goes by the target's inverse, one element at a time, and shares no code with the moving.
/// Expects (checked): equal shapes that both layouts take. Throws precondition_error.
template <layout From, layout To, class In, class Out>
  requires std::same_as<std::remove_const_t<In>, std::remove_const_t<Out>>
i64 verify_relayout(laid_out<From, In> source, laid_out<To, Out> target) {
  detail::expect_valid(source);
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  const auto from = source.mapping();
  const auto to = target.mapping();
  const u32 padding = To::padding_bits;
  for (i64 offset = 0; offset < target.size(); ++offset) {
    const index3 at = to.index(offset);
    const void* expected = at.batch < 0 ? static_cast<const void*>(&padding) : source.data + from.offset(at);
    if (__builtin_memcmp(target.data + offset, expected, sizeof(Out)) != 0) return offset;
  }
  return -1;
}

FP8WIRE_ABI_END
#endif
