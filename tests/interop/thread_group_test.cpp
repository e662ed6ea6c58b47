// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: what they reduce and gather, and a persistent FP8 parameter that they refresh together.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <fp8wire/interop/thread_group.hpp>
#include <fp8wire/quant/presets/nemo.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

using namespace fp8wire;

namespace {

template <class Work> void on_ranks(int ranks, const Work& work) {
  thread_group group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      thread_group::member with = group.join(rank);
      work(with);
    });
  for (std::thread& one : threads) one.join();
}

template <any_recipe Recipe> struct learner {
  explicit learner(const matrix_extents& shape)
      : of(shape),
        codes(static_cast<std::size_t>(of.batch * of.rows * of.cols)),
        scales(static_cast<std::size_t>(persistent_parameter<Recipe>{of}.blocks())),
        amaxes(scales.size()),
        operands(scales.size()) {}
  persistent_parameter<Recipe> parameter() { return {of, codes.data(), scales.data(), amaxes.data(), operands.data()}; }
  matrix_extents of;
  std::vector<u8> codes;
  std::vector<stored_t<Recipe>> scales;
  std::vector<u32> amaxes;
  std::vector<float> operands;
};

template <any_recipe Recipe> learner<Recipe> quantized(const matrix_extents& of, const std::vector<float>& in) {
  learner<Recipe> made(of);
  for (i64 b = 0; b < of.batch; ++b)
    for (i64 row = 0; row < made.parameter().grid_rows(); ++row)
      reference::quantize_block_row<Recipe, float>(dense(in.data(), of.rows, of.cols, of.batch).slice_of(b), row,
                                                   dense(made.codes.data(), of.rows, of.cols, of.batch).slice_of(b),
                                                   made.parameter().grid(made.scales.data()).slice_of(b),
                                                   Recipe::num.amax_floor);
  return made;
}

template <class Value> bool same(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0;
}

constexpr numerics rounded{.f32_through_bf16 = true};
using te_block_of_bf16 = with_numerics<presets::te_block::recipe, rounded>;

}  // namespace

TEST_CASE("the maximum of all ranks, whatever their number, and shards that become the whole") {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const i64 count : {i64{0}, i64{1}, i64{5}, i64{1000}}) {
      std::vector<flat_range> ranges;
      for (i64 rank = 0; rank < ranks; ++rank)  // the second rank owns nothing
        ranges.push_back(rank == 1
                             ? flat_range{count, 0}
                             : flat_range{count * rank / ranks, count * (rank + 1) / ranks - count * rank / ranks});
      if (ranks > 1) ranges[0].length += count * 2 / ranks - count / ranks;
      std::vector<int> right(static_cast<std::size_t>(ranks));
      on_ranks(ranks, [&](thread_group::member& with) {
        const u32 rank = static_cast<u32>(with.rank());
        std::vector<u32> values(static_cast<std::size_t>(count));
        for (u32 i = 0; i < values.size(); ++i) values[i] = i % static_cast<u32>(ranks) == rank ? f32::nan - i : i;
        std::vector<u8> bytes(static_cast<std::size_t>(count));
        const flat_range& mine = ranges[rank];
        std::fill_n(bytes.begin() + mine.start, mine.length, static_cast<u8>(10 + rank));
        for (int again = 0; again < 3; ++again) {
          with.all_max(values.data(), count);
          with.all_gather(bytes.data(), ranges);
        }
        bool good = with.size() == ranks;
        for (u32 i = 0; i < values.size(); ++i) good = good && values[i] == f32::nan - i;
        for (std::size_t owner = 0; owner < ranges.size(); ++owner)
          for (i64 i = ranges[owner].start; i < ranges[owner].end(); ++i)
            good = good && bytes[static_cast<std::size_t>(i)] == 10 + owner;
        right[rank] = good ? 1 : 0;
      });
      CHECK(std::count(right.begin(), right.end(), 1) == ranks);
    }
  }
}

