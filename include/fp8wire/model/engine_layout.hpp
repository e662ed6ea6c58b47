// SPDX-License-Identifier: Apache-2.0
/// A quantized weight into the layout that an engine reads, by the layout's name, and back.
///
/// For programs, whose users choose a layout at run time; who knows it at compile time uses layout/relayout.hpp. The
/// name is the tag of what it made: whoever stores the result stores the name beside it.
#ifndef FP8WIRE_MODEL_ENGINE_LAYOUT_HPP
#define FP8WIRE_MODEL_ENGINE_LAYOUT_HPP
#include <span>
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/format/bf16.hpp>
#include <fp8wire/layout/named_layouts.hpp>
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/scale_encoding.hpp>

FP8WIRE_ABI_BEGIN

/// How an engine's codes and scales are stored: shapes with the batch in front (always), the scales' dtype, bytes.
/// E8M0 bytes that are not packed keep the label that the naming gives them: f8_e8m0 here.
struct engine_shapes {
  std::vector<i64> codes, scales;
  dtype scale = dtype::f32;
  i64 code_bytes = 0, scale_bytes = 0;
};

namespace detail {

/// Calls function.operator()<Entry>() for the layout of that name, or says why there is none.
template <class Function>
error with_layout(std::string_view name, const layout_use& use, std::string_view tensor, Function&& function) {
  error wrong;
  const bool found = layouts::visit(name, use, [&]<class Entry>() { wrong = function.template operator()<Entry>(); });
  if (found) return wrong;
  const std::string quoted = std::string("layout ").append(name);
  if (!layouts::is_known(name)) return make_error(errc::bad_argument, std::string(tensor), quoted + " is unknown");
  return make_error(errc::format_mismatch, std::string(tensor),
                    quoted + " takes no weight with " + std::to_string(use.block_rows) + "x" +
                        std::to_string(use.block_cols) + " blocks and " + std::string(name_of(use.scale)) + " scales");
}

inline i64 blocks_along(i64 extent, i64 block) noexcept {
  return block == 0 ? (extent > 0 ? 1 : 0) : ceil_div(extent, block);
}

inline std::vector<i64> with_batch(i64 batch, const stored_shape& shape) {
  std::vector<i64> all = {batch};
  all.insert(all.end(), shape.extents, shape.extents + shape.rank);
  return all;
}

/// The scale grid as the entry lays it out.
template <class Entry> typename Entry::pair::scales::mapping scale_mapping(const layout_use& use, i64 batch, i64 rows,
                                                                           i64 cols) {
  return {batch, Entry::scale_per_row ? rows : blocks_along(rows, use.block_rows), blocks_along(cols, use.block_cols)};
}

template <class Entry>
error check_shapes(const layout_use& use, std::string_view tensor, i64 batch, i64 rows, i64 cols) {
  shape_check shape = Entry::accepts(batch, rows, cols);
  if (shape.ok()) {
    const auto scales = scale_mapping<Entry>(use, batch, rows, cols);
    shape = Entry::pair::scales::accepts(scales.batch, scales.rows, scales.cols);
  }
  if (shape.ok()) return {};
  return make_error(errc::wrong_shape, std::string(tensor),
                    std::string("layout ").append(Entry::name).append(": ").append(shape.what), shape.got,
                    shape.expected, condition::c5_geometry);
}

inline error check_bytes(std::string_view tensor, std::string_view what, std::size_t got, i64 expected) {
  if (static_cast<i64>(got) == expected) return {};
  return make_error(errc::wrong_size, std::string(tensor),
                    std::string(what).append(" have other bytes than their layout"), static_cast<i64>(got), expected,
                    condition::c5_geometry);
}

template <class Codes, class Scales>
error check_grid(const layout_use& use, std::string_view tensor, const Codes& codes, const Scales& scales) {
  const i64 rows = blocks_along(codes.rows, use.block_rows), cols = blocks_along(codes.cols, use.block_cols);
  if (scales.batch == codes.batch && scales.rows == rows && scales.cols == cols) return {};
  const bool by_cols = scales.batch == codes.batch && scales.rows == rows, by_rows = scales.batch == codes.batch;
  return make_error(errc::wrong_shape, std::string(tensor),
                    by_cols   ? "its scale columns differ from the block grid"
                    : by_rows ? "its scale rows differ from the block grid"
                              : "its scales have another batch",
                    by_cols   ? scales.cols
                    : by_rows ? scales.rows
                              : scales.batch,
                    by_cols   ? cols
                    : by_rows ? rows
                              : codes.batch,
                    condition::c5_geometry);
}

/// Elements of Size bytes at any alignment, for buffers of files.
template <std::size_t Size> struct unaligned {
  u8 bytes[Size];
};

template <class Layout, std::size_t Size, class Byte, class Mapping>
auto bytes_of(Byte* data, const Mapping& grid) noexcept {
  using element = std::conditional_t<std::is_const_v<Byte>, const unaligned<Size>, unaligned<Size>>;
  return laid_out<Layout, element>{reinterpret_cast<element*>(data), grid.batch, grid.rows, grid.cols};
}
template <class Layout, class Scale, class Mapping> auto bytes_of(Scale* data, const Mapping& grid) noexcept {
  return bytes_of<Layout, sizeof(Scale)>(data, grid);
}

template <class Stored>
inline constexpr dtype dtype_of_scale = std::is_same_v<Stored, e8m0>   ? dtype::f8_e8m0
                                        : std::is_same_v<Stored, bf16> ? dtype::bf16
                                                                       : dtype::f32;

/// Whether an entry reads weights with such scales at all; what it never reads is not instantiated.
template <class Entry, class Stored>
inline constexpr bool could_read = [] {
  bool any = false;
  for (const i64 rows : {0, 1, 32, 128})
    for (const i64 cols : {0, 1, 32, 128})
      for (const weight_role role : {weight_role::plain, weight_role::gate_up})
        any = any || Entry::reads({rows, cols, dtype_of_scale<Stored>, role});
  return any;
}();

inline std::string block_text(i64 batch, i64 row, i64 col) {
  return std::string("the scale of block (")
      .append(std::to_string(batch))
      .append(", ")
      .append(std::to_string(row))
      .append(", ")
      .append(std::to_string(col))
      .append(")");
}

/// Says which block convert_scales refused.
template <class Scale> error bad_block(std::string_view tensor, const index3& refused,
                                       const matrix_view<const Scale>& in) {
  if (refused.batch < 0) return {};
  std::string what = block_text(refused.batch, refused.row, refused.col);
  if constexpr (std::is_same_v<Scale, float>) {
    const u32 bits = bits_of(in(refused.batch, refused.row, refused.col));
    what.append(" is no power of two that E8M0 holds: bits 0x").append((short_text{}.hex(bits, 8)).view());
  } else {
    what.append(" is NaN");
  }
  return make_error(errc::bad_scale, std::string(tensor), std::move(what), condition::c9_scale_sanity);
}

/// Says where rows of one block disagree.
inline error uneven_block(std::string_view tensor, const matrix_view<const e8m0>& per_row, i64 block_rows) {
  for (i64 b = 0; b < per_row.batch; ++b)
    for (i64 row = 0; row < per_row.rows; ++row)
      for (i64 col = 0; col < per_row.cols; ++col)
        if (per_row(b, row, col) != per_row(b, row - row % block_rows, col))
          return make_error(errc::bad_scale, std::string(tensor),
                            block_text(b, row / block_rows, col).append(" differs between its rows; row"), row,
                            row - row % block_rows, condition::c9_scale_sanity);
  return {};
}

}  // namespace detail

