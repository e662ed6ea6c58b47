// SPDX-License-Identifier: Apache-2.0
/// Moves a batch of matrices from one layout to another: out of place, in place, and the proof that it was done.
///
/// Every layout promises that its matrices follow each other and that its rows look alike (concept.hpp), so one matrix is
/// moved at a time, in runs that are contiguous on both sides, with column offsets computed once for all rows.
#ifndef FP8WIRE_LAYOUT_RELAYOUT_HPP
#define FP8WIRE_LAYOUT_RELAYOUT_HPP
#include <type_traits>

#include <fp8wire/core/slice.hpp>
#include <fp8wire/detail/transpose.hpp>
#include <fp8wire/layout/laid_out.hpp>
#include <fp8wire/layout/row_map.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// One matrix of a strided view, as far as moving needs a layout.
template <i64 ColRun> struct strided_matrix {
  static constexpr i64 col_run = ColRun, row_run = 1, row_step = 1;
  i64 row_stride, col_stride;
  constexpr i64 offset(index3 i) const noexcept { return i.row * row_stride + i.col * col_stride; }
};

/// One matrix of a layout: the mapping together with its runs.
template <class Layout> struct laid_matrix {
  static constexpr i64 col_run = Layout::col_run, row_run = Layout::row_run, row_step = Layout::row_step;
  typename Layout::mapping mapping;
  constexpr i64 offset(index3 i) const noexcept { return mapping.offset(i); }
};

/// The same with the row map of the layout in the open.
template <class Map, class Inner> struct laid_matrix<row_mapped<Map, Inner>> {
  using row_map = Map;
  static constexpr i64 col_run = Inner::col_run, row_run = 1, row_step = 1;
  typename row_mapped<Map, Inner>::mapping mapping;
  constexpr i64 offset(index3 i) const noexcept { return mapping.offset(i); }
  constexpr laid_matrix<Inner> inner() const noexcept { return {mapping.inner()}; }
};

/// A matrix by the rows that a row map makes of it.
template <class Map, class Matrix> struct gathered_matrix {
  static constexpr i64 col_run = Matrix::col_run, row_run = 1, row_step = 1;
  Matrix matrix;
  i64 rows;
  constexpr i64 offset(index3 i) const noexcept { return matrix.offset({0, Map::from(rows, i.row), i.col}); }
};

template <class T> inline void fill(T* data, i64 count, u32 bits) noexcept {
  if constexpr (sizeof(T) == 1) {
    __builtin_memset(data, static_cast<int>(bits & 0xFF), static_cast<std::size_t>(count));
  } else {
    for (i64 i = 0; i < count; ++i) __builtin_memcpy(data + i, &bits, sizeof(T));
  }
}

template <class T> inline void copy(T* dst, const T* src, i64 count) noexcept {
  __builtin_memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(T));
}

/// Rows [row_begin, row_end) and columns [col_begin, col_end) in runs of Run columns; col_begin is a multiple of Run.
/// 128 rows at a time, so that what they touch stays in the cache until it is whole.
template <i64 Run, class From, class To, class T>
inline void move_runs(const From& from, const T* src, const To& to, T* dst, const slice& part) noexcept {
  constexpr i64 table = 32, block = 128;
  i64 from_at[table], to_at[table];
  const i64 from_first = from.offset({0, 0, 0}), to_first = to.offset({0, 0, 0});
  const i64 row_end = part.row + part.rows, whole_end = part.col + part.cols / Run * Run, rest = part.cols % Run;
  for (i64 top = part.row; top < row_end; top += block) {
    const i64 bottom = row_end - top < block ? row_end : top + block;
    for (i64 left = part.col; left < whole_end; left += table * Run) {
      const i64 count = (whole_end - left) / Run < table ? (whole_end - left) / Run : table;
      for (i64 j = 0; j < count; ++j) {
        from_at[j] = from.offset({0, 0, left + j * Run}) - from_first;
        to_at[j] = to.offset({0, 0, left + j * Run}) - to_first;
      }
      for (i64 row = top; row < bottom; ++row) {
        const T* source = src + from.offset({0, row, 0});
        T* target = dst + to.offset({0, row, 0});
        for (i64 j = 0; j < count; ++j) copy(target + to_at[j], source + from_at[j], Run);
      }
    }
    if (rest > 0) {
      for (i64 row = top; row < bottom; ++row)
        copy(dst + to.offset({0, row, whole_end}), src + from.offset({0, row, whole_end}), rest);
    }
  }
}

