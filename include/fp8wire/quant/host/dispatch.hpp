// SPDX-License-Identifier: Apache-2.0
/// Picks the kernel for a recipe, an input type and a processor, and cuts a call into the executor's pieces.
#ifndef FP8WIRE_QUANT_HOST_DISPATCH_HPP
#define FP8WIRE_QUANT_HOST_DISPATCH_HPP
#include <fp8wire/core/executor.hpp>
#include <fp8wire/quant/host/avx2.hpp>
#include <fp8wire/quant/host/avx2_decode.hpp>
#include <fp8wire/quant/host/avx512.hpp>
#include <fp8wire/quant/host/bands.hpp>
#include <fp8wire/quant/host/portable.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// A flag that several threads may raise and one reads after they ended.
class raised_flag {
 public:
  constexpr void raise() noexcept {
    if (__builtin_is_constant_evaluated()) value_ = true;
    else __atomic_store_n(&value_, true, __ATOMIC_RELAXED);
  }
  constexpr bool get() const noexcept { return value_; }

 private:
  bool value_ = false;
};

/// Bands in one piece of work: all of them where one thread runs, else a few pieces a thread, so that a slow one is
/// helped.
template <class Executor> constexpr i64 bands_per_piece(const Executor& run, i64 bands,
                                                        i64 elements_per_band) noexcept {
  i64 threads = 16;
  if constexpr (requires { run.concurrency(); }) threads = run.concurrency();
  if (threads <= 1) return bands;
  constexpr i64 least = i64{1} << 18;  // elements that hide what starting a piece costs
  const i64 share = ceil_div(bands, 4 * threads),
            enough = ceil_div(least, elements_per_band > 0 ? elements_per_band : 1);
  return share > enough ? share : enough;
}

