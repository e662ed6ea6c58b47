// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include <fp8wire/quant/grid_difference.hpp>
#include <fp8wire/quant/presets/all.hpp>

#include "tensors.hpp"

using namespace fp8wire;
using v1 = presets::vllm_block::recipe;
using v3 = presets::deepgemm_block::recipe;
using v4 = presets::sgl_kernel_block::recipe;
using v5 = presets::te_block::recipe;

// Two blocks side by side whose amax is a known case of docs/numerics.md: V1 and V3 differ in the scale of the first
// and in one of its codes; V1 and V5 share the scale of the second and differ in a code.
static std::vector<bf16> cases() {
  std::vector<bf16> weights(256);
  weights[0].bits = 0x3F9A;
  weights[1].bits = 0x39D1;
  weights[128].bits = 0x3FCC;
  weights[129].bits = 0x3999;
  return weights;
}

TEST_CASE("a recipe does not differ from itself, and numbers are compared across encodings") {
  const auto weights = cases();
  const auto in = dense<const bf16>(weights.data(), 1, 256);
  CHECK(grid_difference<v1, v1, bf16>(in).same());
  const auto stored =
      grid_difference<presets::deepgemm_block_pow2::recipe, presets::deepgemm_block_e8m0::recipe, bf16>(in);
  CHECK((stored.same() && stored.blocks == 2 && stored.elements == 256 && stored.first_batch == -1));
}

TEST_CASE("differences are counted and their reason told: the scale, or the code alone") {
  const auto weights = cases();
  const auto in = dense<const bf16>(weights.data(), 1, 256);
  const auto scale = grid_difference<v1, v3, bf16>(dense<const bf16>(weights.data(), 1, 128));
  CHECK((scale.blocks == 1 && scale.scale_blocks == 1 && scale.code_blocks == 1 && scale.code_only_blocks == 0));
  CHECK((scale.codes == 1 && scale.first_row == 0 && scale.first_col == 0));
  const auto code = grid_difference<v1, v5, bf16>(dense<const bf16>(weights.data() + 128, 1, 128));
  CHECK((code.scale_blocks == 0 && code.code_blocks == 1 && code.code_only_blocks == 1 && code.codes == 1 &&
         code.first_col == 1));
  CHECK(grid_difference<v1, v3, bf16>(in).blocks == 2);
}

TEST_CASE("the floor in use decides zero blocks") {
  const std::vector<float> zeros(64);
  const auto in = dense<const float>(zeros.data(), 2, 32);
  using mx = presets::skyrl_mxfp8::recipe;
  CHECK(grid_difference<mx, mx, float>(in).same());
  const auto floored = grid_difference<mx, mx, float>(in, 0.0f, 1e-10f);
  CHECK((floored.scale_blocks == 2 && floored.codes == 0 && floored.first_row == 0));
  const auto zero_row = grid_difference<presets::te_mxfp8::recipe, presets::nemo_mxfp8::recipe, float>(in);
  CHECK((zero_row.scale_blocks == 2 && zero_row.code_blocks == 0));
}

TEST_CASE("batches and empty tensors") {
  std::vector<bf16> weights(2 * 130 * 130);
  std::mt19937 random(3);
  for (bf16& weight : weights) weight.bits = static_cast<u16>((random() & 0x807F) | ((120 + random() % 6) << 7));
  const auto all = grid_difference<v4, v5, bf16>(dense<const bf16>(weights.data(), 130, 130, 2));
  CHECK(
      (all.blocks == 8 && all.elements == 2 * 130 * 130 && all.codes == 0));  // V4 and V5: other scales, the same codes
  CHECK(grid_difference<v1, v5, bf16>(dense<const bf16>(nullptr, 0, 5)).blocks == 0);
}

TEST_CASE("grid_difference is a constant expression") {
  static constexpr float weights[2] = {448.0f, -1.0f};
  static_assert(grid_difference<v1, v5, float>(dense(weights, 1, 2)).same());
}