/// Squares of Lines x Lines units of Run columns, one Line wide: one side has a row's units side by side, the other has the
/// units of rows r, r + row_step ... side by side. Answers the part that is moved; the edges are left.
template <i64 Run, std::size_t Lines, class Line, class From, class To, class T>
inline slice move_squares(const From& from, const T* src, const To& to, T* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 size = static_cast<i64>(Lines);
  constexpr bool along_source = From::col_run > Run;
  constexpr i64 step = along_source ? To::row_step : From::row_step, band = step * size, block = 128 / band * band;
  const auto along = [&](i64 row, i64 col) { return along_source ? from.offset({0, row, col}) : to.offset({0, row, col}); };
  const auto across = [&](i64 row, i64 col) { return along_source ? to.offset({0, row, col}) : from.offset({0, row, col}); };
  const slice moved{0, 0, rows / band * band, cols / (size * Run) * (size * Run)};
  i64 line_at[std::size_t{block}], group_at[std::size_t{block / size}];
  for (i64 top = 0; top < moved.rows; top += block) {
    const i64 groups = (moved.rows - top < block ? moved.rows - top : block) / size;
    for (i64 group = 0; group < groups; ++group) {
      const i64 first = top + group / step * band + group % step;
      group_at[group] = across(first, 0);
      for (i64 k = 0; k < size; ++k) line_at[group * size + k] = along(first + k * step, 0);
    }
    for (i64 col = 0; col < moved.cols; col += size * Run) {
      const i64 line_step = along(0, col) - along(0, 0);
      i64 group_step[Lines];
      for (i64 k = 0; k < size; ++k) group_step[k] = across(0, col + k * Run) - across(0, 0);
      for (i64 group = 0; group < groups; ++group) {
        Line square[Lines];
        const i64* line = line_at + group * size;
        for (i64 k = 0; k < size; ++k)
          __builtin_memcpy(&square[k], src + (along_source ? line[k] + line_step : group_at[group] + group_step[k]), sizeof(Line));
        transpose_square(square);
        for (i64 k = 0; k < size; ++k)
          __builtin_memcpy(dst + (along_source ? group_at[group] + group_step[k] : line[k] + line_step), &square[k], sizeof(Line));
      }
    }
  }
  return moved;
}

template <class From, class To, class T>
inline void move_matrix(const From& from, const T* src, const To& to, T* dst, i64 rows, i64 cols) noexcept {
  constexpr i64 run = From::col_run < To::col_run ? From::col_run : To::col_run;
  if constexpr (run == whole_run) {
    for (i64 row = 0; row < rows; ++row) copy(dst + to.offset({0, row, 0}), src + from.offset({0, row, 0}), cols);
    return;
  } else {
    // A row map costs nothing when the other side is walked in the map's order instead.
    if constexpr (requires { typename To::row_map; }) {
      if (To::row_map::stored_rows(rows) == rows)
        return move_matrix(gathered_matrix<typename To::row_map, From>{from, rows}, src, to.inner(), dst, rows, cols);
    } else if constexpr (requires { typename From::row_map; }) {
      if (From::row_map::stored_rows(rows) == rows)
        return move_matrix(from.inner(), src, gathered_matrix<typename From::row_map, To>{to, rows}, dst, rows, cols);
    }
    constexpr i64 bytes = run * static_cast<i64>(sizeof(T)), size = bytes == 1 ? 8 : 4;
    constexpr bool source_along = From::col_run >= size * run && To::row_run >= size;
    constexpr bool target_along = To::col_run >= size * run && From::row_run >= size;
    slice moved{};
    if constexpr (bytes == 1 && (source_along || target_along))
      moved = move_squares<run, 8, u64>(from, src, to, dst, rows, cols);
    else if constexpr (bytes == 4 && (source_along || target_along))
      moved = move_squares<run, 4, word_line>(from, src, to, dst, rows, cols);
    move_runs<run>(from, src, to, dst, slice{0, moved.cols, moved.rows, cols - moved.cols});
    move_runs<run>(from, src, to, dst, slice{moved.rows, 0, rows - moved.rows, cols});
  }
}

