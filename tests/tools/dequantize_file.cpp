// SPDX-License-Identifier: Apache-2.0
// Our side of every comparison with somebody else's reader: codes and scales in, weights out.
//   dequantize_file SCALES OUT ROWS COLS < codes then scales > weights
// SCALES: fp32, bf16 or e8m0 (one for 128x128 codes), or mx (E8M0, one for 32 codes of a row). OUT: f32 or bf16.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/compressed_tensors.hpp>
#include <fp8wire/quant/presets/deepgemm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

using namespace fp8wire;

template <class Recipe, class Out> static int convert(i64 rows, i64 cols) {
  const i64 down = scale_rows<typename Recipe::block>(rows), across = scale_cols<typename Recipe::block>(cols);
  std::vector<u8> codes(static_cast<std::size_t>(rows * cols));
  std::vector<stored_t<Recipe>> scales(static_cast<std::size_t>(down * across));
  std::vector<Out> out(codes.size());
  if (std::fread(codes.data(), 1, codes.size(), stdin) != codes.size() ||
      std::fread(scales.data(), sizeof(scales[0]), scales.size(), stdin) != scales.size()) {
    std::fputs("too few bytes on stdin\n", stderr);
    return 1;
  }
  dequantize<Recipe, Out>({dense<const u8>(codes.data(), rows, cols),
                           dense<const stored_t<Recipe>>(scales.data(), down, across)},
                          dense(out.data(), rows, cols));
  return std::fwrite(out.data(), sizeof(Out), out.size(), stdout) == out.size() ? 0 : 1;
}

template <class Out> static int convert(std::string_view scales, i64 rows, i64 cols) {
  if (scales == "fp32") return convert<presets::vllm_block::recipe, Out>(rows, cols);
  if (scales == "bf16") return convert<presets::compressed_tensors_block::recipe, Out>(rows, cols);
  if (scales == "e8m0") return convert<presets::deepgemm_block_e8m0::recipe, Out>(rows, cols);
  if (scales == "mx") return convert<presets::te_mxfp8::recipe, Out>(rows, cols);
  std::fputs("SCALES: fp32, bf16, e8m0 or mx\n", stderr);
  return 2;
}

int main(int count, char** arguments) {
  if (count != 5) return 2;
  const i64 rows = std::atoll(arguments[3]), cols = std::atoll(arguments[4]);
  return std::string_view(arguments[2]) == "f32" ? convert<float>(arguments[1], rows, cols)
                                                 : convert<bf16>(arguments[1], rows, cols);
}