TEST_CASE_TEMPLATE("ranks refresh a parameter to the bytes of one that has it whole, step after step", Recipe,
                   presets::te_block::recipe, presets::te_block_pow2::recipe, presets::te_mxfp8::recipe,
                   presets::nemo_block::recipe, te_block_of_bf16) {
  constexpr matrix_extents of{2, 150, 160};
  constexpr i64 count = of.batch * of.rows * of.cols;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> first(static_cast<std::size_t>(count));
  for (float& master : first) master = normal(random);
  std::vector<float> second = first, third;
  for (std::size_t i = 0; i < second.size(); i += 3) second[i] *= 1.0f + 0x1p-20f;  // too small for most codes
  third = second;
  for (float& master : third) master *= 1.5f;  // moves scales
  const std::vector<float>* steps[] = {&first, &second, &second, &third};

  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<flat_range> ranges;
    for (i64 rank = 0; rank < ranks; ++rank) {  // cuts at odd offsets; one rank without a share
      const i64 from = rank == 0 ? 0 : ranges.back().end();
      ranges.push_back({from, rank + 1 == ranks ? count - from : rank == 1 ? 0 : count / ranks + 13});
    }
    std::vector<learner<Recipe>> replicas(static_cast<std::size_t>(ranks), learner<Recipe>(of));
    const std::vector<float>* previous = &first;
    learner<Recipe> last(of);
    for (const auto* step : steps) {
      std::vector<refresh_counts> counts(static_cast<std::size_t>(ranks));
      on_ranks(ranks, [&](thread_group::member& with) {
        const auto rank = static_cast<std::size_t>(with.rank());
        const i64 start = ranges[rank].start;
        counts[rank] =
            refresh<Recipe>(replicas[rank].parameter(), ranges, step->data() + start, previous->data() + start, with);
      });
      const learner<Recipe> expected = quantized<Recipe>(of, *step);
      i64 masters = 0, codes = 0, expected_masters = 0, expected_codes = 0, scales = 0, moved = 0;
      for (std::size_t i = 0; i < step->size(); ++i) {
        expected_masters += (*previous)[i] != (*step)[i] ? 1 : 0;
        expected_codes += last.codes[i] != expected.codes[i] ? 1 : 0;
      }
      for (std::size_t i = 0; i < expected.scales.size(); ++i) {
        const u32 a = bits_of(to_float(last.scales[i])), b = bits_of(to_float(expected.scales[i]));
        scales += std::memcmp(&last.scales[i], &expected.scales[i], sizeof(last.scales[i])) != 0 ? 1 : 0;
        if constexpr (sizeof(last.scales[i]) == 1) moved = scales;
        else moved += a >> 23 != b >> 23 ? 1 : 0;
      }
      for (std::size_t rank = 0; rank < replicas.size(); ++rank) {
        CHECK(same(replicas[rank].codes, expected.codes));
        CHECK(same(replicas[rank].scales, expected.scales));
        CHECK(counts[rank].masters == ranges[rank].length);
        CHECK(counts[rank].scales == static_cast<i64>(expected.scales.size()));
        CHECK(counts[rank].scales_changed == scales);
        CHECK(counts[rank].blocks_moved == moved);
        CHECK(counts[rank].finite());
        masters += counts[rank].masters_changed;
        codes += counts[rank].codes_changed;
      }
      CHECK(masters == expected_masters);
      CHECK(codes == expected_codes);
      if (step == &second && previous == &second) CHECK(codes == 0);
      if (step == &third) CHECK(moved > 0);
      previous = step;
      last = expected;
    }
  }
}

TEST_CASE("a rank that meets NaN says where in the tensor it lies") {
  using recipe = presets::te_block::recipe;
  constexpr matrix_extents of{1, 10, 10};
  learner<recipe> one(of);
  std::vector<float> masters(100, 1.0f);
  masters[77] = float_of(f32::infinity);
  const flat_range everything{0, 100};
  alone with;
  CHECK(refresh<recipe>(one.parameter(), {&everything, 1}, masters.data(), nullptr, with).first_nonfinite == 77);
  const flat_range too_long{1, 100};
  CHECK_THROWS_AS((refresh<recipe>(one.parameter(), {&too_long, 1}, masters.data(), nullptr, with)),
                  const precondition_error&);
}

TEST_CASE("counts of several ranks add up, and the first NaN of any of them stays the first") {
  refresh_counts sum{10, 9, 8, 7, 6, 5, -1};
  sum += refresh_counts{100, 90, 80, 70, 60, 50, 77};
  CHECK(sum == refresh_counts{110, 99, 88, 77, 66, 55, 77});
  sum += refresh_counts{0, 0, 0, 0, 0, 0, 3};
  CHECK(sum.first_nonfinite == 3);
  sum += refresh_counts{0, 0, 0, 0, 0, 0, 40};
  sum += refresh_counts{};
  CHECK(sum.first_nonfinite == 3);
}
