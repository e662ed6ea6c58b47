// SPDX-License-Identifier: Apache-2.0
// The registry of presets. A grid id travels between processes and is written into files: a changed number here is a
// decision, never a repair of this test.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include <fp8wire/format/fnuz.hpp>
#include <fp8wire/quant/presets/all.hpp>

using namespace fp8wire;

static std::string text(std::string_view view) { return std::string(view); }

struct pinned {
  const char *name, *scale, *element, *block, *stored;
  u32 floor;
  u64 id;
};
static constexpr pinned golden[] = {
    {"vllm-block", "fp32", "e4m3fn/nan=-max", "128x128", "F32", 0x2EDBE6FFu, 0x64B1F9C5098420D7u},
    {"vllm-block", "pow2", "e4m3fn/nan=-max", "128x128", "F32", 0x2EDBE6FFu, 0x23FF68B7F526ABEEu},
    {"te-block", "fp32", "e4m3fn", "128x128", "F32", 0x00000000u, 0x3AD238F81C4D0138u},
    {"te-block", "pow2", "e4m3fn", "128x128", "F32", 0x00000000u, 0xCF7D12EE10B56036u},
    {"te-block", "fp32", "e5m2", "128x128", "F32", 0x00000000u, 0xA88CFA2304D5FD68u},
    {"te-block", "pow2", "e5m2", "128x128", "F32", 0x00000000u, 0x317049C577E2E586u},
    {"te-block", "fp32", "e4m3fn", "1x128", "F32", 0x00000000u, 0x46334563A37841C2u},
    {"te-block", "pow2", "e4m3fn", "1x128", "F32", 0x00000000u, 0x8D22E6B44F996450u},
    {"te-sharded", "fp32", "e4m3fn", "128x128", "F32", 0x00000000u, 0x3FBA477EFF014866u},
    {"te-sharded", "pow2", "e4m3fn", "128x128", "F32", 0x00000000u, 0x62AD0737241C9C74u},
    {"te-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x3D001BBD74FC06A3u},
    {"te-mxfp8", "e8m0", "e5m2", "1x32", "F8_E8M0", 0x00000000u, 0xC5ABD9D1F826A853u},
    {"te-mxfp8", "e8m0", "e4m3fn", "32x1", "F8_E8M0", 0x00000000u, 0xD8F8D1E4C3426FCDu},
    {"te-mxfp8-fma", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xF11E2588ECCE1A40u},
    {"te-mxfp8-sharded", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xF933747EEADF7B78u},
    {"skyrl-block", "fp32", "e4m3fn", "128x128", "F32", 0x2EDBE6FFu, 0x7E1931A09A4ABDBBu},
    {"skyrl-block", "pow2", "e4m3fn", "128x128", "F32", 0x2EDBE6FFu, 0x0066799707B31867u},
    {"skyrl-block-cpu", "fp32", "e4m3fn", "128x128", "F32", 0x2EDBE6FFu, 0xB6B7880AC350EAC8u},
    {"skyrl-block-cpu", "pow2", "e4m3fn", "128x128", "F32", 0x2EDBE6FFu, 0x0066799707B31867u},
    {"deepgemm-block", "fp32", "e4m3fn", "128x128", "F32", 0x38D1B717u, 0xCB138D55DFB7E69Eu},
    {"deepgemm-block", "pow2", "e4m3fn", "128x128", "F32", 0x38D1B717u, 0x58D06232E5C82391u},
    {"deepgemm-block", "e8m0", "e4m3fn", "128x128", "F8_E8M0", 0x38D1B717u, 0x90A4AAC2AC39F85Cu},
    {"deepgemm-block-cpu", "fp32", "e4m3fn", "128x128", "F32", 0x38D1B717u, 0x5F868D7C44A5FB19u},
    {"deepgemm-block-cpu", "pow2", "e4m3fn", "128x128", "F32", 0x38D1B717u, 0x58D06232E5C82391u},
    {"deepgemm-block-cpu", "e8m0", "e4m3fn", "128x128", "F8_E8M0", 0x38D1B717u, 0x90A4AAC2AC39F85Cu},
    {"triton-block", "fp32", "e4m3fn/nan=signed_max", "128x128", "F32", 0x2EDBE6FFu, 0x231C5F1CEF18BB32u},
    {"sgl-kernel-block", "fp32", "e4m3fn/nan=-max", "128x128", "F32", 0x2EDBE6FFu, 0xE64D8A79D32292CBu},
    {"sglang-approx-block", "fp32", "e4m3fn/nan=-max", "128x128", "F32", 0x2EDBE6FFu, 0x11D804A588BC7372u},
    {"nemo-block", "fp32", "e4m3fn", "128x128", "F32", 0x00000000u, 0x1E4FB42E6EA26560u},
    {"nemo-block", "pow2", "e4m3fn", "128x128", "F32", 0x00000000u, 0xEF6D68FD72CE941Au},
    {"torchao-block", "fp32", "e4m3fn", "128x128", "F32", 0x2B8CBCCCu, 0xB48F1C6B845143BEu},
    {"compressed-tensors-block", "bf16", "e4m3fn", "128x128", "BF16", 0x00000000u, 0x8F0F2B4D14119656u},
    {"compressed-tensors-block", "fp32", "e4m3fn", "128x128", "F32", 0x00000000u, 0xAD847ED6E74D62D8u},
    {"compressed-tensors-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x761A338520238486u},
    {"vllm-mxfp8-fallback", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xB64B1B8865DDB96Eu},
    {"nemo-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xB64B1B8865DDB96Eu},
    {"vllm-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xA32C3A31C5840D29u},
    {"skyrl-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x33C53B86CA4CD67Du},
    {"flashinfer-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x07FFC13C33A7E7DBu},
    {"torchao-mxfp8-floor", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xB9580AFBB11F1870u},
    {"torchao-mxfp8-rceil", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xB3B82A414E286301u},
    {"torchao-mxfp8-ceil", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0xB53A29C927EA0323u},
    {"torchao-mxfp8-even", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x22D9E478F7C45B8Eu},
    {"ocp-mxfp8", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x90BCAB4F94D58D1Du},
    {"fbgemm-mxfp8-even", "e8m0", "e4m3fn", "1x32", "F8_E8M0", 0x00000000u, 0x49AD0F1373FA5C4Bu},
    {"microxcaling-mxfp8", "e8m0", "e4m3fn/ties=away", "1x32", "F8_E8M0", 0x00000000u, 0x55AA8E5E01B42848u},
};

TEST_CASE("every preset has the grid id it was released with") {
  std::size_t at = 0;
  presets::for_each([&]<class Preset>() {
    using recipe = typename Preset::recipe;
    REQUIRE(at < sizeof(golden) / sizeof(golden[0]));
    const pinned& row = golden[at++];
    CAPTURE(row.name);
    CAPTURE(row.scale);
    CHECK(text(Preset::name) == row.name);
    CHECK(text(Preset::scale) == row.scale);
    CHECK(text(recipe::element::id) == row.element);
    CHECK(text(block_name<typename recipe::block>()) == row.block);
    CHECK(text(name_of(input_traits<stored_t<recipe>>::stored_as)) == row.stored);
    CHECK(bits_of(recipe::num.amax_floor) == row.floor);
    CHECK(grid_id<recipe>() == row.id);
  });
  CHECK(at == sizeof(golden) / sizeof(golden[0]));
}

TEST_CASE("the canonical text says everything that decides a byte, and its hash is FNV-1a") {
  const auto canonical = detail::grid_text<presets::vllm_block::recipe>(1e-10f);
  CHECK(
      text(canonical.view()) ==
      "fp8wire grid 1;element=e4m3fn/nan=-max;block=128x128;rule=s=amax/max;x/s;nan=ignored;stored=f32;floor=2EDBE6FF;"
      "edge=zero;minus_zero=kept;f32=direct");
  u64 state = 14695981039346656037u;
  for (const char c : canonical.view()) state = (state ^ static_cast<u8>(c)) * 1099511628211u;
  CHECK(grid_id<presets::vllm_block::recipe>() == state);
  CHECK(grid_id<presets::vllm_block::recipe>(0.0f) != state);
}

TEST_CASE("presets of one grid share its id, and no two different recipes do") {
  static_assert(std::same_as<presets::nemo_mxfp8::recipe, presets::vllm_mxfp8_fallback::recipe>);
  static_assert(std::same_as<presets::skyrl_block_pow2::recipe, presets::skyrl_block_cpu_pow2::recipe>);
  static_assert(std::same_as<presets::deepgemm_block_e8m0::recipe, presets::deepgemm_block_cpu_e8m0::recipe>);
  std::set<u64> ids;
  std::size_t aliases = 0;
  presets::for_each([&]<class Preset>() {
    if (!ids.insert(grid_id<typename Preset::recipe>()).second) ++aliases;
  });
  CHECK(aliases == 4);
  using te = presets::te_block::recipe;
  ids.clear();
  ids.insert({grid_id<te>(), grid_id<te>(1e-4f), grid_id<with_numerics<te, numerics{.edge = edge_pad::last_element}>>(),
              grid_id<with_numerics<te, numerics{.keep_negative_zero = false}>>(),
              grid_id<with_numerics<te, numerics{.f32_through_bf16 = true}>>(),
              grid_id<recipe<e5m2, te::block, te::rule>>(), grid_id<recipe<e4m3fnuz, te::block, te::rule>>(),
              grid_id<recipe<te::element, block<64, 64>, te::rule>>(),
              grid_id<recipe<te::element, te::block, rules::nan_poisons<te::rule>>>(),
              grid_id<recipe<e4m3_as<casts::ml_dtypes>, te::block, te::rule>>()});
  CHECK(ids.size() == 10);
  // Refusing a tensor is not a byte of it.
  CHECK(grid_id<te>() == grid_id<with_numerics<te, numerics{.bad = nonfinite::as_tool}>>());
}

TEST_CASE("every name of the programs' contract exists") {
  const char* names[] = {"te-block",
                         "te-sharded",
                         "te-mxfp8",
                         "te-mxfp8-fma",
                         "vllm-block",
                         "skyrl-block",
                         "skyrl-block-cpu",
                         "deepgemm-block",
                         "deepgemm-block-cpu",
                         "triton-block",
                         "sgl-kernel-block",
                         "nemo-block",
                         "torchao-block",
                         "compressed-tensors-block",
                         "compressed-tensors-mxfp8",
                         "vllm-mxfp8-fallback",
                         "nemo-mxfp8",
                         "skyrl-mxfp8",
                         "flashinfer-mxfp8",
                         "torchao-mxfp8-floor",
                         "torchao-mxfp8-rceil",
                         "torchao-mxfp8-ceil",
                         "torchao-mxfp8-even",
                         "ocp-mxfp8"};
  for (const char* name : names) {
    CAPTURE(name);
    CHECK(presets::visit(name, "", []<class Preset>() {}));
  }
  for (const char* name : {"te-block", "te-sharded", "skyrl-block", "deepgemm-block", "nemo-block"}) {
    CHECK(presets::visit(name, "fp32", []<class Preset>() {}));
    CHECK(presets::visit(name, "pow2", []<class Preset>() {}));
  }
  CHECK(presets::visit("deepgemm-block", "e8m0", []<class Preset>() {}));
}

TEST_CASE("a preset is found by name, and by scale, element and block where it leaves a choice") {
  const auto found = [](presets::choice wanted) {
    u64 id = 0;
    const bool any = presets::visit(wanted, [&]<class Preset>() { id = grid_id<typename Preset::recipe>(); });
    CHECK(any == (id != 0));
    return id;
  };
  CHECK(found({"te-block"}) == grid_id<presets::te_block::recipe>());
  CHECK(found({"te-block", "pow2"}) == grid_id<presets::te_block_pow2::recipe>());
  CHECK(found({"te-block", "", "e5m2"}) == grid_id<presets::te_block_e5m2::recipe>());
  CHECK(found({"te-block", "pow2", "e4m3", "1x128"}) == grid_id<presets::te_row_block_pow2::recipe>());
  CHECK(found({"te-mxfp8", "", "", "32x1"}) == grid_id<presets::te_mxfp8_columnwise::recipe>());
  CHECK(found({"vllm-block", "", "e4m3"}) == grid_id<presets::vllm_block::recipe>());
  CHECK(found({"vllm-block", "", "e4m3fn"}) == grid_id<presets::vllm_block::recipe>());
  CHECK(found({"vllm-block", "e8m0"}) == 0);
  CHECK(found({"vllm-block", "", "e5m2"}) == 0);
  CHECK(found({"vllm"}) == 0);
  CHECK(found({""}) == 0);
}
