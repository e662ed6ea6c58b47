// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/quantize_into.hpp>

namespace fw = fp8wire;
using fw::i64;
using fw::u8;

namespace {

using block_recipe = fw::presets::vllm_block::recipe;
using mx_recipe = fw::presets::te_mxfp8::recipe;
using tensor_recipe = fw::recipe<fw::e4m3, fw::block<fw::whole, fw::whole>, block_recipe::rule>;

constexpr int poison = 0xA5;

template <class Recipe, class Layout> struct made {
  std::vector<u8> codes;
  std::vector<fw::laid_scale_t<Recipe, Layout>> scales;
  fw::laid_status seen;

  made(const std::vector<fw::bf16>& in, i64 batch, i64 rows, i64 cols) {
    auto out = fw::laid_pair<Recipe, Layout>::of(nullptr, nullptr, batch, rows, cols);
    codes.assign(static_cast<std::size_t>(out.codes.size()), u8{poison});
    scales.resize(static_cast<std::size_t>(out.scales.size()));
    if (!scales.empty()) std::memset(static_cast<void*>(scales.data()), poison, scales.size() * sizeof(scales[0]));
    out.codes.data = codes.data();
    out.scales.data = scales.data();
    std::vector<std::byte> scratch(static_cast<std::size_t>(fw::quantize_scratch_bytes<Recipe, Layout>(rows, cols)));
    seen = fw::quantize_into<Recipe, Layout>(fw::dense(in.data(), rows, cols, batch), out, scratch);
    const fw::mismatch wrong = fw::verify_into<Recipe, Layout>(fw::dense(in.data(), rows, cols, batch), out);
    CAPTURE(wrong.in_scale);
    CAPTURE(wrong.batch);
    CAPTURE(wrong.row);
    CAPTURE(wrong.col);
    CHECK(!wrong.found);
  }
};

std::vector<fw::bf16> weights(i64 count, unsigned seed) {
  std::vector<fw::bf16> values(static_cast<std::size_t>(count));
  unsigned state = seed * 2654435761u + 1;
  for (fw::bf16& one : values) {
    state = state * 1664525u + 1013904223u;
    one = fw::to_bf16(static_cast<float>(static_cast<int>(state >> 16) - 32768) * 0x1p-20f);
  }
  return values;
}

template <class Recipe, class Layout> void check(i64 batch, i64 rows, i64 cols) {
  CAPTURE(rows);
  CAPTURE(cols);
  const std::vector<fw::bf16> in = weights(batch * rows * cols, static_cast<unsigned>(rows + cols));
  const made<Recipe, Layout> all(in, batch, rows, cols);
  CHECK(all.seen.finite());
  // One expert at a time gives the same bytes, behind each other.
  for (i64 b = 0; b < batch; ++b) {
    const auto first = in.begin() + b * rows * cols;
    const made<Recipe, Layout> one(std::vector<fw::bf16>(first, first + rows * cols), 1, rows, cols);
    CHECK(std::equal(one.codes.begin(), one.codes.end(), all.codes.begin() + b * static_cast<i64>(one.codes.size())));
    CHECK(
        std::equal(one.scales.begin(), one.scales.end(), all.scales.begin() + b * static_cast<i64>(one.scales.size())));
  }
}

template <class Recipe, class... Layouts> void check_all(i64 batch, i64 rows, i64 cols) {
  (check<Recipe, Layouts>(batch, rows, cols), ...);
}

template <class Codes, class Scales> using pair = fw::pair_layout<Codes, Scales>;

}  // namespace

TEST_CASE("codes and scales in an engine's layout are the canonical ones moved, padding written, expert by expert") {
  using namespace fp8wire;
  check_all<mx_recipe, canonical_layout, pair<row_major, swizzle_128x4>, pair<row_major, swizzle_8x4>,
            pair<row_major, packed_ue8m0>, pair<row_major, te_mxfp8_rowwise>, pair<transposed, transposed>,
            pair<block_major_k<128>, row_major>>(2, 150, 160);
  check_all<mx_recipe, pair<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales>,
            pair<trtllm_mxfp8_codes, trtllm_mxfp8_scales>>(3, 384, 256);
  check_all<block_recipe, pair<trtllm_fp8_block_w13_codes, up_first>, pair<transposed, te_block_columnwise>,
            pair<row_major, fp8wire::deepgemm_fp32>, pair<row_major, te_block_rowwise>>(2, 512, 384);
  check_all<block_recipe, pair<row_major, te_block_rowwise>, pair<transposed, transposed>,
            pair<mapped_rows<row_major, pad_rows<128>>, row_major>>(1, 130, 70);
  check_all<tensor_recipe, pair<transposed, row_major>, pair<block_major_k<128>, row_major>>(2, 140, 130);
  check_all<mx_recipe, pair<trtllm_mxfp8_codes, trtllm_mxfp8_scales>, pair<transposed, swizzle_128x4>>(0, 64, 64);
  check_all<mx_recipe, pair<transposed, swizzle_128x4>>(1, 0, 64);
  // More panels than one.
  check_all<mx_recipe, pair<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales>, pair<transposed, packed_ue8m0>>(1, 512,
                                                                                                              1024);
  check_all<block_recipe, pair<trtllm_fp8_block_w13_codes, up_first>>(1, 512, 1024);
  // More than one side by side, the last of them ragged.
  check_all<mx_recipe, pair<transposed, packed_ue8m0>, pair<block_major_k<128>, swizzle_128x4>>(1, 130, 3200);
  check_all<block_recipe, pair<transposed, te_block_columnwise>>(1, 200, 3300);
}

TEST_CASE("packed scales are powers of two repeated for every row; another scale is refused by its block") {
  using layout = pair<fw::row_major, fw::packed_ue8m0>;
  const std::vector<fw::bf16> in = weights(200 * 300, 3);
  using pow2 = fw::recipe<fw::e4m3, fw::block<128, 128>, fw::presets::te_block_pow2::recipe::rule>;
  CHECK(made<pow2, layout>(in, 1, 200, 300).seen.refused_scale.batch == -1);
  CHECK(made<block_recipe, layout>(in, 1, 200, 300).seen.refused_scale == fw::index3{0, 0, 0});
}

TEST_CASE("the first NaN or Inf is found in any panel, and too little scratch is refused") {
  using layout = pair<fw::transposed, fw::swizzle_128x4>;
  std::vector<fw::bf16> in = weights(2 * 512 * 1024, 4);
  const std::size_t at = (512 + 300) * 1024 + 77;
  in[at].bits = 0x7F80;
  in[at + 5000].bits = 0x7FC0;
  CHECK(made<mx_recipe, layout>(in, 2, 512, 1024).seen.first_nonfinite == static_cast<i64>(at));
  // Of two in panels side by side, the one in the earlier row.
  in.resize(64 * 3200);
  in[3200 + 100].bits = in[3100].bits = 0x7F80;
  CHECK(made<mx_recipe, layout>(in, 1, 64, 3200).seen.first_nonfinite == 3100);
  std::vector<u8> codes(64 * 64);
  std::vector<fw::e8m0> scales(512);
  std::vector<std::byte> scratch(10);
  CHECK_THROWS_AS((fw::quantize_into<mx_recipe, layout>(
                      fw::dense<const fw::bf16>(in.data(), 64, 64),
                      fw::laid_pair<mx_recipe, layout>::of(codes.data(), scales.data(), 1, 64, 64), scratch)),
                  fw::precondition_error);
}
