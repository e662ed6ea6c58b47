// SPDX-License-Identifier: Apache-2.0
// Tensors quantized shard by shard, cut anywhere, against the whole tensor.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <fp8wire/format/fp32.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

using namespace fp8wire;

namespace {

// A preset's rule and numerics over blocks so small that every cut can be tried.
template <any_recipe Recipe>
using small_blocks = recipe<typename Recipe::element,
                            block<Recipe::block::rows == 1    ? 1
                                  : Recipe::block::rows == 32 ? 4
                                                              : 3,
                                  Recipe::block::cols == 1 ? 1 : 4>,
                            typename Recipe::rule, Recipe::num>;

template <any_recipe Recipe> struct tensor_bytes {
  std::vector<u8> codes;
  std::vector<stored_t<Recipe>> scales;

  explicit tensor_bytes(const matrix_extents& of)
      : codes(static_cast<std::size_t>(of.batch * of.rows * of.cols), u8{0xA5}),
        scales(static_cast<std::size_t>(of.batch * scale_rows<typename Recipe::block>(of.rows) *
                                        scale_cols<typename Recipe::block>(of.cols))) {}
  bool operator==(const tensor_bytes& other) const {
    return codes == other.codes && scales.size() == other.scales.size() &&
           (scales.empty() || std::memcmp(scales.data(), other.scales.data(), scales.size() * sizeof(scales[0])) == 0);
  }
};

// Zeros of both signs, magnitudes from far below to far above the normal numbers, a few NaN and Inf where asked.
template <class In> std::vector<In> hostile(i64 count, unsigned seed, bool nonfinite) {
  std::mt19937 random(seed);
  std::vector<In> made;
  for (i64 i = 0; i < count; ++i) {
    const u32 any = static_cast<u32>(random());
    const u32 exponent = any % 7 == 0 ? any >> 8 & 0xFF : 118 + (any >> 8) % 10;
    u32 bits = (any & f32::sign_mask) | exponent << 23 | (static_cast<u32>(random()) & f32::mantissa_mask);
    if (any % 11 == 0) bits &= f32::sign_mask;
    if (!f32::is_finite(bits) || (nonfinite && any % 23 == 0))
      bits = nonfinite ? (any & f32::sign_mask) | (any % 2 == 0 ? f32::nan : f32::infinity) : 0x3F800000u;
    In value = from_float<In>(float_of(bits));
    if (!nonfinite && !f32::is_finite(bits_of(to_float(value)))) value = from_float<In>(1.0f);
    made.push_back(value);
  }
  return made;
}

template <any_recipe Recipe, class In> tensor_bytes<Recipe> whole_tensor(const matrix_extents& of,
                                                                         const std::vector<In>& in) {
  tensor_bytes<Recipe> made(of);
  const i64 rows = scale_rows<typename Recipe::block>(of.rows), cols = scale_cols<typename Recipe::block>(of.cols);
  for (i64 b = 0; b < of.batch; ++b)
    for (i64 row = 0; row < rows; ++row)
      reference::quantize_block_row<Recipe, In>(dense(in.data(), of.rows, of.cols, of.batch).slice_of(b), row,
                                                dense(made.codes.data(), of.rows, of.cols, of.batch).slice_of(b),
                                                dense(made.scales.data(), rows, cols, of.batch).slice_of(b),
                                                Recipe::num.amax_floor);
  return made;
}

// The ranks one after the other, each with a buffer of its own shard only.
template <any_recipe Recipe, class In>
tensor_bytes<Recipe> by_shards(const matrix_extents& of, const std::vector<In>& in,
                               const std::vector<flat_range>& ranges, i64* nonfinite = nullptr) {
  tensor_bytes<Recipe> made(of);
  const i64 rows = scale_rows<typename Recipe::block>(of.rows), cols = scale_cols<typename Recipe::block>(of.cols);
  std::vector<u32> amaxes(made.scales.size()), one_rank(made.scales.size());
  std::vector<float> operands(made.scales.size());
  i64 first = -1;
  for (const flat_range& range : ranges) {
    one_rank.assign(one_rank.size(), 0);
    const i64 bad =
        partial_amax<Recipe, In>(of, range, in.data() + range.start, dense(one_rank.data(), rows, cols, of.batch));
    if (bad >= 0 && (first < 0 || bad < first)) first = bad;
    for (std::size_t i = 0; i < amaxes.size(); ++i) amaxes[i] = (std::max)(amaxes[i], one_rank[i]);
  }
  block_scales<Recipe, In>(dense<const u32>(amaxes.data(), rows, cols, of.batch),
                           dense(made.scales.data(), rows, cols, of.batch),
                           dense(operands.data(), rows, cols, of.batch));
  for (const flat_range& range : ranges) {
    // Beyond its own range a rank must not write.
    std::vector<u8> shard(static_cast<std::size_t>(range.length) + 64, u8{0x5A});
    partial_cast<Recipe, In>(of, range, in.data() + range.start,
                             dense<const float>(operands.data(), rows, cols, of.batch), shard.data() + 32);
    REQUIRE(std::count(shard.begin(), shard.begin() + 32, u8{0x5A}) == 32);
    REQUIRE(std::count(shard.end() - 32, shard.end(), u8{0x5A}) == 32);
    std::copy_n(shard.begin() + 32, range.length, made.codes.begin() + range.start);
  }
  if (nonfinite != nullptr) *nonfinite = first;
  return made;
}

template <class Preset, class In> void every_cut(unsigned seed, bool nonfinite) {
  using recipe = small_blocks<typename Preset::recipe>;
  CAPTURE(Preset::name);
  CAPTURE(Preset::scale);
  constexpr matrix_extents of{2, 7, 10};  // ragged both ways
  constexpr i64 count = of.batch * of.rows * of.cols;
  const std::vector<In> in = hostile<In>(count, seed, nonfinite);
  const tensor_bytes<recipe> expected = whole_tensor<recipe, In>(of, in);
  i64 wrong = 0;
  for (i64 first = 0; first <= count; first += 11)
    for (i64 second = first; second <= count; ++second)
      wrong +=
          by_shards<recipe, In>(of, in, {{0, first}, {first, second - first}, {second, count - second}}) == expected
              ? 0
              : 1;
  i64 bad = 0;
  while (bad < count && f32::is_finite(bits_of(to_float(in[static_cast<std::size_t>(bad)])))) ++bad;
  if (bad == count) bad = -1;
  for (i64 only = 0; only <= count; ++only) {  // two ranks, every offset
    i64 found = -2;
    wrong += by_shards<recipe, In>(of, in, {{0, only}, {only, count - only}}, &found) == expected ? 0 : 1;
    CHECK(found == bad);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("shards cut at every offset give the bytes of the whole tensor, for every recipe") {
  unsigned seed = 0;
  presets::for_each([&]<class Preset>() { every_cut<Preset, float>(++seed, false); });
}

TEST_CASE("so they do for BF16 shards, and where NaN and Inf stand in them") {
  every_cut<presets::te_block, bf16>(1, true);
  every_cut<presets::te_block_pow2, bf16>(2, false);
  every_cut<presets::te_mxfp8, bf16>(3, true);
  every_cut<presets::nemo_block, bf16>(4, true);     // NaN poisons, edges are padded with the last element
  every_cut<presets::skyrl_block, float>(5, true);
  every_cut<presets::compressed_tensors_block, bf16>(6, false);
  every_cut<presets::te_mxfp8_columnwise, float>(7, true);
}

TEST_CASE_TEMPLATE("large tensors cut at random by many ranks, some of which own nothing", Preset, presets::te_block,
                   presets::te_block_pow2, presets::deepgemm_block_e8m0, presets::te_mxfp8, presets::sgl_kernel_block,
                   presets::nemo_block) {
  using recipe = typename Preset::recipe;
  std::mt19937 random(11);
  for (const matrix_extents of : {matrix_extents{1, 300, 416}, {3, 130, 160}, {1, 1, 32}, {0, 5, 32}, {2, 0, 64}}) {
    const i64 count = of.batch * of.rows * of.cols;
    const std::vector<float> in = hostile<float>(count, 5, false);
    const tensor_bytes<recipe> expected = whole_tensor<recipe, float>(of, in);
    for (const i64 ranks : {1, 2, 3, 8, 64, 200}) {
      std::vector<i64> cuts = {0, count};
      for (i64 i = 1; i < ranks; ++i) cuts.push_back(static_cast<i64>(random() % static_cast<u64>(count + 1)));
      std::sort(cuts.begin(), cuts.end());
      std::vector<flat_range> ranges;
      for (std::size_t i = 1; i < cuts.size(); ++i) ranges.push_back({cuts[i - 1], cuts[i] - cuts[i - 1]});
      CHECK(by_shards<recipe, float>(of, in, ranges) == expected);
    }
  }
}

TEST_CASE_TEMPLATE("tensor-parallel rectangles that cut blocks, with strides, give the whole tensor's bytes", Preset,
                   presets::te_block, presets::te_block_pow2, presets::te_mxfp8) {
  using recipe = typename Preset::recipe;
  constexpr matrix_extents of{1, 200, 288};
  const std::vector<float> in = hostile<float>(of.rows * of.cols, 9, false);
  const tensor_bytes<recipe> expected = whole_tensor<recipe, float>(of, in);
  const i64 rows = scale_rows<typename recipe::block>(of.rows), cols = scale_cols<typename recipe::block>(of.cols);
  for (const i64 tp : {2, 3, 5}) {
    for (const bool by_rows : {true, false}) {
      std::vector<slice> parts;
      const i64 extent = by_rows ? of.rows : of.cols;
      for (i64 rank = 0; rank < tp; ++rank) {
        const i64 from = extent * rank / tp, to = extent * (rank + 1) / tp;
        parts.push_back(by_rows ? slice{from, 0, to - from, of.cols} : slice{0, from, of.rows, to - from});
      }
      tensor_bytes<recipe> made(of);
      std::vector<u32> amaxes(made.scales.size());
      std::vector<float> operands(made.scales.size());
      const auto weights = dense(in.data(), of.rows, of.cols);
      const auto part_of = [&](auto view, const slice& part) {
        view.data += part.row * view.row_stride + part.col;
        view.rows = part.rows;
        view.cols = part.cols;
        return view;
      };
      for (const slice& part : parts)  // one process may hold several parts: the grid only rises
        partial_amax<recipe, float>(of, part, part_of(weights, part), dense(amaxes.data(), rows, cols));
      block_scales<recipe, float>(dense<const u32>(amaxes.data(), rows, cols), dense(made.scales.data(), rows, cols),
                                  dense(operands.data(), rows, cols));
      for (const slice& part : parts)
        partial_cast<recipe, float>(of, part, part_of(weights, part), dense<const float>(operands.data(), rows, cols),
                                    part_of(dense(made.codes.data(), of.rows, of.cols), part));
      CHECK(made == expected);
    }
  }
}

TEST_CASE("offsets beyond 2^31 and beyond 2^32 find their blocks") {
  using wide = recipe<e4m3, block<1 << 22, 1 << 18>, rules::te_fp32>;
  constexpr matrix_extents of{2, 3 << 20, 1 << 19};  // 3.3e12 elements, of which a rank holds seven
  constexpr i64 matrix = of.rows * of.cols;
  const float weights[7] = {1, -2, 3, -4, 5, -6, 448};
  for (const i64 row : {i64{0}, i64{1} << 13, (i64{1} << 20) + 5, (i64{3} << 20) - 2}) {
    for (const i64 b : {i64{0}, i64{1}}) {
      // Three weights in the end of a row, four in the beginning of the next.
      const flat_range range{b * matrix + row * of.cols + of.cols - 3, 7};
      std::vector<u32> amaxes(4);
      CHECK(partial_amax<wide, float>(of, range, weights, dense(amaxes.data(), 1, 2, 2)) == -1);
      std::vector<u32> expected(4);
      expected[static_cast<std::size_t>(b * 2 + 1)] = bits_of(3.0f);
      expected[static_cast<std::size_t>(b * 2)] = bits_of(448.0f);
      CHECK(amaxes == expected);
      const float operands[4] = {1, 2, 1, 2};
      u8 codes[7] = {};
      CHECK(partial_cast<wide, float>(of, range, weights, dense<const float>(operands, 1, 2, 2), codes) == 7);
      for (int i = 0; i < 7; ++i) CHECK(codes[i] == e4m3::encode(weights[i] * (i < 3 ? 2.0f : 1.0f)));
      float broken[7] = {1, 1, 1, 1, 1, float_of(f32::nan), 1};
      CHECK(partial_amax<wide, float>(of, range, broken, dense(amaxes.data(), 1, 2, 2)) == range.start + 5);
    }
  }
}

TEST_CASE("parts that lie outside the tensor are refused before anything is written") {
  using recipe = presets::te_block::recipe;
  constexpr matrix_extents of{1, 4, 8};
  const std::vector<float> in(64, 1.0f);
  u32 amax = 0;
  const auto amaxes = dense(&amax, 1, 1);
  const float operand = 1;
  u8 codes[64] = {};
  for (const flat_range range : {flat_range{-1, 4}, {0, 33}, {32, 1}, {0, -1}, {i64{1} << 62, i64{1} << 62}}) {
    CHECK_THROWS_AS((partial_amax<recipe, float>(of, range, in.data(), amaxes)), const precondition_error&);
    CHECK_THROWS_AS((partial_cast<recipe, float>(of, range, in.data(), dense(&operand, 1, 1), codes)),
                    const precondition_error&);
  }
  for (const slice part : {slice{0, 0, 5, 8}, {0, 1, 4, 8}, {-1, 0, 2, 2}, {0, 0, 4, -1}})
    CHECK_THROWS_AS((partial_amax<recipe, float>(of, part, dense(in.data(), part.rows, part.cols), amaxes)),
                    const precondition_error&);
  CHECK_THROWS_AS((partial_amax<recipe, float>({1, 200, 8}, {0, 1}, in.data(), amaxes)), const precondition_error&);
  CHECK_THROWS_AS((partial_amax<recipe, float>({i64{1} << 40, i64{1} << 20, 8}, {0, 1}, in.data(), amaxes)),
                  const precondition_error&);
  CHECK(amax == 0);
  CHECK(codes[0] == 0);
  CHECK(partial_amax<recipe, float>(of, flat_range{32, 0}, nullptr, amaxes) == -1);
  CHECK(partial_cast<recipe, float>(of, flat_range{7, 0}, nullptr, dense(&operand, 1, 1), nullptr) == 0);
}

TEST_CASE("te-sharded flushes to zero as Transformer Engine's sharded cast does, and te-block does not") {
  struct row {
    u32 amax;
    u32 direct_multiplier, direct_scale, sharded_multiplier, sharded_scale;
  };
  // Transformer Engine d0067d0: multi_tensor/compute_scale.cu against recipe_common.cuh, both in exact arithmetic.
  const row fp32[] = {{0x00000001, 0x7F7FFFFF, 0x00200000, 0x3F800000, 0x3F800000},
                      {0x00800000, 0x7F7FFFFF, 0x00200000, 0x7F7FFFFF, 0x00000000},
                      {0x04E00000, 0x7E800000, 0x00800000, 0x7E800000, 0x00800000},
                      {0x04DFFFFF, 0x7E800001, 0x007FFFFF, 0x7E800001, 0x00000000},
                      {0x3CA3D70A, 0x46AF0000, 0x383B3EE7, 0x46AF0000, 0x383B3EE7}};
  const row pow2[] = {{0x00000001, 0x7F000000, 0x00400000, 0x3F800000, 0x3F800000},
                      {0x007FFFFF, 0x7F000000, 0x00400000, 0x3F800000, 0x3F800000},
                      {0x04600000, 0x7F000000, 0x00400000, 0x7F000000, 0x00000000},
                      {0x04600001, 0x7E800000, 0x00800000, 0x7E800000, 0x00800000},
                      {0x3CA3D70A, 0x46800000, 0x38800000, 0x46800000, 0x38800000}};
  const auto check = []<class Preset>(const row& given, u32 multiplier, u32 scale) {
    using recipe = typename Preset::recipe;
    const float weight = float_of(given.amax);
    u32 amax = 0;
    float stored = 0, operand = 0;
    partial_amax<recipe, float>({1, 1, 1}, flat_range{0, 1}, &weight, dense(&amax, 1, 1));
    block_scales<recipe, float>(dense<const u32>(&amax, 1, 1), dense(&stored, 1, 1), dense(&operand, 1, 1));
    CHECK(bits_of(operand) == multiplier);
    CHECK(bits_of(stored) == scale);
  };
  for (const row& given : fp32) {
    check.operator()<presets::te_block>(given, given.direct_multiplier, given.direct_scale);
    check.operator()<presets::te_sharded>(given, given.sharded_multiplier, given.sharded_scale);
  }
  for (const row& given : pow2) {
    check.operator()<presets::te_block_pow2>(given, given.direct_multiplier, given.direct_scale);
    check.operator()<presets::te_sharded_pow2>(given, given.sharded_multiplier, given.sharded_scale);
  }
}

TEST_CASE("partial amax and cast work at compile time") {
  using recipe = recipe<e4m3, block<2, 2>, rules::te_fp32>;
  constexpr auto made = [] {
    constexpr matrix_extents of{1, 2, 2};
    const float weights[4] = {1, 2, 3, 4};
    u32 amax[1] = {};
    float scale[1] = {}, operand[1] = {};
    u8 codes[4] = {};
    partial_amax<recipe, float>(of, flat_range{0, 3}, weights, dense(amax, 1, 1));
    partial_amax<recipe, float>(of, flat_range{3, 1}, weights + 3, dense(amax, 1, 1));
    block_scales<recipe, float>(dense<const u32>(amax, 1, 1), dense(scale, 1, 1), dense(operand, 1, 1));
    partial_cast<recipe, float>(of, flat_range{0, 4}, weights, dense<const float>(operand, 1, 1), codes);
    return static_cast<int>(codes[3]);
  }();
  static_assert(made == 0x7E);
  CHECK(made == 0x7E);
}
