// SPDX-License-Identifier: Apache-2.0
// Every vector body against the definition, byte for byte: shapes, blocks, elements, numerics and processor modes.
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>

#include "host_tensors.hpp"

using namespace fp8wire;
using namespace host_tensors;

TEST_CASE("shapes from one element to more than a panel of columns") {
  using block = presets::te_block::recipe;
  using quotient = presets::vllm_block::recipe;
  using mx = presets::te_mxfp8::recipe;
  all_patterns<block, bf16>(
      {{1, 1, 1}, {1, 1, 31}, {3, 2, 33}, {1, 127, 129}, {2, 129, 128}, {1, 3, 8400}, {1, 300, 1024}});
  all_patterns<block, float>({{1, 1, 1}, {2, 5, 161}, {1, 2, 8300}});
  all_patterns<quotient, bf16>({{1, 7, 4097}, {1, 256, 640, 1, 1, 1, 1}});
  all_patterns<mx, bf16>({{1, 1, 32}, {2, 3, 64}, {1, 5, 4096}, {1, 2, 2336}, {3, 7, 288, 7, 9, 1, 1}});
  all_patterns<mx, float>({{1, 1, 32}, {1, 3, 2336}});
}

TEST_CASE("blocks of every kind") {
  using rule = rules::te_fp32;
  all_patterns<recipe<e4m3, block<1, 128>, rule>, bf16>({{1, 3, 1000}, {1, 2, 16512}});
  all_patterns<recipe<e4m3, block<1, 128>, rule>, float>({{1, 3, 1000}});
  all_patterns<recipe<e4m3, block<1, whole>, rule>, bf16>({{2, 3, 1000}, {1, 2, 9000}});
  all_patterns<recipe<e4m3, block<whole, whole>, rule>, bf16>({{2, 9, 500}, {1, 3, 9000}});
  all_patterns<recipe<e4m3, block<64, 96>, rule>, bf16>({{1, 130, 500}});
  all_patterns<recipe<e4m3, block<3, 5>, rule>, bf16>({{1, 10, 33}});
  all_patterns<recipe<e4m3, block<128, 1>, rule>, bf16>({{1, 130, 33}});
}

TEST_CASE("elements other than E4M3, and the numerics that change a cast") {
  all_patterns<recipe<e5m2, block<128, 128>, rules::te_fp32>, bf16>({{1, 30, 300}});
  all_patterns<recipe<e5m2, block<1, 32>, rules::te_mx>, float>({{1, 30, 320}});
  all_patterns<recipe<e4m3, block<128, 128>, rules::quotient, numerics{.keep_negative_zero = false}>, bf16>(
      {{1, 40, 300}});
  all_patterns<recipe<e4m3, block<1, 32>, rules::te_mx, numerics{.keep_negative_zero = false}>, bf16>({{1, 9, 320}});
  all_patterns<recipe<e4m3, block<128, 128>, rules::quotient, numerics{.f32_through_bf16 = true}>, float>(
      {{1, 40, 300}});
  all_patterns<recipe<e4m3, block<128, 128>, rules::quotient, numerics{.f32_through_bf16 = true}>, fp16>(
      {{1, 40, 300}});
  all_patterns<recipe<e4m3, block<128, 128>, rules::quotient, numerics{.edge = edge_pad::last_element}>, bf16>(
      {{1, 140, 300}});
}

TEST_CASE("every mantissa of the amax and of the elements") {
  // One block per amax mantissa; its elements run through all mantissas of the octaves below.
  using recipe = presets::vllm_block::recipe;
  const auto check = []<class Recipe>() {
    std::vector<bf16> in(128 * 128 * 128);
    for (u32 amax = 0; amax < 128; ++amax)
      for (u32 i = 0; i < 128 * 128; ++i) {
        const u32 magnitude = (126u << 7 | amax) - i % (18 * 128);
        in[(i / 128) * 128 * 128 + amax * 128 + i % 128] =
            bf16{static_cast<u16>(magnitude | (i % 3 == 0 ? 0x8000u : 0u))};
      }
    std::vector<u8> expected(in.size()), got(in.size());
    std::vector<stored_t<Recipe>> expected_scales(128), scales(128);
    const auto view = dense<const bf16>(in.data(), 128, 128 * 128);
    reference::quantize_block_row<Recipe, bf16>(view, 0, dense(expected.data(), 128, 128 * 128),
                                                dense(expected_scales.data(), 1, 128), Recipe::num.amax_floor);
    for (const isa body : bodies()) {
      quantize<Recipe, bf16>(view, {dense(got.data(), 128, 128 * 128), dense(scales.data(), 1, 128)},
                             Recipe::num.amax_floor, serial{}, body);
      CHECK(same_bytes(got, expected));
      CHECK(same_bytes(scales, expected_scales));
    }
  };
  check.template operator()<recipe>();
  check.template operator()<presets::te_block::recipe>();
}

