// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <set>

#include <fp8wire/model/audit.hpp>

namespace fw = fp8wire;
using fw::fused_with;

TEST_CASE("parts of one engine parameter share its name, the expert's number included") {
  struct row {
    const char *tensor, *parameter;
  };
  const row rows[] = {
      {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.qkv_proj.weight"},
      {"model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.qkv_proj.weight"},
      {"model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.qkv_proj.weight"},
      {"model.layers.0.self_attn.v_proj.bias", "model.layers.0.self_attn.qkv_proj.bias"},
      {"model.layers.0.self_attn.o_proj.weight", ""},
      {"a.mlp.gate_proj.weight", "a.mlp.gate_up_proj.weight"},
      {"a.mlp.up_proj.weight", "a.mlp.gate_up_proj.weight"},
      {"a.mlp.down_proj.weight", ""},
      {"a.mlp.gate.weight", ""},
      {"a.experts.7.gate_proj.weight", "a.experts.7.gate_up_proj.weight"},
      {"a.experts.70.up_proj.weight", "a.experts.70.gate_up_proj.weight"},
      {"a.experts.7.w1.weight", "a.experts.7.w13.weight"},
      {"a.experts.7.w3.weight", "a.experts.7.w13.weight"},
      {"a.experts.7.w2.weight", ""},
      {"a.experts.gate_up_proj", ""},
      {"a.linear_attn.in_proj_qkv.weight", "a.linear_attn.in_proj_qkvz.weight"},
      {"a.linear_attn.in_proj_z.weight", "a.linear_attn.in_proj_qkvz.weight"},
      {"a.linear_attn.in_proj_b.weight", "a.linear_attn.in_proj_ba.weight"},
      {"a.linear_attn.in_proj_a.weight", "a.linear_attn.in_proj_ba.weight"},
      {"a.self_attn.q_a_proj.weight", "a.self_attn.fused_qkv_a_proj.weight"},
      {"a.self_attn.kv_a_proj_with_mqa.weight", "a.self_attn.fused_qkv_a_proj.weight"},
      {"a.self_attn.q_b_proj.weight", ""},
      {"encoder.layer.0.attention.self.query.weight", "encoder.layer.0.attention.self.qkv_proj.weight"},
      {"encoder.layer.0.attention.self.key.weight", "encoder.layer.0.attention.self.qkv_proj.weight"},
      {"memory.key.weight", ""},
      {"gate_proj.weight", "gate_up_proj.weight"},
      {"q_proj", ""},
      {"", ""},
      {".", ""},
      {"..", ""},
  };
  for (const row& one : rows) {
    CAPTURE(one.tensor);
    CHECK(fused_with(one.tensor) == one.parameter);
  }
}

namespace {

/// 8 dense layers: what is FP8 by right.
struct weight {
  std::string name;
  bool fp8;
};
std::vector<weight> model() {
  std::vector<weight> all;
  for (int l = 0; l < 8; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    for (const char* one : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
      all.push_back({at + one + ".weight", true});
    all.push_back({at + "mlp.gate.weight", false});
  }
  return all;
}
fw::layer_set set_of(const char* side, const std::vector<weight>& weights) {
  fw::layer_set made(side);
  for (const weight& one : weights) made.add(one.name, one.fp8);
  return made;
}

}  // namespace

TEST_CASE("the audit is silent where learner, wire and engine agree, fused or not") {
  fw::layer_set engine("the engine");  // says its own names
  std::set<std::string> parameters;
  for (const weight& one : model()) {
    const std::string fused = fused_with(one.name);
    if (parameters.insert(fused.empty() ? one.name : fused).second)
      engine.add(fused.empty() ? one.name : fused, one.fp8);
  }
  CHECK(fw::audit(set_of("the learner", model()), set_of("the wire", model()), engine).empty());
}

TEST_CASE("an engine that ignores mlp.gate as a substring is found with exactly its gate_up parameters") {
  auto weights = model();
  fw::layer_set engine("the engine");
  for (const weight& one : weights) {
    // It knows fused names only, and a substring of the fused name is enough for it.
    const std::string fused = fused_with(one.name), name = fused.empty() ? one.name : fused;
    engine.add(one.name, one.fp8 && name.find("mlp.gate") == std::string::npos);
  }
  const auto found = fw::audit(set_of("the learner", weights), set_of("the wire", weights), engine);
  REQUIRE(found.size() == 8);
  for (std::size_t l = 0; l < 8; ++l) {
    CHECK(found[l].tensor == "model.layers." + std::to_string(l) + ".mlp.gate_up_proj.weight");
    CHECK(found[l].what == "is FP8 in the learner and the wire and not in the engine");
    CHECK(found[l].broken == fw::condition::c1_layer_set);
  }
}

TEST_CASE("the audit finds a disagreement in the other direction, a missing parameter and unlike parts") {
  auto learner = model(), wire = model(), engine = model();
  engine[7].fp8 = true;  // a router in FP8
  wire.erase(wire.begin() + 6);
  learner[1].fp8 = false;  // k_proj alone
  const auto found = fw::audit(set_of("the learner", learner), set_of("the wire", wire), set_of("the engine", engine));
  REQUIRE(found.size() == 3);
  CHECK(
      found[0].message() ==
      "C1 model.layers.0.self_attn.qkv_proj.weight: its parts differ in the learner; those in FP8: got 2, expected 3");
  CHECK(found[1].message() == "C1 model.layers.0.mlp.down_proj.weight: is not known to the wire");
  CHECK(found[2].message() ==
        "C1 model.layers.0.mlp.gate.weight: is FP8 in the engine and not in the learner and the wire");
}
