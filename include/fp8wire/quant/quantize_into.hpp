// SPDX-License-Identifier: Apache-2.0
/// Weights to codes and scales where an engine's layouts want them, in one pass over memory.
///
/// A panel of blocks is quantized into a scratch that stays in the cache and moved from there to its places, so
/// that layouts need no kernels of their own. Codes whose rows stay whole are written where they belong at once.
#ifndef FP8WIRE_QUANT_QUANTIZE_INTO_HPP
#define FP8WIRE_QUANT_QUANTIZE_INTO_HPP
#include <span>

#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/scale_encoding.hpp>
#include <fp8wire/quant/laid_pair.hpp>
#include <fp8wire/quant/quantize.hpp>
#include <fp8wire/quant/verify.hpp>

FP8WIRE_ABI_BEGIN

/// What quantize_into says: the first NaN or Inf as quantize does, and the first block (batch, row and column of the
/// block grid) whose scale E8M0 cannot hold, batch -1 where there is none.
struct laid_status : status {
  index3 refused_scale{-1, -1, -1};
};

namespace detail {

/// A layout's matrix from one row and column on, multiples of 128.
template <class Matrix> struct part_from {
  static constexpr i64 col_run = Matrix::col_run, row_run = Matrix::row_run, row_step = Matrix::row_step;
  Matrix matrix;
  i64 row, col;
  constexpr i64 offset(index3 i) const noexcept { return matrix.offset({0, row + i.row, col + i.col}); }
};

/// Dense block scales as one row for each row of the weight.
struct repeated_rows {
  static constexpr i64 col_run = whole_run, row_run = 1, row_step = 1;
  i64 cols, times;
  constexpr i64 offset(index3 i) const noexcept { return i.row / times * cols + i.col; }
};

/// The numbers behind quantize_into for one recipe, pair of layouts and shape.
template <any_recipe Recipe, class Layout> struct panel_plan {
  using block = typename Recipe::block;
  // Rows of codes stay whole; where they begin is then a table in the scratch, unless they keep their order.
  static constexpr bool codes_at_once = laid_matrix<typename Layout::codes>::col_run == whole_run;
  static constexpr bool ordered = std::same_as<typename Layout::codes, row_major>;
  static constexpr bool scales_at_once = std::same_as<typename Layout::scales, row_major>;
  i64 rows, cols;

  /// Rows and columns of weights that go through the scratch together, so many that it stays in the cache; all of them
  /// where a block looks beyond its own.
  constexpr i64 panel_rows() const noexcept { return fitting(block::rows, rows, panel_cols()); }
  constexpr i64 panel_cols() const noexcept {
    return fitting(block::cols, cols, block::rows == whole ? rows : multiple(block::rows));
  }
  constexpr i64 code_bytes() const noexcept {
    if (codes_at_once) return ordered ? 0 : rows * static_cast<i64>(sizeof(i64));
    return round_up(panel_rows() * panel_cols(), 64);
  }
  constexpr i64 scale_bytes() const noexcept {
    return scales_at_once
               ? 0
               : scale_rows<block>(rows) * scale_cols<block>(cols) * static_cast<i64>(sizeof(stored_t<Recipe>));
  }

 private:
  /// The least multiple of a block's extent that is one of 128.
  static constexpr i64 multiple(i64 block_extent) noexcept {
    i64 unit = block_extent == whole ? 128 : block_extent;
    while (unit % 128 != 0) unit += block_extent;
    return unit;
  }
  /// Of an extent, what fits into the cache beside `across` of the other.
  static constexpr i64 fitting(i64 block_extent, i64 extent, i64 across) noexcept {
    constexpr i64 most_bytes = i64{192} << 10;
    if (block_extent == whole || Recipe::num.edge == edge_pad::last_element) return extent;
    const i64 unit = multiple(block_extent), units = across == 0 ? 1 : most_bytes / across / unit;
    const i64 panel = units > 1 ? units * unit : unit;
    return panel < extent ? panel : extent;
  }
};

/// Dense block scales to where a layout wants them. Answers the first one that E8M0 cannot hold.
template <any_recipe Recipe, class Layout>
index3 place_scales(stored_t<Recipe>* grid, const panel_plan<Recipe, Layout>& plan,
                    laid_out<typename Layout::scales, laid_scale_t<Recipe, Layout>> target) noexcept {
  using block = typename Recipe::block;
  using scale = laid_scale_t<Recipe, Layout>;
  const i64 rows = scale_rows<block>(plan.rows), cols = scale_cols<block>(plan.cols);
  index3 refused{-1, -1, -1};
  if constexpr (Layout::scales::packed > 1) {
    // In place: a byte never lies behind the number that it is made of.
    auto* bytes = reinterpret_cast<e8m0*>(grid);
    for (i64 i = 0; i < rows * cols && !std::same_as<stored_t<Recipe>, e8m0>; ++i) {
      const float value = to_float(grid[i]);
      const bool fits = fits_e8m0(value);
      if (!fits && refused.batch < 0) refused = {0, i / cols, i % cols};
      bytes[i] = fits ? exact_e8m0(value) : e8m0{e8m0::nan_code};
    }
    move_batch(repeated_rows{cols, block_extent(block::rows, plan.rows)}, static_cast<const scale*>(bytes), 0, target);
  } else {
    move_batch(strided_matrix<whole_run>{cols, 1}, static_cast<const scale*>(grid), 0, target);
  }
  return refused;
}

/// Rows of a panel to their places; whole cache lines past the caches where a layout keeps them whole, as the quantizer
/// itself does with codes that no cache would keep.
template <class To> void place_rows(const u8* panel, const To& to, u8* codes, i64 rows, i64 cols, bool large) noexcept {
  if constexpr (To::col_run % 64 == 0) {
    constexpr i64 most = i64{1} << 30, run = To::col_run < most ? To::col_run : most;
    const auto address = reinterpret_cast<std::uintptr_t>(codes + to.offset({0, 0, 0}));
    if (large && cols % 64 == 0 && address % 16 == 0) {
      for (i64 row = 0; row < rows; ++row)
        for (i64 left = 0; left < cols; left += run) {
          const i64 end = cols - left < run ? cols - left : run;
          auto* target = reinterpret_cast<std::byte*>(codes + to.offset({0, row, left}));
          const auto* source = reinterpret_cast<const std::byte*>(panel + row * cols + left);
          for (i64 at = 0; at < end; at += 64) copy_streamed(target + at, source + at);
        }
      end_streaming();
      return;
    }
  }
  move_matrix(strided_matrix<whole_run>{cols, 1}, panel, to, codes, rows, cols, large);
}

}  // namespace detail

