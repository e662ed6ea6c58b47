// SPDX-License-Identifier: Apache-2.0
/// Walks a tensor in bands of block rows and lets a kernel see and cast its rows, each byte read from memory once.
///
/// A band's codes need its maxima, so that every element is needed twice. The maxima of a band are gathered while the
/// band before it is cast: row by row the one waits for memory and the other, whose rows are still in cache, computes.
#ifndef FP8WIRE_QUANT_HOST_BANDS_HPP
#define FP8WIRE_QUANT_HOST_BANDS_HPP
#include <fp8wire/quant/host/row_kernel.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// One call's tensors, and for a delta the codes before and a bit an element that says which changed.
template <any_recipe Recipe, class In, bool Delta = false> struct host_job {
  matrix_view<const In> in;
  matrix_view<u8> codes;
  matrix_view<stored_t<Recipe>> scales;
  float amax_floor;
  matrix_view<const u8> before = {};
  matrix_view<u8> changed = {};
  const i64* code_rows = nullptr;  // where the rows of a matrix begin; null: codes.row_stride apart
  i64 panel_bytes = 0;  // of a band's input that is seen before it is cast; 0: as this processor's caches want it

  constexpr i64 band_rows() const noexcept { return block_extent(Recipe::block::rows, in.rows); }
  /// Bands of all matrices of the batch; one is what a single pass over block rows handles.
  constexpr i64 bands() const noexcept { return in.batch * scales.rows; }
  FP8WIRE_HD constexpr u8* code_row(i64 batch, i64 row) const noexcept {
    return codes.data + batch * codes.batch_stride + (code_rows != nullptr ? code_rows[row] : row * codes.row_stride);
  }
};

/// Whether stores that bypass the caches pay: they do for output that no cache would keep, and want whole vectors.
template <class Value> bool streams(const matrix_view<Value>& out, i64 alignment) noexcept {
  constexpr i64 large = i64{1} << 20, bytes = static_cast<i64>(sizeof(Value));
  const auto address = static_cast<i64>(reinterpret_cast<std::uintptr_t>(out.data) & 0xFF);
  return alignment != 0 && out.size() * bytes >= large && address % alignment == 0 &&
         out.row_stride * bytes % alignment == 0 && out.batch_stride * bytes % alignment == 0;
}