/// What `lay_out` would make. Errors: bad_argument (unknown name), format_mismatch (the engine reads no such weight),
/// wrong_shape (C5, both numbers).
inline result<engine_shapes> shapes_in(std::string_view name, const layout_use& use, std::string_view tensor, i64 batch,
                                       i64 rows, i64 cols) {
  engine_shapes shapes;
  error wrong = detail::with_layout(name, use, tensor, [&]<class Entry>() -> error {
    if (error bad = detail::check_shapes<Entry>(use, tensor, batch, rows, cols)) return bad;
    using pair = typename Entry::pair;
    const typename pair::codes::mapping codes{batch, rows, cols};
    const auto scales = detail::scale_mapping<Entry>(use, batch, rows, cols);
    shapes.codes = detail::with_batch(batch, codes.shape());
    shapes.scales = detail::with_batch(batch, scales.shape());
    shapes.scale = Entry::stored_scale(Entry::scale(use));
    shapes.code_bytes = codes.size();
    shapes.scale_bytes = scales.size() * (bit_width(Entry::scale(use)) / 8);
    return {};
  });
  if (wrong) return wrong;
  return shapes;
}

/// Codes and scales from canonical form, dense, into an engine's; scales are converted and repeated where it wants.
/// codes: batch x rows x cols. scales: the block grid, float, bf16 or e8m0 as use.scale says. Out: exactly the bytes of
/// shapes_in, at any alignment; padding is written.
/// Errors: those of shapes_in; wrong_shape, wrong_size (C5); bad_scale (C9) naming the first block whose scale E8M0
/// cannot hold. Nothing is written after an error. Throws precondition_error where in and out overlap.
template <class Stored>
error lay_out(std::string_view name, const layout_use& use, std::string_view tensor,
              laid_out<row_major, const u8> codes, laid_out<row_major, const Stored> scales, std::span<u8> codes_out,
              std::span<std::byte> scales_out) {
  const i64 batch = codes.batch, rows = codes.rows, cols = codes.cols;
  const auto shapes = shapes_in(name, use, tensor, batch, rows, cols);
  if (!shapes) return shapes.error();
  if (error wrong = detail::check_grid(use, tensor, codes, scales)) return wrong;
  if (error wrong = detail::check_bytes(tensor, "codes", codes_out.size(), shapes->code_bytes)) return wrong;
  if (error wrong = detail::check_bytes(tensor, "scales", scales_out.size(), shapes->scale_bytes)) return wrong;
  return detail::with_layout(name, use, tensor, [&]<class Entry>() -> error {
    using pair = typename Entry::pair;
    const auto grid = detail::scale_mapping<Entry>(use, batch, rows, cols);
    if constexpr (!detail::could_read<Entry, Stored>) return {};
    else if constexpr (Entry::scale_per_row) {
      std::vector<e8m0> per_row(static_cast<std::size_t>(grid.batch * grid.rows * grid.cols));
      const matrix_view<const Stored> blocks = dense(scales.data, scales.rows, scales.cols, scales.batch);
      const index3 refused =
          convert_scales(blocks, dense(per_row.data(), grid.rows, grid.cols, grid.batch), use.block_rows);
      if (error wrong = detail::bad_block(tensor, refused, blocks)) return wrong;
      relayout(detail::bytes_of<row_major>(per_row.data(), grid),
               detail::bytes_of<typename pair::scales, 1>(scales_out.data(), grid));
    } else {
      relayout(detail::bytes_of<row_major>(scales.data, grid),
               detail::bytes_of<typename pair::scales, sizeof(Stored)>(scales_out.data(), grid));
    }
    relayout(codes, laid_out<typename pair::codes, u8>{codes_out.data(), batch, rows, cols});
    return {};
  });
}