/// Bytes of scratch that quantize_into needs for matrices of rows x cols, whatever the batch.
template <any_recipe Recipe, class Layout> constexpr i64 quantize_scratch_bytes(i64 rows, i64 cols) noexcept {
  const detail::panel_plan<Recipe, Layout> plan{rows, cols};
  return plan.code_bytes() + plan.scale_bytes();
}

/// quantize and relayout in one: the bytes are those of quantizing into canonical form and moving that, for every
/// expert alone and for all of a batch. All padding is written. Scales of packed layouts become E8M0 and are repeated
/// for every row; one that E8M0 cannot hold is reported, and its bytes are FF.
/// in, amax_floor, run, NaN and Inf: as quantize. out: shapes as laid_pair::of. scratch: quantize_scratch_bytes,
/// aligned to 8, used for one panel and one matrix after the other.
/// Expects (checked): shapes agree and are taken by the layouts, the scratch is large enough; that outputs and scratch
/// overlap nothing is unchecked. Throws precondition_error before any write.
template <any_recipe Recipe, class Layout, class In, executor Executor = serial>
laid_status quantize_into(matrix_view<const In> in, laid_pair<Recipe, Layout> out, std::span<std::byte> scratch,
                          float amax_floor = Recipe::num.amax_floor, Executor&& run = Executor{}) {
  using plan_type = detail::panel_plan<Recipe, Layout>;
  using block = typename Recipe::block;
  detail::expect_valid(in, "weights: extents must be >= 0, fit 63 bits and have data");
  detail::expect_valid(out.codes);
  detail::expect_valid(out.scales);
  detail::expect_floor(amax_floor);
  detail::expect_equal(out.codes.batch, in.batch, "codes: batch differs from the weights");
  detail::expect_equal(out.codes.rows, in.rows, "codes: rows differ from the weights");
  detail::expect_equal(out.codes.cols, in.cols, "codes: columns differ from the weights");
  detail::expect_equal(out.scales.batch, in.batch, "scales: batch differs from the weights");
  detail::expect_equal(out.scales.rows, laid_scale_rows<Recipe, Layout>(in.rows), "scales: rows differ");
  detail::expect_equal(out.scales.cols, scale_cols<block>(in.cols), "scales: columns differ from the block grid");
  const plan_type plan{in.rows, in.cols};
  if (static_cast<i64>(scratch.size()) < plan.code_bytes() + plan.scale_bytes())
    detail::raise("quantize_into: bytes of scratch", static_cast<i64>(scratch.size()),
                  plan.code_bytes() + plan.scale_bytes());
  const i64 grid_cols = scale_cols<block>(in.cols);
  const i64 down = plan_type::codes_at_once ? in.rows : plan.panel_rows();
  const i64 across = plan_type::codes_at_once ? in.cols : plan.panel_cols();
  auto* const code_scratch = reinterpret_cast<u8*>(scratch.data());
  auto* const grid_scratch = reinterpret_cast<stored_t<Recipe>*>(scratch.data() + plan.code_bytes());
  const detail::laid_matrix<typename Layout::codes> to{{1, in.rows, in.cols}};
  const i64* code_rows = nullptr;
  if constexpr (plan_type::codes_at_once && !plan_type::ordered) {
    auto* const table = reinterpret_cast<i64*>(scratch.data());
    for (i64 row = 0; row < in.rows && in.cols > 0; ++row) table[row] = to.offset({0, row, 0});
    code_rows = table;
  }
  laid_status found;
  for (i64 b = 0; b < in.batch; ++b) {
    const i64 matrix = to.mapping.size(), scales = out.scales.size() / out.scales.batch;
    u8* const codes = out.codes.data + b * matrix;
    if (matrix != in.rows * in.cols) detail::fill(codes, matrix, Layout::codes::padding_bits);
    stored_t<Recipe>* grid = grid_scratch;
    if constexpr (plan_type::scales_at_once) grid = out.scales.data + b * scales;
    for (i64 row = 0; row < in.rows; row += down) {
      for (i64 col = 0; col < in.cols; col += across) {
        matrix_view<const In> part = in.slice_of(b);
        part.data += row * part.row_stride + col * part.col_stride;
        part.rows = in.rows - row < down ? in.rows - row : down;
        part.cols = in.cols - col < across ? in.cols - col : across;
        u8* const made = plan_type::codes_at_once ? codes : code_scratch;
        stored_t<Recipe>* const scale = grid + row / detail::block_extent(block::rows, in.rows) * grid_cols +
                                        col / detail::block_extent(block::cols, in.cols);
        const bool bad = detail::FP8WIRE_CG::quantize_on_host<Recipe, In, false>(
            {part,
             dense(made, part.rows, part.cols),
             {scale, scale_rows<block>(part.rows), scale_cols<block>(part.cols), grid_cols},
             amax_floor,
             {},
             {},
             code_rows},
            run, best_isa());
        if (bad && found.finite()) {
          part.data -= col * part.col_stride, part.cols = in.cols;  // the first of a row may lie in a later part
          found.first_nonfinite = (b * in.rows + row) * in.cols + detail::first_nonfinite<In>(part);
        }
        if constexpr (!plan_type::codes_at_once) {
          constexpr i64 piece = 128;
          const i64 rows = part.rows, cols = in.cols - col < across ? in.cols - col : across;
          run.run(ceil_div(rows, piece), [&](i64 at) {
            detail::place_rows(
                static_cast<const u8*>(made + at * piece * cols),
                detail::part_from<detail::laid_matrix<typename Layout::codes>>{to, row + at * piece, col}, codes,
                rows - at * piece < piece ? rows - at * piece : piece, cols, detail::is_large<u8>(matrix));
          });
        }
      }
    }
    if constexpr (!plan_type::scales_at_once) {
      index3 refused = detail::place_scales<Recipe, Layout>(
          grid, plan, {out.scales.data + b * scales, 1, out.scales.rows, out.scales.cols});
      if (refused.batch >= 0 && found.refused_scale.batch < 0) found.refused_scale = {b, refused.row, refused.col};
    }
  }
  return found;
}

