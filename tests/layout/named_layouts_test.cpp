// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fp8wire/layout/named_layouts.hpp>

using namespace fp8wire;

namespace {

constexpr layout_use block_fp8{128, 128, dtype::f32, weight_role::plain};
constexpr layout_use mxfp8{1, 32, dtype::f8_e8m0, weight_role::plain};
constexpr layout_use tensor_fp8{0, 0, dtype::f32, weight_role::plain};

constexpr layout_use with_role(layout_use use, weight_role role) {
  use.role = role;
  return use;
}

// "codes;scales", empty where the engine reads no such weight.
std::string pair_of(std::string_view name, const layout_use& use) {
  std::string id;
  layouts::visit(name, use, [&]<class Entry>() { id = Entry::pair::id; });
  return id;
}

}  // namespace

TEST_CASE("the names that programs take") {
  std::vector<std::string_view> names;
  layouts::for_each([&]<class Entry>() {
    if (names.empty() || names.back() != Entry::name) names.push_back(Entry::name);
  });
  CHECK(names == std::vector<std::string_view>{"canonical", "cublas-128x4", "cublas-8x4", "cutlass-mn", "deepgemm-fp32",
                                               "deepgemm-ue8m0", "te-rowwise", "te-columnwise", "trtllm-mxfp8",
                                               "trtllm-mxfp8-moe", "sglang-mxfp8-moe", "sglang-fp8-moe",
                                               "trtllm-fp8-block", "up-first"});
  for (const std::string_view name : names) CHECK(layouts::is_known(name));
  CHECK(!layouts::is_known("cublas"));
  CHECK(!layouts::is_known(""));
}

TEST_CASE("a name and a weight give one pair") {
  constexpr weight_role w13 = weight_role::gate_up;
  CHECK(pair_of("canonical", block_fp8) == "row-major;row-major");
  CHECK(pair_of("canonical", mxfp8) == "row-major;row-major");
  CHECK(pair_of("cublas-128x4", mxfp8) == "row-major;swizzle-128x4");
  CHECK(pair_of("cublas-128x4", block_fp8) == "");
  CHECK(pair_of("cublas-8x4", mxfp8) == "row-major;swizzle-8x4");
  CHECK(pair_of("cutlass-mn", block_fp8) == "row-major;col-major");
  CHECK(pair_of("deepgemm-fp32", block_fp8) == "row-major;col-major-pad-4x1");
  CHECK(pair_of("deepgemm-fp32", mxfp8) == "");
  CHECK(pair_of("deepgemm-ue8m0", block_fp8) == "row-major;packed-ue8m0");
  CHECK(pair_of("deepgemm-ue8m0", mxfp8) == "row-major;packed-ue8m0");
  CHECK(pair_of("te-rowwise", block_fp8) == "row-major;row-major-pad-1x4-fill-3F800000");
  CHECK(pair_of("te-rowwise", {1, 128, dtype::f32}) == "row-major;col-major-pad-4x1-fill-3F800000");
  CHECK(pair_of("te-rowwise", mxfp8) == "row-major;row-major-pad-128x4");
  CHECK(pair_of("te-columnwise", block_fp8) == "col-major;col-major-pad-4x1-fill-3F800000");
  CHECK(pair_of("te-columnwise", {128, 1, dtype::f32}) == "col-major;row-major-pad-1x4-fill-3F800000");
  CHECK(pair_of("te-columnwise", {32, 1, dtype::f8_e8m0}) == "row-major;row-major-pad-4x128");
  CHECK(pair_of("trtllm-mxfp8", mxfp8) == "shuffle-rows-32>row-major;shuffle-rows-32>swizzle-128x4");
  CHECK(pair_of("trtllm-mxfp8-moe", mxfp8) == pair_of("trtllm-mxfp8", mxfp8));
  CHECK(pair_of("trtllm-mxfp8-moe", with_role(mxfp8, w13)) ==
        "swap-halves>interleave-halves>shuffle-rows-32>row-major;swap-halves>interleave-halves>shuffle-rows-32>swizzle-"
        "128x4");
  CHECK(pair_of("sglang-mxfp8-moe", mxfp8) == pair_of("trtllm-mxfp8", mxfp8));
  CHECK(pair_of("sglang-mxfp8-moe", with_role(mxfp8, w13)) ==
        "interleave-halves>shuffle-rows-32>row-major;interleave-halves>shuffle-rows-32>swizzle-128x4");
  CHECK(pair_of("sglang-mxfp8-moe", block_fp8) == "");
  CHECK(pair_of("sglang-fp8-moe", tensor_fp8) == "shuffle-rows-32>row-major;row-major");
  CHECK(pair_of("sglang-fp8-moe", with_role(tensor_fp8, w13)) ==
        "interleave-halves>shuffle-rows-32>row-major;row-major");
  CHECK(pair_of("sglang-fp8-moe", {1, 0, dtype::f32}) == "");
  CHECK(pair_of("trtllm-fp8-block", block_fp8) == "shuffle-rows-16>block-major-k-128;row-major");
  CHECK(pair_of("trtllm-fp8-block", with_role(block_fp8, w13)) ==
        "swap-halves>shuffle-rows-16>block-major-k-128;swap-halves>row-major");
  CHECK(pair_of("up-first", block_fp8) == "row-major;row-major");
  CHECK(pair_of("up-first", with_role(block_fp8, w13)) == "swap-halves>row-major;swap-halves>row-major");
  CHECK(pair_of("nobody's", block_fp8) == "");
}

