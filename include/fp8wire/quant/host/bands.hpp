// SPDX-License-Identifier: Apache-2.0
/// Walks a tensor in bands of block rows and lets a kernel see and cast its rows, each byte read from memory once.
///
/// A band's codes need its maxima, so that every element is needed twice. The maxima of a band are gathered while the
/// band before it is cast: row by row the one waits for memory and the other, whose rows are still in cache, computes.
#ifndef FP8WIRE_QUANT_HOST_BANDS_HPP
#define FP8WIRE_QUANT_HOST_BANDS_HPP
#include <fp8wire/quant/host/block_state.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// One call's tensors, and for a delta the codes before and a bit an element that says which changed.
template <any_recipe Recipe, class In> struct host_job {
  matrix_view<const In> in;
  matrix_view<u8> codes;
  matrix_view<stored_t<Recipe>> scales;
  float amax_floor;
  matrix_view<const u8> before = {};
  matrix_view<u8> changed = {};

  constexpr bool is_delta() const noexcept { return before.data != nullptr; }
  constexpr i64 band_rows() const noexcept { return block_extent(Recipe::block::rows, in.rows); }
  /// Bands of all matrices of the batch; one is what a single pass over block rows handles.
  constexpr i64 bands() const noexcept { return in.batch * scales.rows; }
};

/// Whether stores that bypass the caches pay: they do for output that no cache would keep, and want whole vectors.
template <class Value> bool streams(const matrix_view<Value>& out, i64 alignment) noexcept {
  constexpr i64 large = i64{1} << 20, bytes = static_cast<i64>(sizeof(Value));
  const auto address = static_cast<i64>(reinterpret_cast<std::uintptr_t>(out.data) & 0xFF);
  return out.size() * bytes >= large && address % alignment == 0 && out.row_stride * bytes % alignment == 0 &&
         out.batch_stride * bytes % alignment == 0;
}

