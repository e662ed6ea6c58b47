// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdio>
#include <future>
#include <random>
#include <string>
#include <vector>

#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/reference.hpp>

#include "tool_oracle.hpp"

using namespace fp8wire;

static std::string text(std::string_view view) { return std::string(view); }

// Matrices of 1 x 8 are blocks of eight weights, whatever the block: blocks are cheap, and there can be many. Every
// exponent, subnormals too; mantissas of BF16 as often as of FP32, since ties are a matter of short mantissas.
static void fill(std::mt19937& random, float* x) {
  static const u32 edges[] = {0,          1,          0x400000,   0x400001,   0x7FFFFF,   0x800000,
                              0x3800000,  0x3E00000,  0x3E00001,  0x4600000,  0x4600001,  0x4DFFFFF,
                              0x4E00000,  0x2B8CBCCC, 0x2EDBE6FF, 0x38D1B717, 0x3FE00000, 0x3FE00001,
                              0x43E00000, 0x43E00001, 0x7F600000, 0x7F780000, 0x7F7F0000, 0x7F7FFFFF};
  const u32 kind = static_cast<u32>(random()), pattern = static_cast<u32>(random());
  u32 amax = pattern & 0x7FFFFFFFu;
  if ((kind & 15) == 0) amax = edges[pattern % 24];
  else if ((kind & 15) < 12) amax = (pattern & 0x007FFFFFu) | (100 + (pattern >> 23) % 40) << 23;
  if ((kind & 16) != 0) amax &= 0x7FFF0000u;
  if ((amax & 0x7F800000u) == 0x7F800000u) amax &= 0x7F7FFFFFu;
  x[0] = oracle::as_float(amax | (kind & 32) << 26);
  for (int i = 1; i < 8; ++i) {
    const u32 bits = static_cast<u32>(random());
    // At most the amax: a smaller exponent field, or its own with a mantissa that is not larger.
    const u32 field = amax >> 23, drop = bits >> 28;
    u32 magnitude = drop >= field ? bits & amax & 0x007FFFFFu : (field - drop) << 23 | (bits & 0x007FFFFFu);
    if (magnitude > amax) magnitude = amax;
    if ((kind & 16) != 0) magnitude &= 0x7FFF0000u;
    x[i] = oracle::as_float(magnitude | (bits & 0x00800000u) << 8);
  }
}

template <class Preset, class In> static i64 differences(i64 blocks, unsigned seed) {
  using recipe = typename Preset::recipe;
  using element = typename recipe::element;
  std::mt19937 random(seed);
  const u8 nan = element::encode(float_of(f32::nan));
  oracle::question q{text(Preset::name), text(Preset::scale),
                     text(element::id).substr(0, 4) == "e5m2" ? oracle::e5m2 : oracle::e4m3, 0,
                     input_traits<In>::largest};
  const bool columnwise = recipe::block::cols == 1;
  i64 wrong = 0;
  for (i64 n = 0; n < blocks; ++n) {
    float x[8];
    In weights[8];
    fill(random, x);
    float amax = 0;
    for (int i = 0; i < 8; ++i) {
      weights[i] = from_float<In>(x[i]);
      if (!f32::is_finite(bits_of(to_float(weights[i])))) weights[i] = In{};
      x[i] = to_float(weights[i]);
      if (std::fabs(x[i]) > amax) amax = std::fabs(x[i]);
    }
    u8 codes[8];
    stored_t<recipe> scale[1];
    const i64 rows = columnwise ? 8 : 1, cols = columnwise ? 1 : 8;
    reference::quantize_block_row<recipe, In>(dense<const In>(weights, rows, cols), 0, dense(codes, rows, cols),
                                              dense(scale, 1, 1), recipe::num.amax_floor);
    q.amax = amax < recipe::num.amax_floor ? recipe::num.amax_floor : amax;
    const oracle::answer a = oracle::ask(q);
    u32 stored = 0;
    if constexpr (std::same_as<stored_t<recipe>, float>) stored = bits_of(scale[0]);
    else stored = scale[0].bits;
    bool same = stored == a.stored;
    for (int i = 0; i < 8; ++i) same = same && codes[i] == oracle::code_of(q, a, x[i], nan);
    if (same) continue;
    if (++wrong <= 3) {
      std::printf("%s %s: amax %08X scale %08X, expected %08X\n", q.name.c_str(), q.scale.c_str(), bits_of(amax),
                  stored, a.stored);
      for (int i = 0; i < 8; ++i)
        std::printf("  %08X: %02X, expected %02X\n", bits_of(x[i]), codes[i], oracle::code_of(q, a, x[i], nan));
    }
  }
  return wrong;
}

TEST_CASE("every preset makes the bytes of an oracle of its own on random blocks of every magnitude") {
  presets::for_each([]<class Preset>() {
    CAPTURE(text(Preset::name));
    CAPTURE(text(Preset::scale));
    // Two million blocks a preset, on two cores at once.
    std::future<i64> in_f32 = std::async(std::launch::async, differences<Preset, float>, 900000, 1u);
    CHECK(differences<Preset, bf16>(800000, 2) == 0);
    CHECK(differences<Preset, fp16>(300000, 3) == 0);
    CHECK(in_f32.get() == 0);
  });
}
