// SPDX-License-Identifier: Apache-2.0
// One call of one kind of work, for callgrind: quant/instructions_test.py. Usage: count_instructions WORK
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

using namespace fp8wire;

// What is counted: everything from entry to return.
static bool (*counted_work)();
extern "C" __attribute__((noinline)) bool counted() { return counted_work(); }

namespace {

constexpr i64 rows = 256, cols = 4096;

template <any_recipe Recipe, class In, isa Body, bool Delta = false> void count() {
  static const std::vector<In> in = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<In> made(static_cast<std::size_t>(rows * cols));
    for (In& one : made) one = from_float<In>(normal(random));
    return made;
  }();
  static std::vector<u8> codes(in.size()), before(in.size()), changed(in.size() / 8);
  static std::vector<stored_t<Recipe>> scales(in.size() / 32);
  counted_work = [] {
    using block = typename Recipe::block;
    const pair_view<Recipe> out{dense(codes.data(), rows, cols),
                                dense(scales.data(), scale_rows<block>(rows), scale_cols<block>(cols))};
    const auto weights = dense<const In>(in.data(), rows, cols);
    if constexpr (Delta)
      return quantize_delta<Recipe, In>(weights, dense<const u8>(before.data(), rows, cols), out,
                                        dense(changed.data(), rows, bitmap_cols(cols)), Recipe::num.amax_floor,
                                        serial{}, Body)
          .finite();
    else return quantize<Recipe, In>(weights, out, Recipe::num.amax_floor, serial{}, Body).finite();
  };
}

struct named_work {
  std::string_view name;
  void (*choose)();
};
using te = presets::te_block::recipe;
using mx = presets::te_mxfp8::recipe;
constexpr named_work all[] = {
    {"bf16_128x128", count<te, bf16, isa::avx2>},
    {"bf16_128x128_delta", count<te, bf16, isa::avx2, true>},
    {"bf16_mxfp8", count<mx, bf16, isa::avx2>},
    {"f32_128x128", count<te, float, isa::avx2>},
    {"f32_128x128_divided", count<presets::vllm_block::recipe, float, isa::avx2>},
    {"f32_mxfp8", count<mx, float, isa::avx2>},
    {"fp16_128x128", count<te, fp16, isa::avx2>},
    {"bf16_128x128_portable", count<te, bf16, isa::portable>},
};

}  // namespace

int main(int argc, char** argv) {
  for (const named_work& one : all) {
    if (argc != 2 || one.name != argv[1]) continue;
    one.choose();
    std::printf("%lld\n", static_cast<long long>(rows * cols));
    return counted() ? 0 : 1;
  }
  std::fprintf(stderr, "no such work\n");
  return 2;
}