namespace FP8WIRE_CG {

/// One job on one body's table of functions.
template <any_recipe Recipe, class In, bool Delta> class bands {
 public:
  bands(const row_kernel<In>& kernel, const host_job<Recipe, In, Delta>& work) noexcept
      : kernel_(kernel), work_(work), block_cols_(block_extent(Recipe::block::cols, work.in.cols)) {
    // Blocks that begin between two of a body's lines would store half lines; those of 32 columns are not so wide.
    const bool between = Recipe::block::cols > 32 && kernel.alignment != 0 && block_cols_ % kernel.alignment != 0;
    streams_ = !between && streams(work.codes, kernel.alignment);
    for (i64 row = 0; streams_ && work.code_rows != nullptr && row < work.in.rows; ++row)
      streams_ = work.code_rows[row] % kernel.alignment == 0;
  }

  /// Bands [first, last). Returns whether they hold NaN or Inf. Expects: exact_mode, contiguous columns.
  FP8WIRE_NOINLINE bool run(i64 first, i64 last) const noexcept {
    block_state blocks[panel_blocks];
    __builtin_memset(blocks, 0, sizeof blocks);
    const i64 most = blocks_in_panel();
    const i64 panels = ceil_div(work_.scales.cols, most);
    bool bad = false;
    if (work_.band_rows() == 1) {  // a row is its own band: its second reading comes from the nearest cache anyhow
      for (i64 band = first; band < last; ++band)
        for (i64 index = 0; index < panels; ++index) bad |= one_row(panel_at(index, most), at(band), blocks);
    } else {
      for (i64 index = 0; index < panels; ++index) bad |= many_rows(panel_at(index, most), first, last, blocks);
    }
    kernel_.fence();
    return bad;
  }

 private:
  static constexpr i64 panel_blocks = 64;  // what the stack holds of one row of blocks
  static constexpr i64 seen_ahead = 8192, cast_ahead = 1024, before_ahead = 2048;  // bytes to fetch ahead

  /// A run of columns of one matrix of the batch: whole blocks, except at the right edge.
  struct panel {
    i64 col, cols, block_col, blocks;
  };
  /// One band of one matrix.
  struct band_at {
    i64 batch, block_row;
  };
  band_at at(i64 band) const noexcept { return {band / work_.scales.rows, band % work_.scales.rows}; }

  /// What is seen comes back from the second-level cache where that holds a few panels whose rows are whole pages, and
  /// else from the third: then rows in pieces would only cost, and they alias in a small cache. Rows that are bands
  /// are cut short, so that memory works while scales are made.
  i64 blocks_in_panel() const noexcept {
    constexpr i64 pages = i64{1} << 19, short_row = 2048;
    const i64 row_bytes = work_.band_rows() * static_cast<i64>(sizeof(In));
    i64 bytes = work_.panel_bytes;
    if (bytes == 0 && work_.band_rows() == 1 && block_cols_ > 32) bytes = short_row;
    else if (bytes == 0 && row_bytes * work_.in.cols > pages && second_level_cache() >= 4 * pages) bytes = pages;
    i64 most = bytes != 0 ? bytes / (row_bytes * block_cols_) : panel_blocks;
    if (most > panel_blocks) most = panel_blocks;
    return most < 1 ? 1 : most;
  }
  panel panel_at(i64 index, i64 most) const noexcept {
    const i64 block_col = index * most, left = work_.scales.cols - block_col, col = block_col * block_cols_;
    const i64 count = left < most ? left : most;
    const i64 cols = work_.in.cols - col < count * block_cols_ ? work_.in.cols - col : count * block_cols_;
    return {col, cols, block_col, count};
  }
  panel after(const panel& where, i64 blocks) const noexcept {
    const i64 cols = blocks * block_cols_;
    return {where.col + cols, where.cols - cols, where.block_col + blocks, where.blocks - blocks};
  }

  bool many_rows(const panel& where, i64 first, i64 last, block_state* blocks) const noexcept {
    bool bad = false;
    for (i64 band = first; band <= last; ++band) {
      const band_at next = at(band), before = at(band - 1);
      const i64 seen = band < last ? rows_of(next) : 0, cast = band > first ? rows_of(before) : 0;
      const i64 both = seen < cast ? seen : cast;
      for (i64 r = 0; r < both; ++r) row(true, true, where, next, before, r, blocks);
      for (i64 r = both; r < seen; ++r) row(true, false, where, next, before, r, blocks);
      for (i64 r = both; r < cast; ++r) row(false, true, where, next, before, r, blocks);
      if (band < last) bad |= finish(where, next, blocks);
    }
    return bad;
  }

  bool one_row(panel where, band_at band, block_state* blocks) const noexcept {
    bool bad = false;
    if constexpr (!std::same_as<In, fp16>) {
      constexpr octave_steps steps = find_octave_steps<Recipe, In>();
      if constexpr (steps.valid) {
        const auto octaves = kernel_.octaves;
        constexpr int dropped = 32 - 8 * static_cast<int>(sizeof(In));
        const i64 floor = (i64{f32::magnitude(bits_of(work_.amax_floor))} + (i64{1} << dropped) - 1) >> dropped;
        const int least = floor > steps.least ? static_cast<int>(floor) : steps.least;
        const bool plain = octaves != nullptr && work_.scales.col_stride == 1;
        while (plain && where.blocks >= 8 && where.cols % 32 == 0) {
          const i64 done =
              octaves(row_at(work_.in, band, 0) + where.col, codes_at(band, 0) + where.col,
                      &work_.scales(band.batch, band.block_row, where.block_col), where.blocks, least, steps, streams_);
          where = after(where, done);
          if (where.blocks < 8) break;
          panel odd = where;
          odd.blocks = 8, odd.cols = 256;
          bad |= see_and_cast(odd, band, blocks);
          where = after(where, 8);
        }
        if (where.blocks == 0) return bad;
      }
    }
    return see_and_cast(where, band, blocks) || bad;
  }
  bool see_and_cast(const panel& where, band_at band, block_state* blocks) const noexcept {
    row(true, false, where, band, band, 0, blocks);
    const bool bad = finish(where, band, blocks);
    row(false, true, where, band, band, 0, blocks);
    return bad;
  }

  i64 rows_of(band_at band) const noexcept {
    const i64 left = work_.in.rows - band.block_row * work_.band_rows();
    return left < work_.band_rows() ? left : work_.band_rows();
  }
  template <class Value> Value* row_at(const matrix_view<Value>& view, band_at band, i64 r) const noexcept {
    return view.data + band.batch * view.batch_stride + (band.block_row * work_.band_rows() + r) * view.row_stride;
  }
  u8* codes_at(band_at band, i64 r) const noexcept {
    return work_.code_row(band.batch, band.block_row * work_.band_rows() + r);
  }

  /// Row `r` of one band is seen, row `r` of the band before it is cast.
  void row(bool see, bool cast, const panel& where, band_at next, band_at before, i64 r,
           block_state* blocks) const noexcept {
    const In* from = cast ? row_at(work_.in, before, r) + where.col : nullptr;
    const In* seen = see ? row_at(work_.in, next, r) + where.col : from;
    look_ahead ahead{further(work_.in, seen_ahead, where), further(work_.in, cast_ahead, where), 0, hints_};
    if (!cast) return kernel_.see(seen, nullptr, {nullptr}, where.cols, block_cols_, blocks, ahead);
    code_place place{codes_at(before, r) + where.col, streams_};
    if constexpr (Delta) {
      place.before = row_at(work_.before, before, r) + where.col;
      place.changed = row_at(work_.changed, before, r) + where.col / 8;
      ahead.before = further(work_.before, before_ahead, where);
    }
    (see ? kernel_.both : kernel_.cast)(seen, from, place, where.cols, block_cols_, blocks, ahead);
  }
  /// Elements from one to the one so many bytes on in the order in which they are read: whole rows of a panel where
  /// those do not follow each other.
  template <class Value>
  i64 further(const matrix_view<Value>& view, i64 bytes, const panel& where) const noexcept {
    constexpr i64 size = static_cast<i64>(sizeof(Value));
    return work_.band_rows() == 1 || where.cols == view.row_stride
               ? bytes / size
               : ceil_div(bytes, where.cols * size) * view.row_stride;
  }

  /// From the maxima of a band to its scales and to how its elements are cast.
  bool finish(const panel& where, band_at band, block_state* blocks) const noexcept {
    bool bad = false;
    for (i64 i = 0; i < where.blocks; ++i) {
      const i64 block_col = where.block_col + i;
      bool vectors = true;
      const u32 largest = as_loaded(kernel_.take_largest(blocks[i]));
      const u32 amax = block_amax(band.batch, band.block_row, block_col, largest, vectors, bad);
      const auto scale = reference::block_scale<Recipe, In>(amax, work_.amax_floor);
      work_.scales(band.batch, band.block_row, block_col) = scale.stored;
      block_setup<Recipe, In>::prepare(blocks[i], amax, scale.operand, vectors, octave_filler{kernel_});
    }
    return bad;
  }

  /// The FP32 magnitude with which an element of magnitude bits `largest` enters the recipe.
  static u32 as_loaded(u32 largest) noexcept {
    if constexpr (std::same_as<In, float>) return f32::magnitude(bits_of(reference::load<Recipe>(float_of(largest))));
    else return bits_of(to_float(In{static_cast<u16>(largest)}));
  }

  /// The maximum that the rule is given. Where NaN, Inf or a padded edge take part, the definition says what it is, and
  /// blocks with NaN or Inf are not for vectors.
  u32 block_amax(i64 b, i64 block_row, i64 block_col, u32 largest, bool& vectors, bool& bad) const noexcept {
    bool plain = f32::is_finite(largest);
    if constexpr (Recipe::num.edge == edge_pad::last_element) {
      const i64 rows = work_.in.rows - block_row * work_.band_rows();
      const bool ragged = rows < work_.band_rows() || work_.in.cols - block_col * block_cols_ < block_cols_;
      plain = plain && !ragged;
    }
    if (plain) return largest;
    const auto matrix = work_.in.slice_of(b);
    bool nonfinite = false;
    const u32 amax = reference::block_amax<Recipe, In>(
        matrix, reference::block_area<Recipe, In>(matrix, block_row, block_col), nonfinite);
    vectors = !nonfinite;
    bad |= nonfinite;
    return amax;
  }

  struct octave_filler {
    const row_kernel<In>& kernel;
    void operator()(block_state& state) const noexcept {
      In probe[128];
      for (int i = 0; i < 128; ++i) probe[i] = In{static_cast<u16>(state.first << 7 | i)};
      if (kernel.cast_direct != nullptr) kernel.cast_direct(probe, state.octave, 128, state.operand);
      else cast_by_reference<Recipe, In>(probe, state.octave, 128, state.operand);
    }
  };

  const row_kernel<In>& kernel_;
  const host_job<Recipe, In, Delta>& work_;
  i64 block_cols_;
  bool streams_, hints_ = !kernel_.amd_fetches || !on_amd();
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