/// Canonical scales to where a layout wants them, as quantize_into writes them. scratch: as quantize_into's; only
/// packed layouts use it. Answers the first block whose scale E8M0 cannot hold, batch -1 where there is none.
template <any_recipe Recipe, class Layout>
index3 relayout_scales(const_pair_view<Recipe> pair,
                       laid_out<typename Layout::scales, laid_scale_t<Recipe, Layout>> target,
                       std::span<std::byte> scratch) {
  if constexpr (Layout::scales::packed == 1) {
    relayout(pair.scales, target);
    return {-1, -1, -1};
  } else {
    const detail::panel_plan<Recipe, Layout> plan{pair.codes.rows, pair.codes.cols};
    if (static_cast<i64>(scratch.size()) < plan.code_bytes() + plan.scale_bytes())
      detail::raise("relayout_scales: bytes of scratch", static_cast<i64>(scratch.size()),
                    plan.code_bytes() + plan.scale_bytes());
    auto* const grid = reinterpret_cast<stored_t<Recipe>*>(scratch.data() + plan.code_bytes());
    const i64 matrix = target.batch == 0 ? 0 : target.size() / target.batch;
    index3 refused{-1, -1, -1};
    for (i64 b = 0; b < pair.scales.batch; ++b) {
      for (i64 row = 0; row < pair.scales.rows; ++row)
        for (i64 col = 0; col < pair.scales.cols; ++col) grid[row * pair.scales.cols + col] = pair.scales(b, row, col);
      const index3 wrong =
          detail::place_scales<Recipe, Layout>(grid, plan, {target.data + b * matrix, 1, target.rows, target.cols});
      if (wrong.batch >= 0 && refused.batch < 0) refused = {b, wrong.row, wrong.col};
    }
    return refused;
  }
}