/// Every matrix of a batch into a layout, its padding first where it has any.
template <class From, class To, class In, class T>
inline void move_batch(const From& from, const In* src, i64 batch_stride, const laid_out<To, T>& target) noexcept {
  const laid_matrix<To> to{{1, target.rows, target.cols}};
  const i64 matrix = to.mapping.size();
  for (i64 b = 0; b < target.batch; ++b) {
    T* out = target.data + b * matrix;
    if (matrix != target.rows * target.cols) fill(out, matrix, To::padding_bits);
    move_matrix(from, static_cast<const T*>(src + b * batch_stride), to, out, target.rows, target.cols);
  }
}

inline void expect_apart(const void* a, i64 a_bytes, const void* b, i64 b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  if (a_bytes > 0 && b_bytes > 0 && first < second + static_cast<u64>(b_bytes) && second < first + static_cast<u64>(a_bytes))
    raise("relayout: source and target overlap", static_cast<i64>(first), static_cast<i64>(second));
}

template <class A, class B> constexpr void expect_same_shape(const A& a, const B& b) {
  expect_equal(b.batch, a.batch, "relayout: batches of source and target differ");
  expect_equal(b.rows, a.rows, "relayout: rows of source and target differ");
  expect_equal(b.cols, a.cols, "relayout: cols of source and target differ");
}

template <class T> constexpr i64 span_bytes(const matrix_view<T>& view) noexcept {
  if (view.size() == 0) return 0;
  return ((view.batch - 1) * view.batch_stride + (view.rows - 1) * view.row_stride + (view.cols - 1) * view.col_stride + 1) *
         static_cast<i64>(sizeof(T));
}

}  // namespace detail

/// Writes `target` from `source`: every live element and all padding; the source's padding is never read.
/// Both: the same batch x rows x cols of one trivially copyable type. Expects (checked): shapes that both layouts take, no
/// overlap. Cost: one pass; a second write of the buffer where the target has padding.
/// Threads: no shared state; disjoint targets may run concurrently, experts of a batch for instance.
template <layout From, layout To, class In, class T>
  requires std::same_as<std::remove_const_t<In>, T>
void relayout(laid_out<From, In> source, laid_out<To, T> target) {
  detail::expect_valid(source);
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, source.size_bytes(), target.data, target.size_bytes());
  detail::move_batch(detail::laid_matrix<From>{{1, source.rows, source.cols}}, source.data,
                     source.batch > 0 ? source.size() / source.batch : 0, target);
}

/// The same from a row-major view with strides; nothing between its rows is read.
template <layout To, class In, class T>
  requires std::same_as<std::remove_const_t<In>, T>
void relayout(matrix_view<In> source, laid_out<To, T> target) {
  detail::expect_valid(source, "relayout: source");
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, detail::span_bytes(source), target.data, target.size_bytes());
  if (source.col_stride == 1)
    detail::move_batch(detail::strided_matrix<whole_run>{source.row_stride, 1}, source.data, source.batch_stride, target);
  else
    detail::move_batch(detail::strided_matrix<1>{source.row_stride, source.col_stride}, source.data, source.batch_stride,
                       target);
}

/// The way back, into a row-major view with strides; nothing between its rows is written. Crops whatever padding there is.
template <layout From, class In, class T>
  requires std::same_as<std::remove_const_t<In>, T>
