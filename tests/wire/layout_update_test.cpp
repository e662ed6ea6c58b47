// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/wire/compare.hpp>

#include "update_fixture.hpp"

namespace fw = fp8wire;
using fw::commit_mode;
using fw::i64;

namespace {

using mx_recipe = fw::presets::te_mxfp8::recipe;
using moe_layout = fw::layout_by_role<fw::pair_layout<fw::trtllm_mxfp8_codes, fw::trtllm_mxfp8_scales>,
                                      fw::pair_layout<fw::trtllm_mxfp8_w13_codes, fw::trtllm_mxfp8_w13_scales>>;
using moe_wire = fw::wire_format<mx_recipe, fw::namings::modelopt, moe_layout>;
using padded_wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm,
                                    fw::pair_layout<fw::block_major_k<128>, fw::deepgemm_fp32>>;
using packed_wire = fw::wire_format<mx_recipe, fw::namings::modelopt, fw::pair_layout<fw::row_major, fw::packed_ue8m0>>;

test::model moe_model(unsigned version = 1) {
  test::model made = {{"norm.weight", "norm.weight", {33}, false, {}},
                      {"mlp.experts.gate_up_proj", "w13", {2, 256, 64}, true, {}},
                      {"mlp.experts.down_proj", "w2", {2, 64, 128}, true, {}},
                      {"q_proj.weight", "q_proj.weight", {96, 160}, true, {}}};
  unsigned seed = 1000 * version;
  for (test::tensor& one : made) one.values = test::values_of(test::count(one.shape), ++seed);
  return made;
}

// What an engine serves, proven element by element against the scalar definition.
template <class Wire, class World> void check_served(const World& w, const test::model& from) {
  using recipe = typename Wire::recipe;
  for (const test::tensor& one : from) {
    const std::size_t entry = static_cast<std::size_t>(w.tensors.find(one.name));
    const auto codes = w.sides[0]->store.inner.bytes(entry);
    if (!one.quantized) {
      CHECK(std::memcmp(codes.data(), one.values.data(), codes.size()) == 0);
      continue;
    }
    const auto scales = w.sides[0]->store.inner.bytes(entry + 1);
    const auto in = test::view_of(one);
    Wire::with_layout(one.name, [&]<class Pair>() {
      CAPTURE(one.name);
      using scale = fw::laid_scale_t<recipe, Pair>;
      std::vector<fw::u8> copy(codes.size());
      std::memcpy(copy.data(), codes.data(), codes.size());
      std::vector<scale> grid(scales.size() / sizeof(scale));
      std::memcpy(static_cast<void*>(grid.data()), scales.data(), scales.size());
      const auto pair = fw::laid_pair<recipe, Pair>::of(copy.data(), grid.data(), in.batch, in.rows, in.cols);
      REQUIRE(pair.codes.size_bytes() == static_cast<i64>(codes.size()));
      REQUIRE(pair.scales.size_bytes() == static_cast<i64>(scales.size()));
      CHECK(!fw::verify_into<recipe, Pair>(in, pair).found);
    });
  }
}

}  // namespace

TEST_CASE_TEMPLATE("updates travel in an engine's layouts, padding included, and are never cut", Wire, moe_wire,
                   padded_wire, packed_wire) {
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    for (const fw::u64 capacity : {1u, 20000u, 1u << 20}) {
      test::world<Wire> w(moe_model(), {capacity, 256, 2, true, false}, mode, 1);
      for (const fw::plan_buffer& buffer : w.wire.buffers()) CHECK(!buffer.cut);
      for (unsigned version = 1; version <= 2; ++version) {
        const test::model from = moe_model(version);
        const fw::error wrong = w.update(version, from);
        INFO(wrong.message());
        REQUIRE(!wrong);
        check_served<Wire>(w, from);
      }
    }
  }
}

TEST_CASE("codes and scales that are on the grid already are moved into the layout, never made again") {
  const test::model from = moe_model();
  test::world<moe_wire> w(from, {}, commit_mode::staged, 1);
  using canonical = fw::wire_format<mx_recipe, fw::namings::modelopt>;
  const fw::manifest plain = test::manifest_of<canonical>(from);
  const auto bytes = test::expected_bytes<canonical>(plain, from);
  REQUIRE(!w.learner.begin(1));
  for (const test::tensor& one : from) {
    if (!one.quantized) {
      REQUIRE(!w.send(one));
      continue;
    }
    const auto in = test::view_of(one);
    const auto& codes = bytes.at(one.name);
    const auto& scales = bytes.at(plain.entries()[static_cast<std::size_t>(plain.find(one.name)) + 1].name);
    const fw::const_pair_view<mx_recipe> pair{
        fw::dense(reinterpret_cast<const fw::u8*>(codes.data()), in.rows, in.cols, in.batch),
        fw::dense(reinterpret_cast<const fw::e8m0*>(scales.data()), in.rows, in.cols / 32, in.batch)};
    REQUIRE(!w.learner.forward(one.name, pair, w.stream()));
  }
  REQUIRE(!w.learner.finish(w.stream()));
  check_served<moe_wire>(w, from);
}

TEST_CASE("a scale that a packed layout cannot hold names its weight and its block") {
  using wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm,
                               fw::pair_layout<fw::row_major, fw::packed_ue8m0>>;
  test::world<wire> w(moe_model(), {}, commit_mode::staged, 1);
  const fw::error wrong = w.update(1, moe_model());
  CHECK(wrong.code == fw::errc::bad_scale);
  CHECK(wrong.broken == fw::condition::c9_scale_sanity);
  CHECK(wrong.tensor == "mlp.experts.gate_up_proj");
  CHECK(wrong.what.find("block (0, 0, 0)") != std::string::npos);
  CHECK(w.sides[0]->receiver.serving() == 0);
}

TEST_CASE("layouts are part of what both ends compare") {
  const fw::manifest offered = test::manifest_of<moe_wire>(moe_model());
  const fw::manifest expected = test::manifest_of<fw::wire_format<mx_recipe, fw::namings::modelopt>>(moe_model());
  const auto found = fw::differences(offered, expected);
  REQUIRE(!found.empty());
  CHECK(found[0].code == fw::errc::format_mismatch);
  CHECK(found[0].message().find("swizzle-128x4") != std::string::npos);
  CHECK(fw::differences(offered, offered).empty());
}