TEST_CASE("no weight has two pairs under one name") {
  for (const i64 block_rows : {0, 1, 32, 128}) {
    for (const i64 block_cols : {0, 1, 32, 128}) {
      for (const dtype scale : {dtype::f32, dtype::bf16, dtype::f8_e8m0}) {
        for (const weight_role role : {weight_role::plain, weight_role::gate_up}) {
          std::vector<std::string_view> names;
          layouts::for_each([&]<class Entry>() {
            if (Entry::reads({block_rows, block_cols, scale, role})) names.push_back(Entry::name);
          });
          std::vector<std::string_view> unique = names;
          std::sort(unique.begin(), unique.end());
          CHECK(std::adjacent_find(unique.begin(), unique.end()) == unique.end());
        }
      }
    }
  }
}

TEST_CASE("scales are stored under the dtype that the engine reads") {
  layouts::visit("deepgemm-ue8m0", block_fp8, []<class Entry>() {
    CHECK(Entry::scale_per_row);
    CHECK(Entry::scale(block_fp8) == dtype::f8_e8m0);
    CHECK(Entry::stored_scale(dtype::f8_e8m0) == dtype::int32);
  });
  layouts::visit("cublas-128x4", mxfp8, []<class Entry>() {
    CHECK(!Entry::scale_per_row);
    CHECK(Entry::scale(mxfp8) == dtype::f8_e8m0);
    CHECK(Entry::stored_scale(dtype::uint8) == dtype::uint8);
  });
}

TEST_CASE("shapes that a kernel cannot take are refused with both numbers") {
  struct row {
    std::string_view name;
    layout_use use;
    i64 rows, cols, got, expected;  // got 0: taken
  };
  constexpr weight_role w13 = weight_role::gate_up;
  const row rows[] = {{"canonical", block_fp8, 7, 9, 0, 0},
                      {"cublas-128x4", mxfp8, 7, 96, 0, 0},
                      {"trtllm-mxfp8", mxfp8, 96, 256, 0, 0},
                      {"trtllm-mxfp8", mxfp8, 80, 256, 80, 96},
                      {"trtllm-mxfp8", mxfp8, 96, 384, 384, 512},
                      {"trtllm-mxfp8-moe", with_role(mxfp8, w13), 384, 256, 0, 0},    // 2I = 384
                      {"trtllm-mxfp8-moe", with_role(mxfp8, w13), 320, 256, 320, 384},
                      {"trtllm-mxfp8-moe", mxfp8, 256, 192, 192, 256},                // w2: I = 192
                      {"sglang-mxfp8-moe", with_role(mxfp8, w13), 384, 256, 0, 0},
                      {"sglang-mxfp8-moe", with_role(mxfp8, w13), 320, 256, 320, 384},
                      {"sglang-mxfp8-moe", mxfp8, 256, 192, 192, 256},
                      {"sglang-fp8-moe", with_role(tensor_fp8, w13), 96, 40, 0, 0},
                      {"sglang-fp8-moe", with_role(tensor_fp8, w13), 80, 40, 80, 96},
                      {"sglang-fp8-moe", tensor_fp8, 80, 40, 80, 96},
                      {"trtllm-fp8-block", with_role(block_fp8, w13), 512, 256, 0, 0},
                      {"trtllm-fp8-block", with_role(block_fp8, w13), 384, 256, 384, 512},
                      {"trtllm-fp8-block", block_fp8, 256, 192, 192, 256},
                      {"up-first", with_role(block_fp8, w13), 384, 250, 384, 512},
                      {"up-first", with_role(block_fp8, w13), 512, 250, 0, 0}};
  for (const row& at : rows) {
    CAPTURE(at.name);
    CAPTURE(at.rows);
    CAPTURE(at.cols);
    shape_check answer{"not visited", -1, -1};
    layouts::visit(at.name, at.use, [&]<class Entry>() { answer = Entry::accepts(2, at.rows, at.cols); });
    CHECK(answer.got == at.got);
    CHECK(answer.expected == at.expected);
    CHECK(answer.ok() == (at.got == 0));
  }
}