void relayout(laid_out<From, In> source, matrix_view<T> target) {
  detail::expect_valid(source);
  detail::expect_valid(target, "relayout: target");
  detail::expect_same_shape(source, target);
  detail::expect_apart(source.data, source.size_bytes(), target.data, detail::span_bytes(target));
  const detail::laid_matrix<From> from{{1, source.rows, source.cols}};
  for (i64 b = 0; b < source.batch; ++b) {
    const T* matrix = source.data + b * (source.size() / source.batch);
    T* out = target.data + b * target.batch_stride;
    if (target.col_stride == 1)
      detail::move_matrix(from, matrix, detail::strided_matrix<whole_run>{target.row_stride, 1}, out, source.rows, source.cols);
    else
      detail::move_matrix(from, matrix, detail::strided_matrix<1>{target.row_stride, target.col_stride}, out, source.rows,
                          source.cols);
  }
}

/// Bytes of scratch that relayout_in_place needs for matrices of rows x cols, whatever the batch: one matrix.
template <class T> constexpr i64 relayout_scratch_bytes(i64 rows, i64 cols) {
  const shape_check shape = row_major::accepts(1, rows, cols);
  if (!shape.ok()) detail::raise(shape.what, shape.got, shape.expected);
  return rows * cols * static_cast<i64>(sizeof(T));
}

/// Rearranges a buffer where it lies and returns it under its new type; the old one names bytes that are gone.
/// scratch: rows * cols elements, used for one matrix after another; the bytes are those of one matrix at a time.
/// Expects (checked): neither layout has padding for this shape, so that one is a permutation of the other.
/// Into the layout it already has: nothing happens. Threads: scratch belongs to the call.
template <layout To, layout From, class T>
  requires(!std::is_const_v<T>)
laid_out<To, T> relayout_in_place(laid_out<From, T> buffer, T* scratch) {
  const laid_out<To, T> target{buffer.data, buffer.batch, buffer.rows, buffer.cols};
  detail::expect_valid(buffer);
  detail::expect_valid(target);
  const i64 live = buffer.batch * buffer.rows * buffer.cols, matrix = buffer.rows * buffer.cols;
  detail::expect_equal(buffer.size(), live, "relayout_in_place: the source layout has padding");
  detail::expect_equal(target.size(), live, "relayout_in_place: the target layout has padding");
  if constexpr (!std::same_as<From, To>) {
    if (live > 0 && scratch == nullptr) detail::raise("relayout_in_place: there is no scratch", 0, matrix);
    detail::expect_apart(buffer.data, buffer.size_bytes(), scratch, matrix * static_cast<i64>(sizeof(T)));
    for (i64 b = 0; b < buffer.batch; ++b) {
      detail::copy(scratch, buffer.data + b * matrix, matrix);
      detail::move_matrix(detail::laid_matrix<From>{{1, buffer.rows, buffer.cols}}, static_cast<const T*>(scratch),
                          detail::laid_matrix<To>{{1, buffer.rows, buffer.cols}}, buffer.data + b * matrix, buffer.rows,
                          buffer.cols);
    }
  }
  return target;
}

/// Proves a relayout: the offset of the first element of `target` that is not what `source` and the padding rule say, or -1.
/// Goes by the target's inverse, one element at a time, and shares no code with the moving. Expects: equal shapes (checked).
template <layout From, layout To, class In, class Out>
  requires std::same_as<std::remove_const_t<In>, std::remove_const_t<Out>>
i64 verify_relayout(laid_out<From, In> source, laid_out<To, Out> target) {
  detail::expect_valid(source);
  detail::expect_valid(target);
  detail::expect_same_shape(source, target);
  const auto from = source.mapping();
  const auto to = target.mapping();
  for (i64 offset = 0; offset < target.size(); ++offset) {
    const index3 at = to.index(offset);
    const u32 padding = To::padding_bits;
    const void* expected = at.batch < 0 ? static_cast<const void*>(&padding) : source.data + from.offset(at);
    if (__builtin_memcmp(target.data + offset, expected, sizeof(Out)) != 0) return offset;
  }
  return -1;
}

FP8WIRE_ABI_END
#endif
