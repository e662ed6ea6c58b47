// SPDX-License-Identifier: Apache-2.0
// Every preset by every vector body against the definition, byte for byte.
#include <fp8wire/quant/presets/all.hpp>

#include "host_tensors.hpp"

using namespace fp8wire;
using namespace host_tensors;

TEST_CASE("every body makes the definition's bytes for every preset") {
  presets::for_each([]<class Preset>() {
    CAPTURE(Preset::name);
    CAPTURE(Preset::scale);
    using recipe = typename Preset::recipe;
    all_patterns<recipe, bf16>({{1, 130, 300}, {2, 16, 256, 32, 64}});
  });
}

TEST_CASE("E8M0 bytes of every FP32 amax of an octave, for every preset of blocks of 32") {
  int presets_met = 0;
  presets::for_each([&]<class Preset>() {
    using recipe = typename Preset::recipe;
    if constexpr (std::same_as<stored_t<recipe>, e8m0> && recipe::block::rows == 1 && recipe::block::cols == 32) {
      CAPTURE(Preset::name);
      ++presets_met;
      constexpr i64 blocks = 4096, cols = 32 * blocks;
      std::vector<float> weights(cols);
      std::vector<u8> codes(cols);
      std::vector<e8m0> scales(blocks);
      i64 wrong = 0;
      for (const u32 field : {30u, 100u, 127u}) {
        for (u32 first = 0; first < 1u << 23; first += blocks) {
          for (u32 i = 0; i < blocks; ++i)
            weights[32 * i + i % 32] = float_of((i & 1) << 31 | field << 23 | (first + i));
          quantize<recipe, float>(dense<const float>(weights.data(), 1, cols),
                                  {dense(codes.data(), 1, cols), dense(scales.data(), 1, blocks)});
          for (u32 i = 0; i < blocks; ++i) {
            const u32 amax = bits_of(reference::load<recipe>(float_of(field << 23 | (first + i))));
            wrong += scales[i].bits != reference::block_scale<recipe, float>(amax, 0.0f).stored.bits ? 1 : 0;
          }
        }
      }
      CHECK(wrong == 0);
    }
  });
  CHECK(presets_met > 3);
}
