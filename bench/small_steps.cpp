// SPDX-License-Identifier: Apache-2.0
// What one optimizer step does to a persistent FP8 parameter: at a learning rate of 1e-6 nearly every master moves, no
// power-of-two scale does, and only few codes follow. The first step stands apart: masters that are BF16 values often
// lie right between two codes under a power-of-two scale, and any step decides them. Prints a table.
// Usage: small_steps [ROWS COLS STEPS]
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <fp8wire/quant/presets/deepgemm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

namespace {

using namespace fp8wire;

struct setting {
  i64 rows, cols;
  int steps;
};

/// Adam's steps are of the learning rate's size whatever the weight's.
template <any_recipe Recipe> void steps(const char* name, const setting& of, float rate) {
  const auto count = static_cast<std::size_t>(of.rows * of.cols);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::uniform_real_distribution<float> step(-1, 1);
  std::vector<float> masters(count), before(count);
  for (float& master : masters) master = to_float(to_bf16(normal(random)));

  persistent_parameter<Recipe> parameter{{1, of.rows, of.cols}};
  const auto blocks = static_cast<std::size_t>(parameter.blocks());
  std::vector<u8> codes(count);
  std::vector<stored_t<Recipe>> scales(blocks);
  std::vector<u32> amaxes(blocks);
  std::vector<float> operands(blocks);
  parameter.codes = codes.data();
  parameter.scales = scales.data();
  parameter.amaxes = amaxes.data();
  parameter.operands = operands.data();
  const flat_range everything{0, of.rows * of.cols};
  alone with;
  refresh<Recipe>(parameter, {&everything, 1}, masters.data(), nullptr, with);

  refresh_counts first, sum;
  for (int i = 0; i <= of.steps; ++i) {
    before = masters;
    for (float& master : masters) master += rate * step(random);
    const refresh_counts now = refresh<Recipe>(parameter, {&everything, 1}, masters.data(), before.data(), with);
    if (i == 0) {
      first = now;
      continue;
    }
    sum += now;
  }
  const auto percent = [](i64 part, i64 all) { return 100.0 * static_cast<double>(part) / static_cast<double>(all); };
  std::printf("%-24s %8g %12.4f %12.4f %12.4f %12.4f %14.4f\n", name, static_cast<double>(rate),
              percent(sum.masters_changed, sum.masters), percent(sum.codes_changed, sum.masters),
              percent(sum.scales_changed, sum.scales), percent(sum.blocks_moved, sum.scales),
              percent(first.codes_changed, first.masters));
}

/// Masters are rounded to the model's dtype first.
constexpr numerics rounded{.f32_through_bf16 = true};
template <any_recipe Recipe> using of_bf16 = with_numerics<Recipe, rounded>;

}  // namespace

int main(int argc, char** argv) {
  setting of{512, 1024, 4};
  if (argc == 4) of = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3])};
  if ((argc != 1 && argc != 4) || of.rows < 1 || of.cols < 32 || of.cols % 32 != 0 || of.steps < 1) {
    std::fprintf(stderr, "usage: small_steps [ROWS COLS STEPS], COLS a multiple of 32\n");
    return 2;
  }
  std::printf("%-24s %8s %12s %12s %12s %12s %14s\n", "% of all, a step", "rate", "masters", "codes", "scales", "moved",
              "codes, step 1");
  for (const float rate : {1e-6f, 1e-5f, 1e-4f, 1e-3f}) {
    steps<presets::te_block::recipe>("te-block fp32", of, rate);
    steps<of_bf16<presets::te_block::recipe>>("te-block fp32 via bf16", of, rate);
    steps<presets::te_block_pow2::recipe>("te-block pow2", of, rate);
    steps<of_bf16<presets::te_block_pow2::recipe>>("te-block pow2 via bf16", of, rate);
    steps<presets::deepgemm_block_e8m0::recipe>("deepgemm-block e8m0", of, rate);
    steps<presets::te_mxfp8::recipe>("te-mxfp8", of, rate);
  }
}
