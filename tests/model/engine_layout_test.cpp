// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <fp8wire/model/engine_layout.hpp>

using namespace fp8wire;

namespace {

constexpr layout_use block_fp8{128, 128, dtype::f32, weight_role::plain};
constexpr layout_use mxfp8{1, 32, dtype::f8_e8m0, weight_role::plain};

constexpr layout_use w13(layout_use use) {
  use.role = weight_role::gate_up;
  return use;
}

template <class Scale> Scale scale_of(i64 number) {
  const int exponent = static_cast<int>(number * 37 % 40) - 20;
  if constexpr (std::is_same_v<Scale, e8m0>) return e8m0{static_cast<u8>(127 + exponent)};
  else return std::ldexp(1.0f, exponent);
}

template <class Scale> void round_trip(std::string_view name, const layout_use& use, i64 batch, i64 rows, i64 cols) {
  CAPTURE(name);
  CAPTURE(rows);
  CAPTURE(cols);
  const i64 grid_rows = use.block_rows == 0 ? 1 : ceil_div(rows, use.block_rows),
            grid_cols = use.block_cols == 0 ? 1 : ceil_div(cols, use.block_cols);
  std::vector<u8> codes;
  for (i64 i = 0; i < batch * rows * cols; ++i) codes.push_back(static_cast<u8>(i * 2654435761 >> 13));
  std::vector<Scale> scales;
  for (i64 i = 0; i < batch * grid_rows * grid_cols; ++i) scales.push_back(scale_of<Scale>(i));

  const auto shapes = shapes_in(name, use, "w", batch, rows, cols);
  REQUIRE(shapes.ok());
  i64 count = 1;
  for (const i64 extent : shapes->codes) count *= extent;
  CHECK(count == shapes->code_bytes);
  count = bit_width(shapes->scale) / 8;
  for (const i64 extent : shapes->scales) count *= extent;
  CHECK(count == shapes->scale_bytes);
  CHECK(shapes->codes[0] == batch);

  std::vector<u8> stored_codes(static_cast<std::size_t>(shapes->code_bytes), 0xAA);
  std::vector<std::byte> stored_scales(static_cast<std::size_t>(shapes->scale_bytes) + 1, std::byte{0xAA});
  const std::span<std::byte> unaligned = std::span(stored_scales).subspan(1);
  const error there =
      lay_out(name, use, "w", laid_out<row_major, const u8>{codes.data(), batch, rows, cols},
              laid_out<row_major, const Scale>{scales.data(), batch, grid_rows, grid_cols}, stored_codes, unaligned);
  CHECK(there.message() == error{}.message());
  std::vector<u8> codes_back(codes.size(), 0x55);
  std::vector<Scale> scales_back(scales.size());
  const error back =
      canonical_from(name, use, "w", std::span<const u8>(stored_codes), std::span<const std::byte>(unaligned),
                     laid_out<row_major, u8>{codes_back.data(), batch, rows, cols},
                     laid_out<row_major, Scale>{scales_back.data(), batch, grid_rows, grid_cols});
  CHECK(!back);
  CHECK(codes_back == codes);
  CHECK(scales_back == scales);
}

}  // namespace

TEST_CASE("every named layout there and back") {
  for (const i64 batch : {1, 3}) {
    for (const std::string_view name : {"canonical", "cutlass-mn", "deepgemm-fp32", "deepgemm-ue8m0", "te-rowwise",
                                        "te-columnwise", "trtllm-fp8-block", "up-first"}) {
      round_trip<float>(name, block_fp8, batch, 256, 384);
      round_trip<float>(name, w13(block_fp8), batch, 512, 128);
      if (name != "trtllm-fp8-block") round_trip<float>(name, block_fp8, batch, 130, 257);
    }
    for (const std::string_view name : {"canonical", "cublas-128x4", "cublas-8x4", "deepgemm-ue8m0", "te-rowwise",
                                        "trtllm-mxfp8", "trtllm-mxfp8-moe", "sglang-mxfp8-moe"}) {
      round_trip<e8m0>(name, mxfp8, batch, 256, 256);
      round_trip<e8m0>(name, w13(mxfp8), batch, 384, 256);
      if (name.find("-mxfp8") == name.npos) round_trip<e8m0>(name, mxfp8, batch, 100, 96);
    }
    for (const std::string_view name : {"canonical", "sglang-fp8-moe"}) {
      round_trip<float>(name, {0, 0, dtype::f32}, batch, 96, 40);
      round_trip<float>(name, w13({0, 0, dtype::f32}), batch, 64, 72);
    }
    round_trip<float>("te-rowwise", {1, 128, dtype::f32}, batch, 37, 300);
    round_trip<float>("te-columnwise", {128, 1, dtype::f32}, batch, 300, 37);
    round_trip<e8m0>("te-columnwise", {32, 1, dtype::f8_e8m0}, batch, 96, 37);
    round_trip<e8m0>("deepgemm-ue8m0", {128, 128, dtype::f8_e8m0}, batch, 300, 640);
  }
}