TEST_CASE("columns that are not neighbours go the slow way and come out the same") {
  using recipe = presets::te_block::recipe;
  const tensor<recipe, bf16> given({1, 40, 300}, pattern::gaussian, 3, 0);
  const auto expected = given.by_definition();
  std::vector<bf16> spread(given.elements.size() * 3);
  for (std::size_t i = 0; i < given.elements.size(); ++i) spread[3 * i] = given.elements[i];
  matrix_view<const bf16> view = {spread.data(), 40, 300, 900, 1, 0, 3};
  for (const isa body : bodies()) {
    const auto got =
        given.run([&](const pair_view<recipe>& pair) { return quantize<recipe, bf16>(view, pair, 0, serial{}, body); });
    CHECK(same_bytes(got.codes, expected.codes));
  }
}

namespace {

template <class Recipe, class In> void compare_streamed(i64 rows, i64 cols) {  // above the size that is streamed
  const tensor<Recipe, In> given({1, rows, cols}, pattern::gaussian, 5, 0);
  const auto expected = given.by_definition();
  const i64 count = rows * cols, down = scale_rows<typename Recipe::block>(rows);
  std::vector<u8> room(static_cast<std::size_t>(count) + 64),
      changed(static_cast<std::size_t>(rows * bitmap_cols(cols)));
  u8* const aligned = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64);
  std::vector<u8> before = expected.codes;
  for (i64 i = 0; i < count; i += 97) ++before[static_cast<std::size_t>(i)];
  std::vector<stored_t<Recipe>> scales(expected.scales.size());
  const pair_view<Recipe> out = {dense(aligned, rows, cols),
                                 dense(scales.data(), down, static_cast<i64>(scales.size()) / down)};
  for (const isa body : bodies()) {
    std::memset(room.data(), 0, room.size());
    quantize<Recipe, In>(given.view(), out, 0, serial{}, body);
    CHECK(std::memcmp(aligned, expected.codes.data(), static_cast<std::size_t>(count)) == 0);
    CHECK(same_bytes(scales, expected.scales));
    std::memset(room.data(), 0, room.size());
    quantize_delta<Recipe, In>(given.view(), dense<const u8>(before.data(), rows, cols), out,
                               dense(changed.data(), rows, bitmap_cols(cols)), 0, serial{}, body);
    CHECK(std::memcmp(aligned, expected.codes.data(), static_cast<std::size_t>(count)) == 0);
    i64 wrong = 0;
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col) {
        const u8 bits = changed[static_cast<std::size_t>(row * bitmap_cols(cols) + col / 8)];
        wrong += (bits >> (col % 8) & 1) != ((row * cols + col) % 97 == 0 ? 1 : 0) ? 1 : 0;
      }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("bands in panels of any width have the same bytes") {  // a processor's caches decide which are used
  const auto check = []<class Recipe, class In>(shape size, pattern kind) {
    const tensor<Recipe, In> given(size, kind, 17, 0);
    const auto expected = given.by_definition();
    for (const i64 bytes : {i64{1}, i64{3} * 128 * 128 * 2, i64{1} << 19, i64{1} << 40})
      for (const isa body : bodies()) {
        const auto got = given.run([&](const pair_view<Recipe>& pair) {
          detail::host_job<Recipe, In> job{given.view(), pair.codes, pair.scales, 0};
          job.panel_bytes = bytes;
          serial one;
          const bool bad = detail::FP8WIRE_CG::quantize_on_host(job, one, body);
          return status{bad ? detail::first_nonfinite<In>(given.view()) : -1};
        });
        CAPTURE(bytes);
        CHECK(same_bytes(got.codes, expected.codes));
        CHECK(same_bytes(got.scales, expected.scales));
        CHECK(got.answer.first_nonfinite == expected.answer.first_nonfinite);
      }
  };
  for (const pattern kind : {pattern::gaussian, pattern::wide, pattern::hostile}) {
    check.operator()<presets::te_block::recipe, bf16>({2, 300, 1000, 0, 0, 0, 0}, kind);
    check.operator()<presets::vllm_block::recipe, float>({1, 260, 900, 7, 5, 1, 3}, kind);
    check.operator()<recipe<e4m3, block<64, 96>, rules::te_fp32>, bf16>({1, 130, 500, 0, 0, 0, 0}, kind);
  }
}

TEST_CASE("output that bypasses the caches has the same bytes") {
  compare_streamed<presets::te_block::recipe, bf16>(520, 2176);
  compare_streamed<presets::te_block::recipe, float>(520, 2176);
  compare_streamed<presets::te_mxfp8::recipe, bf16>(520, 2176);
  compare_streamed<presets::te_mxfp8::recipe, float>(520, 2176);
  compare_streamed<presets::te_mxfp8::recipe, fp16>(520, 2176);
  compare_streamed<recipe<e4m3, block<1, 96>, rules::te_fp32>, bf16>(520, 2208);
  compare_streamed<recipe<e4m3, block<128, 160>, rules::te_fp32>, bf16>(520, 2240);
  compare_streamed<recipe<e4m3, block<64, 96>, rules::te_fp32>, bf16>(520, 2240);
}

#if defined(__x86_64__)
TEST_CASE("a process that flushes subnormals and rounds upwards changes no byte") {
  using recipe = presets::te_block::recipe;
  for (const pattern kind : {pattern::gaussian, pattern::small_blocks, pattern::subnormal}) {
    const tensor<recipe, float> given({1, 64, 300}, kind, 11, 0);
    const auto expected = given.by_definition();
    const u32 before = __builtin_ia32_stmxcsr();
    for (const isa body : bodies()) {
      if (body == isa::scalar) continue;
      __builtin_ia32_ldmxcsr(0x1F80u | 0x8040u);  // FTZ and DAZ
      const auto got = given.by(body);
      const u32 after = __builtin_ia32_stmxcsr();
      __builtin_ia32_ldmxcsr(before);
      CHECK((after & 0xFFC0u) == (0x1F80u | 0x8040u));
      CHECK(same_bytes(got.codes, expected.codes));
      CHECK(same_bytes(got.scales, expected.scales));
    }
  }
}
#endif

TEST_CASE("FP32 and FP16 weights") {
  all_patterns<presets::vllm_block::recipe, float>({{1, 129, 200}, {1, 16, 256, 3, 5, 1, 3}});
  all_patterns<presets::vllm_block::recipe, fp16>({{1, 20, 288}});
  all_patterns<presets::te_block::recipe, fp16>({{1, 20, 288}, {2, 130, 133}});
  all_patterns<presets::te_mxfp8::recipe, fp16>({{1, 20, 288}});
}

TEST_CASE("every FP16 element beside amaxes of every exponent") {
  const auto check = []<class Recipe>() {
    constexpr i64 cols = i64{1} << 16, rows = 31;
    tensor<Recipe, fp16> given({1, rows, cols}, pattern::zeros, 1, 0);
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col) {
        const i64 amax = row << 10 | (row * 331 & 0x3FF) | 1;
        if ((col & 0x7FFF) <= amax)
          given.elements[static_cast<std::size_t>(row * cols + col)] = fp16{static_cast<u16>(col)};
      }
    const auto expected = given.by_definition();
    for (const isa body : bodies()) {
      const auto got = given.by(body);
      CAPTURE(static_cast<int>(body));
      CHECK(same_bytes(got.codes, expected.codes));
      CHECK(same_bytes(got.scales, expected.scales));
    }
  };
  check.operator()<recipe<e4m3, block<1, whole>, rules::te_fp32>>();
  check.operator()<recipe<e4m3, block<1, whole>, rules::quotient, numerics{.keep_negative_zero = false}>>();
  check.operator()<recipe<e5m2, block<1, whole>, rules::te_fp32>>();
}
