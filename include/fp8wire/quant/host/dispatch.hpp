// SPDX-License-Identifier: Apache-2.0
/// Picks the kernel for a recipe, an input type and a processor, and cuts a call into the executor's pieces.
#ifndef FP8WIRE_QUANT_HOST_DISPATCH_HPP
#define FP8WIRE_QUANT_HOST_DISPATCH_HPP
#include <fp8wire/core/executor.hpp>
#include <fp8wire/quant/host/avx2.hpp>
#include <fp8wire/quant/host/avx2_decode.hpp>
#include <fp8wire/quant/host/bands.hpp>

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

/// Bands in one piece of work: all of them where one thread runs, else a few pieces a thread, so that a slow one is helped.
template <class Executor> constexpr i64 bands_per_piece(const Executor& run, i64 bands, i64 elements_per_band) noexcept {
  i64 threads = 16;
  if constexpr (requires { run.concurrency(); }) threads = run.concurrency();
  if (threads <= 1) return bands;
  constexpr i64 least = i64{1} << 18;  // elements that hide what starting a piece costs
  const i64 share = ceil_div(bands, 4 * threads), enough = ceil_div(least, elements_per_band > 0 ? elements_per_band : 1);
  return share > enough ? share : enough;
}

namespace FP8WIRE_CG {

/// A piece of work as a type of this namespace: a lambda in a public function would not carry the tag.
template <any_recipe Recipe, class In> struct quantize_piece {
  const host_job<Recipe, In>& job;
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
      if (job.in.col_stride == 1 && job.codes.col_stride == 1) {
        const exact_mode mode;
#if defined(FP8WIRE_AVX2)
        if (body == isa::avx2) return FP8WIRE_CG::bands<avx2<Recipe, In>>::run(job, first, last);
#endif
      }
    }
    bool nonfinite = false;
    for (i64 band = first; band < last; ++band) {
      const i64 b = band / job.scales.rows;
      nonfinite |= reference::quantize_block_row<Recipe, In>(job.in.slice_of(b), band % job.scales.rows, job.codes.slice_of(b),
                                                             job.scales.slice_of(b), job.amax_floor);
    }
    return nonfinite;
  }
};

/// Runs a job; true when the weights hold NaN or Inf.
template <any_recipe Recipe, class In, class Executor>
bool quantize_on_host(const host_job<Recipe, In>& job, Executor& run, isa body) {
  raised_flag bad;
  const i64 bands = job.bands(), per_piece = bands_per_piece(run, bands, job.band_rows() * job.in.cols);
  run.run(ceil_div(bands, per_piece), quantize_piece<Recipe, In>{job, bands, per_piece, body, bad});
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
        if (body == isa::avx2) return decode_bands<avx2_decode<Recipe, Out>>::run(job, first, last);
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
