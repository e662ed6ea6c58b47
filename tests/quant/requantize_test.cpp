// SPDX-License-Identifier: Apache-2.0
// When quantizing what was dequantized gives the same bytes back, and when it does not: why the sync path forwards
// bytes.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/deepgemm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

#include "tensors.hpp"

using namespace fp8wire;
using mx = presets::te_mxfp8::recipe;
using fp32 = presets::vllm_block::recipe;
using pow2 = presets::deepgemm_block_pow2::recipe;

template <any_recipe Recipe> static std::vector<float> values(test::pair_of<Recipe>& pair) {
  std::vector<float> out(pair.codes.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = reference::decode<Recipe>(pair.codes[i], pair.scales[0]);
  return out;
}

TEST_CASE("an MXFP8 block comes back unchanged exactly when its largest code is above 224") {
  for (int largest = 1; largest <= 0x7E; ++largest) {
    CAPTURE(largest);
    test::pair_of<mx> block(1, 32);
    for (std::size_t i = 0; i < 32; ++i) block.codes[i] = static_cast<u8>(static_cast<int>(i) * largest / 31);
    block.codes[3] = static_cast<u8>(largest | 0x80);
    block.scales[0].bits = 120;
    const auto weights = values(block);
    auto again = test::quantized<mx, float>(weights, 1, 32);
    const bool above = e4m3::decode(static_cast<u8>(largest)) > 224.0f;
    CHECK((again.scales[0].bits == 120) == above);
    CHECK((again.codes == block.codes) == above);
    // The numbers survive in either case: four significant bits times a power of two.
    CHECK(values(again) == weights);
    // And from then on nothing moves.
    auto third = test::quantized<mx, float>(values(again), 1, 32);
    CHECK((third.codes == again.codes && third.scales == again.scales));
  }
}

TEST_CASE("FP32 scales do not always survive: 448 * s / 448 rounds") {
  const auto survives = [](u32 scale) {
    const std::vector<float> weights{ieee::mul(448.0f, float_of(scale)), ieee::mul(-8.0f, float_of(scale))};
    auto again = test::quantized<fp32, float>(weights, 1, 2);
    CHECK((again.codes[0] == 0x7E && again.codes[1] == 0xD0));
    return bits_of(again.scales[0]) == scale;
  };
  CHECK(survives(0x3FC00000u));  // 1.5
  for (const u32 scale : {0x3FBC0A74u, 0x3FA3C614u, 0x3FA507F4u, 0x3F953E0Cu, 0x3F92A65Cu, 0x3FAB4034u})
    CHECK_FALSE(survives(scale));
  std::mt19937 random(1);
  int moved = 0, below = 0;
  for (int i = 0; i < 20000; ++i) {
    const u32 scale = 0x3F800000u | (static_cast<u32>(random()) & 0x7FFFFFu);
    if (survives(scale)) continue;
    ++moved;
    below += float_of(scale) < 8.0f / 7.0f ? 1 : 0;
  }
  CHECK((moved > 1500 && moved < 3000));  // one in nine
  CHECK(below == 0);
}

TEST_CASE("powers of two survive as values, unless the amax floor raises them") {
  const auto again = [](u8 byte, float largest) {
    const float scale = to_float(e8m0{byte});
    const std::vector<float> weights{largest * scale, 0.40625f * scale, -0.001953125f * scale};
    auto out = test::quantized<pow2, float>(weights, 1, 3);
    bool exact = true;
    for (std::size_t i = 0; i < 3; ++i)
      exact = exact && reference::decode<pow2>(out.codes[i], out.scales[0]) == weights[i];
    return std::pair{static_cast<int>(bits_of(out.scales[0]) >> 23), exact};
  };
  CHECK(again(127, 448.0f) == std::pair{127, true});
  CHECK(again(127, 224.0f) == std::pair{126, true});
  CHECK(again(127, 104.0f) == std::pair{125, true});
  CHECK(again(100, 448.0f) == std::pair{105, false});  // 1e-4 is the floor: codes lose five bits
  CHECK(again(90, 448.0f) == std::pair{105, false});
}

TEST_CASE("rounding a stored FP32 scale up needs new codes: the old ones would inflate every weight") {
  test::pair_of<fp32> old(1, 5);
  old.codes = {0x7E, 0x39, 0xFE, 0x00, 0x01};
  old.scales[0] = float_of(0x3F2B6DB7u);
  auto weights = values(old);
  auto again = test::quantized<pow2, float>(weights, 1, 5);
  CHECK(again.scales[0] == 1.0f);
  CHECK(again.codes == std::vector<u8>{0x79, 0x34, 0xF9, 0x00, 0x01});
  auto second = test::quantized<pow2, float>(values(again), 1, 5);
  CHECK(second.codes == again.codes);
  CHECK(reference::decode<pow2>(old.codes[0], 1.0f) > 1.4f * weights[0]);
}
