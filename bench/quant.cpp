// SPDX-License-Identifier: Apache-2.0
// Rows of the quant floor: quantize, dequantize, delta, verify.
#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/verify.hpp>
#include <random>

#include "common.hpp"

namespace bench {
namespace {

using namespace fp8wire;

/// Gaussian weights: one MiB of them, repeated with the sign and the last bit varied.
template <class In> void fill(const buffer& into, i64 count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  In* out = into.as<In>();
  const i64 period = std::min<i64>(count, i64{1} << 20);
  for (i64 i = 0; i < period; ++i) out[i] = from_float<In>(normal(random));
  for (i64 i = period; i < count; ++i) out[i] = out[i - period];
}

struct extent {
  i64 batch, rows, cols, stride;
  i64 count() const { return batch * rows * cols; }
};

/// As many rows as the input size allows, whole blocks of 128 rows.
template <class In> extent sized(i64 cols, i64 stride) {
  const i64 rows = std::max<i64>(128, input_bytes() / static_cast<i64>(sizeof(In)) / stride / 128 * 128);
  return {1, rows, cols, stride};
}

template <class T> matrix_view<T> view(T* data, const extent& size) {
  return {data, size.rows, size.cols, size.stride, size.batch, size.rows * size.stride, 1};
}

template <class Recipe> i64 scale_bytes(const extent& size) {
  return size.batch * scale_rows<typename Recipe::block>(size.rows) * scale_cols<typename Recipe::block>(size.cols) * 4;
}
template <class Recipe> matrix_view<stored_t<Recipe>> scales_view(const buffer& room, const extent& size) {
  return dense(room.as<stored_t<Recipe>>(), scale_rows<typename Recipe::block>(size.rows),
               scale_cols<typename Recipe::block>(size.cols), size.batch);
}

template <class Recipe, class In> void quantize_row(benchmark::State& state, extent size, int threads, isa body) {
  const i64 room = size.batch * size.rows * size.stride;
  buffer in(room * static_cast<i64>(sizeof(In))), codes(room), scales(scale_bytes<Recipe>(size)), bits(64);
  fill<In>(in, room);
  constexpr mix kind = sizeof(In) == 2 ? mix::two_to_one : mix::four_to_one;
  against_limit<kind>(state, in, in, codes, bits, size.count(), threads, [&] {
    quantize<Recipe, In>(view<const In>(in.as<In>(), size),
                         {view(codes.as<u8>(), size), scales_view<Recipe>(scales, size)}, Recipe::num.amax_floor,
                         openmp{threads}, body);
  });
}

template <class Recipe, class Out> void dequantize_row(benchmark::State& state, extent size, int threads, isa body) {
  const i64 room = size.batch * size.rows * size.stride;
  buffer in(room * 2), codes(room), scales(scale_bytes<Recipe>(size)), out(room * static_cast<i64>(sizeof(Out))),
      bits(64);
  fill<bf16>(in, room);
  const pair_view<Recipe> pair = {view(codes.as<u8>(), size), scales_view<Recipe>(scales, size)};
  quantize<Recipe, bf16>(view<const bf16>(in.as<bf16>(), size), pair);
  constexpr mix kind = sizeof(Out) == 2 ? mix::one_to_two : mix::one_to_four;
  against_limit<kind>(state, codes, codes, out, bits, size.count(), threads,
                      [&] { dequantize<Recipe, Out>(pair, view(out.as<Out>(), size), openmp{threads}, body); });
}

template <class Recipe, class In> void delta_row(benchmark::State& state, extent size, int threads, isa body) {
  const i64 room = size.batch * size.rows * size.stride;
  buffer in(room * static_cast<i64>(sizeof(In))), codes(room), before(room), scales(scale_bytes<Recipe>(size)),
      bits(room / 8);
  fill<In>(in, room);
  against_limit<mix::three_to_one_and_bits>(state, in, before, codes, bits, size.count(), threads, [&] {
    quantize_delta<Recipe, In>(view<const In>(in.as<In>(), size), view<const u8>(before.as<u8>(), size),
                               {view(codes.as<u8>(), size), scales_view<Recipe>(scales, size)},
                               dense(bits.as<u8>(), size.rows, bitmap_cols(size.cols), size.batch),
                               Recipe::num.amax_floor, openmp{threads}, body);
  });
}

/// Thousands of small tensors, each a call of its own, packed one behind the other as a transport buffer holds them.
template <class Recipe, class In> void packed_row(benchmark::State& state, i64 rows, i64 cols, int threads) {
  const i64 each = rows * cols, count = input_bytes() / static_cast<i64>(sizeof(In)) / each;
  const extent one = {1, rows, cols, cols};
  const i64 slot = each + (scale_bytes<Recipe>(one) + 255) / 256 * 256;
  buffer in(each * count * static_cast<i64>(sizeof(In))), slots(slot * count), bits(64);
  fill<In>(in, each * count);
  against_limit<mix::two_to_one>(state, in, in, slots, bits, each * count, threads, [&] {
    openmp{threads}.run(count, [&](i64 i) {
      u8* codes = slots.as<u8>() + slot * i;
      quantize<Recipe, In>(dense<const In>(in.as<In>() + each * i, rows, cols),
                           {dense(codes, rows, cols),
                            dense(reinterpret_cast<stored_t<Recipe>*>(codes + each),
                                  scale_rows<typename Recipe::block>(rows), scale_cols<typename Recipe::block>(cols))});
    });
  });
}

template <class Recipe> void verify_row(benchmark::State& state, int threads) {
  const extent size = {1, 1024, 4096, 4096};  // by the definition, on purpose: a small tensor is enough
  buffer in(size.count() * 2), codes(size.count()), scales(scale_bytes<Recipe>(size)), bits(64);
  fill<bf16>(in, size.count());
  const pair_view<Recipe> pair = {view(codes.as<u8>(), size), scales_view<Recipe>(scales, size)};
  quantize<Recipe, bf16>(view<const bf16>(in.as<bf16>(), size), pair);
  buffer out(size.count());
  against_limit<mix::two_to_one>(state, in, in, out, bits, size.count(), threads, [&] {
    benchmark::DoNotOptimize(verify<Recipe, bf16>(view<const bf16>(in.as<bf16>(), size), pair));
  });
}

std::string name_of(isa body) {
  return body == isa::scalar ? "scalar" : body == isa::portable ? "portable" : body == isa::avx2 ? "avx2" : "avx512";
}

}  // namespace

void add_quant() {
  using te = presets::te_block::recipe;
  using vllm = presets::vllm_block::recipe;
  using mx = presets::te_mxfp8::recipe;
  using group = recipe<e4m3, block<1, 128>, rules::te_fp32>;
  for (const int threads : {1, 2}) {
    const std::string end = "/threads:" + std::to_string(threads);
    for (const isa body : {isa::portable, isa::avx2, isa::avx512}) {
      if (!can_run(body)) continue;
      const std::string by = "/" + name_of(body) + end;
      const auto row = [&](const std::string& what, auto function, extent size) {
        add(what + by, [=](benchmark::State& state) { function(state, size, threads, body); });
      };
      row("bf16_e4m3_128x128/te/4096", quantize_row<te, bf16>, sized<bf16>(4096, 4096));
      row("bf16_e4m3_128x128/vllm/4096", quantize_row<vllm, bf16>, sized<bf16>(4096, 4096));
      row("bf16_mxfp8_1x32/te/4096", quantize_row<mx, bf16>, sized<bf16>(4096, 4096));
      row("bf16_e4m3_1x128/te/4096", quantize_row<group, bf16>, sized<bf16>(4096, 4096));
      row("f32_e4m3_128x128/te/4096", quantize_row<te, float>, sized<float>(4096, 4096));
      row("f32_e4m3_128x128/vllm/4096", quantize_row<vllm, float>, sized<float>(4096, 4096));
      row("f32_mxfp8_1x32/te/4096", quantize_row<mx, float>, sized<float>(4096, 4096));
      row("fp16_e4m3_128x128/te/4096", quantize_row<te, fp16>, sized<fp16>(4096, 4096));
      row("e4m3_bf16_128x128/4096", dequantize_row<te, bf16>, sized<bf16>(4096, 4096));
      row("e4m3_f32_128x128/4096", dequantize_row<te, float>, sized<float>(4096, 4096));
      row("mxfp8_bf16_1x32/4096", dequantize_row<mx, bf16>, sized<bf16>(4096, 4096));
      row("delta_bf16_e4m3_128x128/te/4096", delta_row<te, bf16>, sized<bf16>(4096, 4096));
      if (body == isa::portable) continue;
      row("bf16_e4m3_128x128/te/2048", quantize_row<te, bf16>, sized<bf16>(2048, 2048));
      row("bf16_e4m3_128x128/te/7168", quantize_row<te, bf16>, sized<bf16>(7168, 7168));
      row("bf16_e4m3_128x128/te/ragged_4000", quantize_row<te, bf16>, sized<bf16>(4000, 4000));
      row("bf16_e4m3_128x128/te/strided_4096_of_4224", quantize_row<te, bf16>, sized<bf16>(4096, 4224));
      row("bf16_mxfp8_1x32/te/2048", quantize_row<mx, bf16>, sized<bf16>(2048, 2048));
      row("bf16_mxfp8_1x32/te/7168", quantize_row<mx, bf16>, sized<bf16>(7168, 7168));
      row("bf16_e4m3_128x128/te/experts_128x768x2048", quantize_row<te, bf16>,
          extent{std::max<i64>(1, input_bytes() / 2 / (768 * 2048)), 768, 2048, 2048});
    }
    add("bf16_e4m3_128x128/te/packed_256x1024" + end,
        [=](benchmark::State& state) { packed_row<te, bf16>(state, 256, 1024, threads); });
    add("bf16_mxfp8_1x32/te/packed_128x256" + end,
        [=](benchmark::State& state) { packed_row<mx, bf16>(state, 128, 256, threads); });
    if (threads == 1)
      add("verify_bf16_e4m3_128x128/te/4096" + end, [=](benchmark::State& state) { verify_row<te>(state, threads); });
  }
}

}  // namespace bench