namespace FP8WIRE_CG {

/// One matrix of a job's codes by row and column, wherever its rows are.
template <any_recipe Recipe, class In, bool Delta> struct job_codes {
  const host_job<Recipe, In, Delta>& job;
  i64 batch;
  FP8WIRE_HD constexpr u8& operator()(i64 row, i64 col) const noexcept {
    return job.code_row(batch, row)[col * job.codes.col_stride];
  }
};

/// A piece of work as a type of this namespace: a lambda in a public function would not carry the tag.
template <any_recipe Recipe, class In, bool Delta> struct quantize_piece {
  const host_job<Recipe, In, Delta>& job;
  i64 bands, per_piece;
  isa body;
  raised_flag& bad;

  void operator()(i64 piece) const noexcept {
    const i64 first = piece * per_piece, last = bands - first < per_piece ? bands : first + per_piece;
    if (quantize(first, last)) bad.raise();
  }

 private:
  bool quantize(i64 first, i64 last) const noexcept {
    if constexpr (host_facts<Recipe, In>::served) {
      const bool neighbours = job.in.col_stride == 1 && job.codes.col_stride == 1;
      if (neighbours && (!Delta || (job.before.col_stride == 1 && job.changed.col_stride == 1))) {
        const exact_mode mode;
        constexpr row_cast cast = row_cast_of<Recipe, In, Delta>();
#if defined(FP8WIRE_AVX2)
        if (body == isa::avx512) return walk(kernel_of<avx512<cast, In>, In>, first, last);
        if (body == isa::avx2) return walk(kernel_of<avx2<cast, In>, In>, first, last);
#endif
#if !defined(__CUDA_ARCH__)  // the device pass of nvcc 13.0 crashes on the vectors of host functions
        // Without a multiplication or a division to do in vectors it would be the definition in disguise.
        if constexpr (host_facts<Recipe, In>::direct) {
          if (body == isa::portable) return walk(kernel_of<portable<cast, In>, In>, first, last);
        }
#endif
      }
    }
    bool nonfinite = false;
    for (i64 band = first; band < last; ++band)
      nonfinite |= by_definition(band / job.scales.rows, band % job.scales.rows);
    return nonfinite;
  }

  bool walk(const row_kernel<In>& kernel, i64 first, i64 last) const noexcept {
    return FP8WIRE_CG::bands<Recipe, In, Delta>(kernel, job).run(first, last);
  }

  bool by_definition(i64 b, i64 block_row) const noexcept {
    const job_codes<Recipe, In, Delta> codes{job, b};
    if constexpr (!Delta)
      return reference::quantize_block_row<Recipe, In>(job.in.slice_of(b), block_row, codes, job.scales.slice_of(b),
                                                       job.amax_floor);
    bool nonfinite = false;
    for (i64 block_col = 0; block_col < job.scales.cols; ++block_col) {
      const auto in = job.in.slice_of(b);
      const slice area = reference::block_area<Recipe, In>(in, block_row, block_col);
      const auto scale =
          reference::block_scale<Recipe, In>(reference::block_amax<Recipe, In>(in, area, nonfinite), job.amax_floor);
      job.scales(b, block_row, block_col) = scale.stored;
      for (i64 row = area.row; row < area.row + area.rows; ++row) {
        for (i64 col = area.col; col < area.col + area.cols; ++col) {
          const u8 code = reference::encode<Recipe, In>(in(row, col), scale.operand);
          u8& bits = job.changed(b, row, col / 8);
          const int differs = code != job.before(b, row, col) ? 1 : 0;
          if (col % 8 == 0) bits = 0;
          bits = static_cast<u8>((bits & ~(1 << (col % 8))) | differs << (col % 8));
          codes(row, col) = code;
        }
      }
    }
    return nonfinite;
  }
};

/// Runs a job; true when the weights hold NaN or Inf.
template <any_recipe Recipe, class In, bool Delta, class Executor>
bool quantize_on_host(const host_job<Recipe, In, Delta>& job, Executor& run, isa body) {
  raised_flag bad;
  const i64 bands = job.bands(), per_piece = bands_per_piece(run, bands, job.band_rows() * job.in.cols);
  run.run(ceil_div(bands, per_piece), quantize_piece<Recipe, In, Delta>{job, bands, per_piece, body, bad});
  return bad.get();
}

template <any_recipe Recipe, class Out> struct decode_piece {
  const decode_job<Recipe, Out>& job;
  i64 bands, per_piece;
  isa body;

  void operator()(i64 piece) const noexcept {
    const i64 first = piece * per_piece, last = bands - first < per_piece ? bands : first + per_piece;
    if constexpr (decode_facts<Recipe, Out>::served) {
      if (job.codes.col_stride == 1 && job.out.col_stride == 1) {
        const exact_mode mode;
#if defined(FP8WIRE_AVX2)
        if (body == isa::avx2 || body == isa::avx512)
          return decode_bands<Recipe, Out>::run(
              decode_kernel_of<avx2_decode<decode_facts<Recipe, Out>::table, Out>, Out>, job, first, last);
#endif
      }
    }
    const i64 width = block_extent(Recipe::block::cols, job.out.cols), height = job.band_rows();
    for (i64 band = first; band < last; ++band) {
      const i64 b = band / job.scales.rows, block_row = band % job.scales.rows, start = block_row * height;
      const i64 end = job.out.rows - start < height ? job.out.rows : start + height;
      for (i64 row = start; row < end; ++row)
        for (i64 col = 0; col < job.out.cols; ++col)
          job.out(b, row, col) =
              from_float<Out>(reference::decode<Recipe>(job.codes(b, row, col), job.scales(b, block_row, col / width)));
    }
  }
};

template <any_recipe Recipe, class Out, class Executor>
void dequantize_on_host(const decode_job<Recipe, Out>& job, Executor& run, isa body) {
  const i64 bands = job.bands(), per_piece = bands_per_piece(run, bands, job.band_rows() * job.out.cols);
  run.run(ceil_div(bands, per_piece), decode_piece<Recipe, Out>{job, bands, per_piece, body});
}

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