/// The way back, from an engine's bytes to canonical form. In and out as in lay_out.
/// Errors: those of shapes_in; wrong_shape, wrong_size (C5); bad_scale (C9) where the rows of one block have different
/// scales or a byte is NaN. Nothing is written after an error. Throws precondition_error where in and out overlap.
template <class Stored>
error canonical_from(std::string_view name, const layout_use& use, std::string_view tensor,
                     std::span<const u8> codes_in, std::span<const std::byte> scales_in, laid_out<row_major, u8> codes,
                     laid_out<row_major, Stored> scales) {
  const i64 batch = codes.batch, rows = codes.rows, cols = codes.cols;
  const auto shapes = shapes_in(name, use, tensor, batch, rows, cols);
  if (!shapes) return shapes.error();
  if (error wrong = detail::check_grid(use, tensor, codes, scales)) return wrong;
  if (error wrong = detail::check_bytes(tensor, "codes", codes_in.size(), shapes->code_bytes)) return wrong;
  if (error wrong = detail::check_bytes(tensor, "scales", scales_in.size(), shapes->scale_bytes)) return wrong;
  return detail::with_layout(name, use, tensor, [&]<class Entry>() -> error {
    using pair = typename Entry::pair;
    const auto grid = detail::scale_mapping<Entry>(use, batch, rows, cols);
    if constexpr (!detail::could_read<Entry, Stored>) return {};
    else if constexpr (Entry::scale_per_row) {
      std::vector<e8m0> per_row(static_cast<std::size_t>(grid.batch * grid.rows * grid.cols));
      relayout(detail::bytes_of<typename pair::scales, 1>(scales_in.data(), grid),
               detail::bytes_of<row_major>(per_row.data(), grid));
      matrix_view<const e8m0> blocks = dense(per_row.data(), grid.rows, grid.cols, grid.batch);
      if (error wrong = detail::uneven_block(tensor, blocks, use.block_rows)) return wrong;
      blocks.rows = scales.rows;  // the first row of every block
      blocks.row_stride *= use.block_rows;
      if constexpr (detail::is_scale<Stored>) {  // clang looks at what does not depend on Entry, read or not
        const index3 refused = convert_scales(blocks, dense(scales.data, scales.rows, scales.cols, scales.batch));
        if (error wrong = detail::bad_block(tensor, refused, blocks)) return wrong;
      }
    } else {
      relayout(detail::bytes_of<typename pair::scales, sizeof(Stored)>(scales_in.data(), grid),
               detail::bytes_of<row_major>(scales.data, grid));
    }
    relayout(laid_out<typename pair::codes, const u8>{codes_in.data(), batch, rows, cols}, codes);
    return {};
  });
}

FP8WIRE_ABI_END
#endif
