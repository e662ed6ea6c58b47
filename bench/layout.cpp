// SPDX-License-Identifier: Apache-2.0
// Rows of the layout floor: each relayout beside memcpy of the same live bytes, and quantizing into a layout beside
// quantizing alone; on one thread.
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/quantize_into.hpp>

#include "common.hpp"

namespace bench {
namespace {

using namespace fp8wire;

/// Repeats work and copy in turn. Counters: of_copy (median of the ratios), GB/s of both.
void against_copy(benchmark::State& state, i64 bytes, const std::function<void()>& copy,
                  const std::function<void()>& work) {
  std::vector<double> ratios, works, copies;
  copy();
  work();
  for (auto _ : state) {
    for (int i = 0; i < repetitions(); ++i) {
      copies.push_back(seconds(copy));
      works.push_back(seconds(work));
      ratios.push_back(copies.back() / works.back());
    }
    state.SetIterationTime(median(works));
  }
  state.counters["of_copy"] = median(ratios);
  state.counters["GB/s"] = static_cast<double>(bytes) / median(works) / 1e9;
  state.counters["copy_GB/s"] = static_cast<double>(bytes) / median(copies) / 1e9;
}

/// As many matrices of rows x cols as fill an eighth of the input size, into Layout, back, and in place.
template <class Layout, class Value> void add_rows(const char* kind, i64 rows, i64 cols) {
  const i64 matrix = rows * cols * static_cast<i64>(sizeof(Value));
  const i64 batch = std::max<i64>(1, input_bytes() / 8 / matrix);
  const std::string name = std::string("layout/").append(kind).append("/").append(Layout::id);
  const auto row = [=](bool there, bool in_place) {
    return [=](benchmark::State& state) {
      const typename Layout::mapping m{batch, rows, cols};
      const buffer plain(batch * matrix), laid(m.size() * static_cast<i64>(sizeof(Value))), other(batch * matrix),
          scratch(matrix);
      const laid_out<row_major, Value> canonical{plain.as<Value>(), batch, rows, cols};
      const laid_out<Layout, Value> stored{laid.as<Value>(), batch, rows, cols};
      const auto copy = [&] {
        std::memcpy(other.as(), plain.as(), static_cast<std::size_t>(batch * matrix));
        benchmark::ClobberMemory();
      };
      against_copy(state, batch * matrix, copy, [&] {
        if (in_place) relayout_in_place<Layout>(canonical, scratch.as<Value>());
        else if (there) relayout(canonical, stored);
        else relayout(stored, canonical);
      });
    };
  };
  add(name + "/to", row(true, false));
  add(name + "/from", row(false, false));
  if (typename Layout::mapping{batch, rows, cols}.size() == batch * rows * cols)
    add(name + "/in_place", row(true, true));
}

/// BF16 weights into a pair of layouts, in turn with quantizing them into canonical form. Counter of_quantize: the
/// median of the ratios of their speeds.
template <class Recipe, class Layout> void add_fused(const char* name, i64 rows, i64 cols) {
  add(std::string("layout/quantize_into/").append(name), [=](benchmark::State& state) {
    const i64 batch = std::max<i64>(1, input_bytes() / 8 / (rows * cols));
    const auto sizes = laid_pair<Recipe, Layout>::of(nullptr, nullptr, batch, rows, cols);
    const i64 grid_rows = scale_rows<typename Recipe::block>(rows),
              grid_cols = scale_cols<typename Recipe::block>(cols);
    const buffer in(2 * batch * rows * cols), codes(sizes.codes.size()), scales(sizes.scales.size_bytes()),
        plain(batch * rows * cols), grid(batch * grid_rows * grid_cols * 4),
        scratch(quantize_scratch_bytes<Recipe, Layout>(rows, cols));
    for (i64 i = 0; i < batch * rows * cols; ++i) in.as<bf16>()[i] = {static_cast<u16>(0x3C00 + i * 40503 % 1024)};
    const matrix_view<const bf16> weights = dense(in.as<const bf16>(), rows, cols, batch);
    const auto out = laid_pair<Recipe, Layout>::of(codes.as(), scales.template as<laid_scale_t<Recipe, Layout>>(),
                                                   batch, rows, cols);
    const std::span<std::byte> room{scratch.as<std::byte>(),
                                    static_cast<std::size_t>(quantize_scratch_bytes<Recipe, Layout>(rows, cols))};
    std::vector<double> ratios, fused, alone;
    const auto quantize_alone = [&] {
      quantize<Recipe, bf16>(weights, {dense(plain.as(), rows, cols, batch),
                                       dense(grid.as<stored_t<Recipe>>(), grid_rows, grid_cols, batch)});
    };
    const auto quantize_fused = [&] { quantize_into<Recipe, Layout, bf16>(weights, out, room); };
    quantize_alone();
    quantize_fused();
    for (auto _ : state) {
      for (int i = 0; i < repetitions(); ++i) {
        alone.push_back(seconds(quantize_alone));
        fused.push_back(seconds(quantize_fused));
        ratios.push_back(alone.back() / fused.back());
      }
      state.SetIterationTime(median(fused));
    }
    const double bytes = 2.0 * static_cast<double>(batch * rows * cols);
    state.counters["of_quantize"] = median(ratios);
    state.counters["GB/s"] = bytes / median(fused) / 1e9;
    state.counters["quantize_GB/s"] = bytes / median(alone) / 1e9;
  });
}

}  // namespace

void add_layout() {
  using mx = presets::te_mxfp8::recipe;
  using block = presets::vllm_block::recipe;
  add_fused<mx, pair_layout<row_major, swizzle_128x4>>("mxfp8/cublas-128x4", 2048, 4096);
  add_fused<mx, pair_layout<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales>>("mxfp8/trtllm-moe-w13", 2048, 4096);
  add_fused<mx, pair_layout<row_major, packed_ue8m0>>("mxfp8/deepgemm-ue8m0", 2048, 4096);
  add_fused<block, pair_layout<trtllm_fp8_block_w13_codes, up_first>>("block/trtllm-fp8-block-w13", 2048, 4096);
  add_fused<block, pair_layout<transposed, te_block_columnwise>>("block/te-columnwise", 2048, 4096);
  add_rows<up_first, u8>("codes", 2048, 4096);
  add_rows<trtllm_mxfp8_codes, u8>("codes", 2048, 4096);
  add_rows<trtllm_mxfp8_w13_codes, u8>("codes", 2048, 4096);
  add_rows<block_major_k<128>, u8>("codes", 2048, 4096);
  add_rows<trtllm_fp8_block_w13_codes, u8>("codes", 2048, 4096);
  add_rows<transposed, u8>("codes", 2048, 4096);
  add_rows<transposed, u8>("square_codes", 4096, 4096);
  add_rows<swizzle_128x4, u8>("scales", 4096, 128);
  add_rows<swizzle_8x4, u8>("scales", 4096, 128);
  add_rows<trtllm_mxfp8_w13_scales, u8>("scales", 4096, 128);
  add_rows<packed_ue8m0, u8>("scales", 4096, 128);
  add_rows<te_mxfp8_rowwise, u8>("scales", 4096, 128);
  add_rows<fp8wire::deepgemm_fp32, float>("scales", 4096, 32);
}

}  // namespace bench