/// Proves what quantize_into wrote against the scalar definition and the layouts' own arithmetic, element by element.
/// A wrong byte of padding has batch -1 and its offset as column.
/// Shapes as in quantize_into. Throws precondition_error if they disagree.
template <any_recipe Recipe, class Layout, class In>
mismatch verify_into(matrix_view<const In> in, laid_pair<Recipe, Layout> pair,
                     float amax_floor = Recipe::num.amax_floor) {
  detail::expect_valid(in, "weights: extents must be >= 0, fit 63 bits and have data");
  detail::expect_valid(pair.codes);
  detail::expect_valid(pair.scales);
  detail::expect_equal(pair.codes.batch * pair.codes.rows * pair.codes.cols, in.size(), "codes: another shape");
  const auto codes = pair.codes.mapping();
  const auto scales = pair.scales.mapping();
  using block = typename Recipe::block;
  for (i64 b = 0; b < in.batch && in.size() > 0; ++b) {
    const matrix_view<const In> matrix = in.slice_of(b);
    for (i64 row = 0; row < scale_rows<block>(in.rows); ++row)
      for (i64 col = 0; col < pair.scales.cols; ++col) {
        bool nonfinite = false;
        const slice area = reference::block_area<Recipe, In>(matrix, row, col);
        const auto scale =
            reference::block_scale<Recipe, In>(reference::block_amax<Recipe, In>(matrix, area, nonfinite), amax_floor);
        constexpr bool packed = Layout::scales::packed > 1;
        u32 expected = detail::stored_bits(scale.stored);
        if constexpr (packed) {
          const float value = to_float(scale.stored);
          expected = fits_e8m0(value) ? exact_e8m0(value).bits : u32{e8m0::nan_code};
        }
        for (i64 r = packed ? area.row : row; r < (packed ? area.row + area.rows : row + 1); ++r) {
          const u32 got = detail::stored_bits(pair.scales.data[scales.offset({b, r, col})]);
          if (got != expected) return {true, true, b, r, col, got, expected};
        }
        for (i64 r = area.row; r < area.row + area.rows; ++r)
          for (i64 c = area.col; c < area.col + area.cols; ++c) {
            const u8 code = reference::encode<Recipe, In>(matrix(r, c), scale.operand),
                     got = pair.codes.data[codes.offset({b, r, c})];
            if (got != code) return {true, false, b, r, c, got, code};
          }
      }
  }
  for (i64 at = 0; at < codes.size(); ++at)
    if (codes.index(at).batch < 0 && pair.codes.data[at] != (Layout::codes::padding_bits & 0xFF))
      return {true, false, -1, 0, at, pair.codes.data[at], Layout::codes::padding_bits & 0xFF};
  for (i64 at = 0; at < scales.size(); ++at) {
    const u32 padding = Layout::scales::padding_bits;
    if (scales.index(at).batch < 0 &&
        __builtin_memcmp(&pair.scales.data[at], &padding, sizeof(pair.scales.data[at])) != 0)
      return {true, true, -1, 0, at, detail::stored_bits(pair.scales.data[at]), padding};
  }
  return {};
}

FP8WIRE_ABI_END
#endif
