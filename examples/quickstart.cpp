// SPDX-License-Identifier: Apache-2.0
// Quantize a BF16 matrix as vLLM does, and read it back.
#include <cstdio>
#include <vector>

#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

int main() {
  using recipe = fp8wire::presets::vllm_block::recipe;  // E4M3, 128x128 blocks, FP32 scales: the bytes are the type's
  constexpr fp8wire::i64 rows = 200, cols = 300;
  std::vector<fp8wire::bf16> weights(rows * cols), back(rows * cols);
  float value = -0.75f;
  for (auto& weight : weights) weight = fp8wire::to_bf16(value = value > 0.75f ? -0.75f : value + 0.015625f);

  constexpr auto scale_rows = fp8wire::scale_rows<recipe::block>(rows),
                 scale_cols = fp8wire::scale_cols<recipe::block>(cols);
  std::vector<std::uint8_t> codes(rows * cols);
  std::vector<float> scales(scale_rows * scale_cols);
  const fp8wire::pair_view<recipe> pair{fp8wire::dense(codes.data(), rows, cols),
                                        fp8wire::dense(scales.data(), scale_rows, scale_cols)};

  const auto status = fp8wire::quantize<recipe>(fp8wire::dense<const fp8wire::bf16>(weights.data(), rows, cols), pair);
  fp8wire::dequantize<recipe>(pair, fp8wire::dense(back.data(), rows, cols));
  std::printf("grid %016llx, finite %d, first scale %g, first code %02x, weight %g -> %g\n",
              static_cast<unsigned long long>(fp8wire::grid_id<recipe>()), status.finite(),
              static_cast<double>(scales[0]), static_cast<unsigned>(codes[0]),
              static_cast<double>(fp8wire::to_float(weights[0])), static_cast<double>(fp8wire::to_float(back[0])));
}
