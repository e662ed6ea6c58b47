// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/model/ignored_modules.hpp>

namespace fw = fp8wire;

namespace {
fw::result<std::vector<std::string>> ignored(const std::vector<fw::decided_weight>& weights) {
  return fw::ignored_modules(weights);
}
}  // namespace

TEST_CASE("kept modules are listed in every spelling, sorted, once") {
  const auto got = ignored({{"lm_head.weight", false},
                            {"model.language_model.layers.0.mlp.gate.weight", false},
                            {"model.language_model.layers.0.mlp.gate_proj.weight", true},
                            {"model.language_model.layers.0.mlp.up_proj.weight", true},
                            {"model.visual.blocks.0.attn.qkv.weight", false},
                            {"model.layers.1.mlp.gate.weight", false},
                            {"model.layers.1.mlp.experts.gate_up_proj", false},
                            {"lm_head.weight", false}});
  REQUIRE(got);
  CHECK(*got == std::vector<std::string>{"language_model.model.layers.0.mlp.gate", "lm_head",
                                         "model.language_model.layers.0.mlp.gate", "model.layers.0.mlp.gate",
                                         "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.gate",
                                         "model.visual.blocks.0.attn.qkv", "visual.blocks.0.attn.qkv"});
}

TEST_CASE("a fused parameter is listed by its parts and as a whole") {
  const auto got = ignored(
      {{"model.layers.0.linear_attn.in_proj_b.weight", false}, {"model.layers.0.linear_attn.in_proj_a.weight", false}});
  REQUIRE(got);
  CHECK(*got == std::vector<std::string>{"model.layers.0.linear_attn.in_proj_a", "model.layers.0.linear_attn.in_proj_b",
                                         "model.layers.0.linear_attn.in_proj_ba"});
}

TEST_CASE("a fused parameter that is kept in part is refused by name") {
  for (const bool first : {false, true}) {
    const auto got = ignored({{"a.self_attn.q_proj.weight", first},
                              {"a.self_attn.k_proj.weight", !first},
                              {"a.self_attn.v_proj.weight", first}});
    CHECK(got.error().code == fw::errc::format_mismatch);
    CHECK(got.error().message() ==
          std::string("C1 a.self_attn.qkv_proj.weight: is one parameter in the engine, but a.self_attn.") +
              (first ? "k" : "q") + "_proj.weight is kept and a.self_attn." + (first ? "q" : "k") +
              "_proj.weight is not");
  }
}

TEST_CASE("experts do not fuse with each other") {
  CHECK(ignored({{"a.experts.0.gate_proj.weight", true},
                 {"a.experts.0.up_proj.weight", true},
                 {"a.experts.1.gate_proj.weight", false},
                 {"a.experts.1.up_proj.weight", false}})
            .ok());
}