namespace FP8WIRE_CG {

template <class Kernel> struct bands {
  using recipe = typename Kernel::recipe;
  using input = typename Kernel::input;
  using job = host_job<recipe, input>;
  using setup = block_setup<recipe, input>;
  static constexpr i64 panel_blocks = 64, panel_cols = 8192;  // what the stack holds of one row of blocks

  /// Bands [first, last). Returns whether they hold NaN or Inf. Expects: exact_mode, contiguous columns.
  FP8WIRE_NOINLINE static bool run(const job& work, i64 first, i64 last) noexcept {
    const bool stream = streams(work.codes, Kernel::alignment) && !work.is_delta();
    const bool bad = stream ? walk<true>(work, first, last) : walk<false>(work, first, last);
    Kernel::fence();
    return bad;
  }

 private:
  /// A run of columns of one matrix of the batch: whole blocks, except at the right edge.
  struct panel {
    i64 col, cols, block_cols, block_col, blocks;
  };

  template <bool Stream> static bool walk(const job& work, i64 first, i64 last) noexcept {
    block_state blocks[panel_blocks];
    __builtin_memset(blocks, 0, sizeof blocks);
    const i64 block_cols = block_extent(recipe::block::cols, work.in.cols);
    const i64 most =
        block_cols > panel_cols ? 1 : (panel_cols / block_cols < panel_blocks ? panel_cols / block_cols : panel_blocks);
    bool bad = false;
    const i64 panels = ceil_div(work.scales.cols, most);
    const auto panel_at = [&](i64 index) {
      const i64 block_col = index * most, left = work.scales.cols - block_col, col = block_col * block_cols;
      const i64 count = left < most ? left : most;
      const i64 cols = work.in.cols - col < count * block_cols ? work.in.cols - col : count * block_cols;
      return panel{col, cols, block_cols, block_col, count};
    };
    if (work.band_rows() == 1) {  // a row is its own band: its second reading comes from the nearest cache anyhow
      for (i64 band = first; band < last; ++band)
        for (i64 index = 0; index < panels; ++index) bad |= one_row<Stream>(work, panel_at(index), band, blocks);
      return bad;
    }
    for (i64 index = 0; index < panels; ++index) {
      const panel where = panel_at(index);
      for (i64 band = first; band <= last; ++band) {
        const i64 seen = band < last ? rows_of(work, band) : 0, cast = band > first ? rows_of(work, band - 1) : 0;
        const i64 both = seen < cast ? seen : cast;
        for (i64 r = 0; r < both; ++r) row<true, true, Stream>(work, where, band, r, blocks);
        for (i64 r = both; r < seen; ++r) row<true, false, Stream>(work, where, band, r, blocks);
        for (i64 r = both; r < cast; ++r) row<false, true, Stream>(work, where, band, r, blocks);
        if (band < last) bad |= finish(work, where, band, blocks);
      }
    }
    return bad;
  }

  template <bool Stream> static bool one_row(const job& work, panel where, i64 band, block_state* blocks) noexcept {
    bool bad = false;
    if constexpr (octaves) {
      const i64 b = band / work.scales.rows, row_index = band % work.scales.rows;
      const i64 floor = (static_cast<i64>(f32::magnitude(bits_of(work.amax_floor))) + 0xFFFF) >> 16;
      const int least = floor > Kernel::steps.least ? static_cast<int>(floor) : Kernel::steps.least;
      while (work.scales.col_stride == 1 && !work.is_delta() && where.blocks >= 8 && where.cols % 32 == 0) {
        const i64 done = Kernel::template octaves<Stream>(
            row_at(work, work.in, band, 0) + where.col, row_at(work, work.codes, band, 0) + where.col,
            &work.scales(b, row_index, where.block_col), where.blocks, least);
        where = after(where, done);
        if (where.blocks < 8) break;
        panel odd = where;
        odd.blocks = 8, odd.cols = 256;
        bad |= see_and_cast<Stream>(work, odd, band, blocks);
        where = after(where, 8);
      }
      if (where.blocks == 0) return bad;
    }
    return see_and_cast<Stream>(work, where, band, blocks) || bad;
  }
  static constexpr bool octaves = [] {
    if constexpr (std::same_as<input, bf16> && requires { Kernel::steps; }) return Kernel::steps.valid;
    else return false;
  }();
  static constexpr panel after(const panel& where, i64 blocks) noexcept {
    const i64 cols = blocks * where.block_cols;
    return {where.col + cols, where.cols - cols, where.block_cols, where.block_col + blocks, where.blocks - blocks};
  }
  template <bool Stream> static bool see_and_cast(const job& work, const panel& where, i64 band,
                                                  block_state* blocks) noexcept {
    row<true, false, Stream>(work, where, band, 0, blocks);
    const bool bad = finish(work, where, band, blocks);
    row<false, true, Stream>(work, where, band + 1, 0, blocks);
    return bad;
  }

  static i64 rows_of(const job& work, i64 band) noexcept {
    const i64 left = work.in.rows - band % work.scales.rows * work.band_rows();
    return left < work.band_rows() ? left : work.band_rows();
  }
  template <class Value> static Value* row_at(const job& work, const matrix_view<Value>& view, i64 band,
                                              i64 r) noexcept {
    return view.data + band / work.scales.rows * view.batch_stride +
           (band % work.scales.rows * work.band_rows() + r) * view.row_stride;
  }

  /// Row `r` of band `band` is seen, row `r` of the band before it is cast.
  template <bool See, bool Cast, bool Stream>
  static void row(const job& work, const panel& where, i64 band, i64 r, block_state* blocks) noexcept {
    const input* cast = Cast ? row_at(work, work.in, band - 1, r) + where.col : nullptr;
    const input* seen = See ? row_at(work, work.in, band, r) + where.col : cast;
    u8* codes = Cast ? row_at(work, work.codes, band - 1, r) + where.col : nullptr;
    const i64 jump = work.in.row_stride - where.cols;
    if (!Cast || !work.is_delta()) {
      Kernel::template row<See, Cast, Stream>(seen, cast, codes, where.cols, where.block_cols, blocks, jump);
      return;
    }
    // Fresh codes stay in the nearest cache until they are compared; a panel wider than the buffer is a single block.
    alignas(64) u8 fresh[panel_cols];
    const u8* before = row_at(work, work.before, band - 1, r) + where.col;
    u8* changed = row_at(work, work.changed, band - 1, r) + where.col / 8;
    const bool stream = streams(work.codes, Kernel::alignment);
    for (i64 col = 0; col < where.cols; col += panel_cols) {
      const i64 cols = where.cols - col < panel_cols ? where.cols - col : panel_cols;
      Kernel::template row<See, Cast, false>(seen + col, cast + col, fresh, cols, where.block_cols, blocks, jump);
      if (stream) Kernel::template replace<true>(fresh, before + col, codes + col, changed + col / 8, cols);
      else Kernel::template replace<false>(fresh, before + col, codes + col, changed + col / 8, cols);
    }
  }

  /// From the maxima of a band to its scales and to how its elements are cast.
  static bool finish(const job& work, const panel& where, i64 band, block_state* blocks) noexcept {
    const i64 b = band / work.scales.rows, block_row = band % work.scales.rows;
    bool bad = false;
    for (i64 i = 0; i < where.blocks; ++i) {
      const i64 block_col = where.block_col + i;
      bool vectors = true;
      const u32 amax =
          block_amax(work, b, block_row, block_col, as_loaded(Kernel::take_largest(blocks[i])), vectors, bad);
      const auto scale = reference::block_scale<recipe, input>(amax, work.amax_floor);
      work.scales(b, block_row, block_col) = scale.stored;
      setup::prepare(blocks[i], amax, scale.operand, vectors, octave_filler{});
    }
    return bad;
  }

  /// The FP32 magnitude with which an element of magnitude bits `largest` enters the recipe.
  static u32 as_loaded(u32 largest) noexcept {
    if constexpr (std::same_as<input, float>)
      return f32::magnitude(bits_of(reference::load<recipe>(float_of(largest))));
    else return bits_of(to_float(input{static_cast<u16>(largest)}));
  }

  /// The maximum that the rule is given. Where NaN, Inf or a padded edge take part, the definition says what it is, and
  /// blocks with NaN or Inf are not for vectors.
  static u32 block_amax(const job& work, i64 b, i64 block_row, i64 block_col, u32 largest, bool& vectors,
                        bool& bad) noexcept {
    bool plain = f32::is_finite(largest);
    if constexpr (recipe::num.edge == edge_pad::last_element) {
      const i64 rows = work.in.rows - block_row * work.band_rows(),
                width = block_extent(recipe::block::cols, work.in.cols);
      const bool ragged = rows < work.band_rows() || work.in.cols - block_col * width < width;
      plain = plain && !ragged;
    }
    if (plain) return largest;
    const auto matrix = work.in.slice_of(b);
    bool nonfinite = false;
    const u32 amax = reference::block_amax<recipe, input>(
        matrix, reference::block_area<recipe, input>(matrix, block_row, block_col), nonfinite);
    vectors = !nonfinite;
    bad |= nonfinite;
    return amax;
  }

  struct octave_filler {
    void operator()(block_state& state) const noexcept {
      input probe[128];
      for (int i = 0; i < 128; ++i) probe[i] = input{static_cast<u16>(state.first << 7 | i)};
      if constexpr (host_facts<recipe, input>::direct) Kernel::cast_direct(probe, state.octave, 128, state.operand);
      else cast_by_reference<recipe, input>(probe, state.octave, 128, state.operand);
    }
  };
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
