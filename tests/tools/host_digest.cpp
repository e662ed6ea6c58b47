// SPDX-License-Identifier: Apache-2.0
// One hash for each of a few recipes, input types and vector bodies: what quantize, quantize_delta and dequantize write
// for edge cases and noise. The lines of two builds are equal, or a flag moved a byte.
//   host_digest [--ftz]                                                   with FTZ and DAZ set before
#include <cstdio>
#include <cstring>
#include <vector>

#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/all.hpp>

#include "flush_subnormals.hpp"

using namespace fp8wire;

// Wide enough for whole vectors and ragged in both directions. A row's magnitudes lie within a few octaves, rows lie
// anywhere, and every seventh block of 32 begins with what rules stumble over.
static constexpr i64 rows = 300, cols = 416 + 32;
static std::vector<float> weights() {
  const u32 edges[] = {0,          0x80000000, 1,          0x007FFFFF, 0x00800000, 0x03E00001, 0x2EDBE6FF,
                       0x3A800000, 0x3F880000, 0x3FE00001, 0x43E00000, 0x43E80001, 0x477FE000, 0x7F600000,
                       0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0xFFC00000, 0xFF800000, 0x80000001};
  std::vector<float> made(static_cast<std::size_t>(rows * cols));
  u64 state = 0x9E3779B97F4A7C15u;
  for (std::size_t i = 0; i < made.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const u32 random = static_cast<u32>(state >> 32);
    const u32 row = static_cast<u32>(i) / static_cast<u32>(cols), field = row < 200 ? 100 + row / 8 : 2 * row - 390;
    made[i] = float_of((random & 0x807FFFFFu) | (field + (random >> 23) % 6) << 23);
    if (row % 16 == 3 && i % 32 == 0 && i / 32 % 7 == 0) made[i] = float_of(edges[(i / 32) % 20]);
  }
  return made;
}

static u64 hash_of(const void* data, std::size_t bytes, u64 state) {
  const u8* from = static_cast<const u8*>(data);
  for (std::size_t i = 0; i < bytes; ++i) state = hash(u64{from[i]}, state);
  return state;
}

template <any_recipe Recipe, class In> static u64 digest(isa body) {
  const std::vector<float> exact = weights();
  std::vector<In> in(exact.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = from_float<In>(exact[i]);
  const i64 down = scale_rows<typename Recipe::block>(rows), across = scale_cols<typename Recipe::block>(cols);
  std::vector<u8> codes(in.size()), changed(static_cast<std::size_t>(rows * bitmap_cols(cols)));
  std::vector<stored_t<Recipe>> scales(static_cast<std::size_t>(down * across));
  const matrix_view<const In> view = dense<const In>(in.data(), rows, cols);
  const pair_view<Recipe> pair{dense(codes.data(), rows, cols), dense(scales.data(), down, across)};
  quantize<Recipe, In>(view, pair, Recipe::num.amax_floor, serial{}, body);
  u64 state = hash_of(codes.data(), codes.size(), 1);
  std::vector<u8> before(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) before[i] = static_cast<u8>(codes[i] ^ (i % 11 == 0 ? 1 : 0));
  quantize_delta<Recipe, In>(view, dense<const u8>(before.data(), rows, cols), pair,
                             dense(changed.data(), rows, bitmap_cols(cols)), Recipe::num.amax_floor, serial{}, body);
  state = hash_of(codes.data(), codes.size(), state);
  state = hash_of(changed.data(), changed.size(), state);
  state = hash_of(scales.data(), scales.size() * sizeof(scales[0]), state);
  std::vector<bf16> narrow(in.size());
  std::vector<float> wide(in.size());
  dequantize<Recipe, bf16>(pair, dense(narrow.data(), rows, cols), serial{}, body);
  dequantize<Recipe, float>(pair, dense(wide.data(), rows, cols), serial{}, body);
  state = hash_of(narrow.data(), narrow.size() * sizeof(bf16), state);
  return hash_of(wide.data(), wide.size() * sizeof(float), state);
}

template <class Preset> static void print() {
  const isa bodies[] = {isa::scalar, isa::portable, isa::avx2, isa::avx512};
  const char* names[] = {"scalar", "portable", "avx2", "avx512"};
  using recipe = typename Preset::recipe;
  for (int i = 0; i < 4; ++i) {
    if (!can_run(bodies[i])) continue;
    const u64 f32_bytes = digest<recipe, float>(bodies[i]), bf16_bytes = digest<recipe, bf16>(bodies[i]),
              f16_bytes = digest<recipe, fp16>(bodies[i]);
    std::printf("%.*s %.*s %s %016llX %016llX %016llX\n", static_cast<int>(Preset::name.size()), Preset::name.data(),
                static_cast<int>(Preset::scale.size()), Preset::scale.data(), names[i],
                static_cast<unsigned long long>(f32_bytes), static_cast<unsigned long long>(bf16_bytes),
                static_cast<unsigned long long>(f16_bytes));
  }
}

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--ftz") == 0) {
    flush_subnormals();
  }
  // A division, a multiplication, both roundings of a BF16 quotient, an fma that loses -0, flushed inputs, E5M2, one
  // row and 32 rows of a column.
  print<presets::vllm_block>();
  print<presets::te_block_pow2>();
  print<presets::te_block_e5m2>();
  print<presets::nemo_block>();
  print<presets::compressed_tensors_block>();
  print<presets::te_mxfp8>();
  print<presets::te_mxfp8_fma>();
  print<presets::flashinfer_mxfp8>();
  print<presets::te_row_block>();
  print<presets::te_mxfp8_columnwise>();
  return 0;
}