TEST_CASE("shapes and dtypes as the engines allocate them") {
  const auto shapes = [](std::string_view name, const layout_use& use, i64 batch, i64 rows, i64 cols) {
    return *shapes_in(name, use, "w", batch, rows, cols);
  };
  const engine_shapes packed = shapes("deepgemm-ue8m0", block_fp8, 1, 130, 640);
  CHECK(packed.scale == dtype::int32);
  CHECK(packed.scales == std::vector<i64>{1, 2, 132});
  CHECK(packed.scale_bytes == 1056);
  CHECK(shapes("deepgemm-ue8m0", mxfp8, 1, 130, 640).scales == std::vector<i64>{1, 5, 132});
  CHECK(shapes("cublas-128x4", mxfp8, 2, 200, 160).scales == std::vector<i64>{2, 2048});
  CHECK(shapes("cublas-128x4", mxfp8, 2, 200, 160).scale == dtype::f8_e8m0);
  CHECK(shapes("trtllm-fp8-block", w13(block_fp8), 4, 512, 256).codes == std::vector<i64>{4, 2, 512, 128});
  CHECK(shapes("trtllm-fp8-block", w13(block_fp8), 4, 512, 256).scales == std::vector<i64>{4, 4, 2});
  CHECK(shapes("sglang-mxfp8-moe", w13(mxfp8), 4, 384, 256).codes == std::vector<i64>{4, 384, 256});
  CHECK(shapes("sglang-mxfp8-moe", w13(mxfp8), 4, 384, 256).scales == std::vector<i64>{4, 3072});
  CHECK(shapes("sglang-fp8-moe", w13({0, 0, dtype::f32}), 4, 384, 256).scales == std::vector<i64>{4, 1, 1});
  CHECK(shapes("sglang-fp8-moe", {0, 0, dtype::f32}, 4, 384, 256).scale == dtype::f32);
  CHECK(shapes("te-rowwise", block_fp8, 1, 300, 640).scales == std::vector<i64>{1, 3, 8});
  CHECK(shapes("te-rowwise", block_fp8, 1, 300, 640).scale == dtype::f32);
}

TEST_CASE("what cannot be laid out is refused by name, and nothing is written") {
  const auto said = [](std::string_view name, const layout_use& use, i64 rows, i64 cols) {
    const auto shapes = shapes_in(name, use, "layers.0.w", 1, rows, cols);
    return shapes.ok() ? std::string() : shapes.error().message();
  };
  CHECK(said("swizzled", block_fp8, 128, 128) == "layers.0.w: layout swizzled is unknown");
  CHECK(said("cublas-128x4", block_fp8, 128, 128) ==
        "layers.0.w: layout cublas-128x4 takes no weight with 128x128 blocks and F32 scales");
  CHECK(said("trtllm-mxfp8-moe", mxfp8, 128, 192) ==
        "C5 layers.0.w: layout trtllm-mxfp8-moe: cols are not a multiple of what the kernel needs: got 192, expected "
        "256");

  std::vector<u8> codes(128 * 256, 1), codes_out(codes.size(), 0xAA);
  std::vector<float> scales = {1.0f, 3.0f};
  std::vector<std::byte> scales_out(4 * 128, std::byte{0xAA});
  const auto lay = [&](std::size_t bytes) {
    return lay_out("deepgemm-ue8m0", block_fp8, "w", laid_out<row_major, const u8>{codes.data(), 1, 128, 256},
                   laid_out<row_major, const float>{scales.data(), 1, 1, 2}, codes_out,
                   std::span(scales_out).first(bytes))
        .message();
  };
  CHECK(lay(512) == "C9 w: the scale of block (0, 0, 1) is no power of two that E8M0 holds: bits 0x40400000");
  CHECK(lay(511) == "C5 w: scales have other bytes than their layout: got 511, expected 512");
  CHECK(codes_out == std::vector<u8>(codes.size(), 0xAA));
  CHECK(scales_out == std::vector<std::byte>(512, std::byte{0xAA}));
  scales[1] = 4.0f;
  CHECK(lay(512) == error{}.message());

  // A packed buffer whose rows disagree inside a block did not come from block scales.
  scales_out[4 * 77 + 1] = std::byte{100};
  std::vector<u8> codes_back(codes.size(), 0x55);
  std::vector<float> scales_back(2, 9.0f);
  const error uneven = canonical_from(
      "deepgemm-ue8m0", block_fp8, "w", std::span<const u8>(codes_out), std::span<const std::byte>(scales_out),
      laid_out<row_major, u8>{codes_back.data(), 1, 128, 256}, laid_out<row_major, float>{scales_back.data(), 1, 1, 2});
  CHECK(uneven.message() == "C9 w: the scale of block (0, 0, 1) differs between its rows; row: got 77, expected 0");
  CHECK(codes_back == std::vector<u8>(codes.size(), 0x55));
  CHECK(scales_back == std::vector<float>{9.0f, 9.0f});
}
