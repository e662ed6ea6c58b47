// SPDX-License-Identifier: Apache-2.0
// Names and shapes as published; the expected sets are spelled out here, tensor by tensor, and share nothing with the
// rules.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include <fp8wire/model/eligibility.hpp>

namespace fw = fp8wire;
using fw::decision;
using fw::dtype;
using fw::eligibility;
using fw::i64;
using fw::tensor_spec;
using fw::verdict;

namespace {

/// A checkpoint with the verdict that each of its tensors must get.
struct checkpoint {
  struct row {
    tensor_spec tensor;
    verdict what;
    std::string says;
  };
  std::vector<row> rows;
  std::string prefix;

  void add(verdict what, const std::string& name, std::vector<i64> shape, const char* says, dtype type = dtype::bf16) {
    rows.push_back({{prefix + name, type, std::move(shape)}, what, says});
  }
  void fp8(const std::string& name, i64 rows_of, i64 cols, const char* says) {
    add(verdict::quantized, name + ".weight", {rows_of, cols}, says);
  }
  void keep(const std::string& name, i64 rows_of, i64 cols, const char* says) {
    add(verdict::kept, name + ".weight", {rows_of, cols}, says);
  }
  void copy(const std::string& name, std::vector<i64> shape, dtype type = dtype::bf16) {
    add(verdict::copied, name, std::move(shape), type == dtype::bf16 || type == dtype::f32 ? "" : "is not quantized",
        type);
  }
  void norm(const std::string& name, i64 size) { copy(name + ".weight", {size}); }
  void mlp(const std::string& at, i64 hidden, i64 inner, const char* says) {
    fp8(at + "gate_proj", inner, hidden, says);
    fp8(at + "up_proj", inner, hidden, says);
    fp8(at + "down_proj", hidden, inner, says);
  }
  void attention(const std::string& at, i64 hidden, i64 q, i64 kv, i64 out) {
    fp8(at + "q_proj", q, hidden, "attention");
    fp8(at + "k_proj", kv, hidden, "attention");
    fp8(at + "v_proj", kv, hidden, "attention");
    fp8(at + "o_proj", hidden, out, "attention");
  }
};

void check(const checkpoint& all, const eligibility& rules) {
  for (const checkpoint::row& one : all.rows) {
    CAPTURE(one.tensor.name);
    const decision got = rules.decide(one.tensor);
    CHECK(got.what == one.what);
    CHECK_MESSAGE(got.why.find(one.says) != std::string::npos, got.why);
    CHECK(!got.why.empty());
  }
}

std::string layer(i64 l) { return "layers." + std::to_string(l) + "."; }

checkpoint qwen3_5(bool moe, bool fused, const std::string& prefix) {
  checkpoint c;
  const i64 h = 2048;
  c.prefix = prefix;
  c.keep("embed_tokens", 248320, h, "embedding");
  for (i64 l = 0; l < 8; ++l) {
    const std::string at = layer(l);
    c.norm(at + "input_layernorm", h);
    c.norm(at + "post_attention_layernorm", h);
    if (l % 4 == 3) {
      c.attention(at + "self_attn.", h, 8192, 512, 4096);
      c.norm(at + "self_attn.q_norm", 256);
      c.norm(at + "self_attn.k_norm", 256);
    } else {
      c.fp8(at + "linear_attn.in_proj_qkv", 8192, h, "delta net");
      c.fp8(at + "linear_attn.in_proj_z", 4096, h, "delta net");
      c.keep(at + "linear_attn.in_proj_a", 32, h, "narrower");
      c.keep(at + "linear_attn.in_proj_b", 32, h, "narrower");
      c.fp8(at + "linear_attn.out_proj", h, 4096, "delta net");
      c.add(verdict::kept, at + "linear_attn.conv1d.weight", {8192, 1, 4}, "convolution");
      c.copy(at + "linear_attn.A_log", {32}, dtype::f32);
      c.copy(at + "linear_attn.dt_bias", {32});
      c.copy(at + "linear_attn.norm.weight", {128}, dtype::f32);
    }
    if (!moe) {
      c.mlp(at + "mlp.", h, 6144, "MLP");
      continue;
    }
    c.keep(at + "mlp.gate", 256, h, "router");
    c.keep(at + "mlp.shared_expert_gate", 1, h, "router");
    c.mlp(at + "mlp.shared_expert.", h, 512, "shared expert");
    if (fused) {
      c.add(verdict::quantized, at + "mlp.experts.gate_up_proj", {256, 1024, h}, "routed experts");
      c.add(verdict::quantized, at + "mlp.experts.down_proj", {256, h, 512}, "routed experts");
    } else {
      for (const char* expert : {"0", "17", "255"}) c.mlp(at + "mlp.experts." + expert + ".", h, 512, "routed expert");
    }
  }
  c.norm("norm", h);
  c.prefix = "";
  c.copy("model.visual.patch_embed.proj.weight", {1152, 3, 2, 16, 16});
  c.copy("model.visual.patch_embed.proj.bias", {1152});
  c.keep("model.visual.pos_embed", 2304, 1152, "embedding");
  for (const char* part : {"attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"}) {
    c.keep(std::string("model.visual.blocks.26.") + part, 1152, 4304, "vision");
    c.copy(std::string("model.visual.blocks.26.") + part + ".bias", {1152});
  }
  c.norm("model.visual.blocks.26.norm1", 1152);
  c.keep("model.visual.merger.linear_fc1", 4608, 4608, "vision");
  c.keep("model.visual.merger.linear_fc2", h, 4608, "vision");
  c.keep("mtp.fc", h, 2 * h, "draft head");
  c.attention("mtp.layers.0.self_attn.", h, 8192, 512, 4096);
  c.keep("mtp.layers.0.mlp.gate", 256, h, "router");
  c.norm("mtp.norm", h);
  c.norm("mtp.pre_fc_norm_hidden", h);
  c.keep("lm_head", 248320, h, "output head");
  return c;
}

}  // namespace

TEST_CASE("Qwen3.5, dense and MoE, fused experts and single ones, with vision and drafting layers") {
  const eligibility rules(fw::families::qwen3_5);
  check(qwen3_5(false, false, "model.language_model."), rules);
  check(qwen3_5(true, false, "model.language_model."), rules);
  check(qwen3_5(true, true, "model.language_model."), rules);
  check(qwen3_5(true, true, "model."), rules);
}

TEST_CASE("Qwen3, dense and MoE") {
  for (const bool moe : {false, true}) {
    checkpoint c;
    c.prefix = "model.";
    c.keep("embed_tokens", 151936, 2048, "embedding");
    for (i64 l = 0; l < 3; ++l) {
      c.attention(layer(l) + "self_attn.", 2048, 4096, 512, 4096);
      c.copy(layer(l) + "self_attn.q_proj.bias", {4096});
      c.norm(layer(l) + "self_attn.q_norm", 128);
      if (!moe) {
        c.mlp(layer(l) + "mlp.", 2048, 6144, "MLP");
      } else {
        c.keep(layer(l) + "mlp.gate", 128, 2048, "router");
        c.keep(layer(l) + "mlp.shared_expert_gate", 1, 2048, "router");
        c.mlp(layer(l) + "mlp.shared_expert.", 2048, 5632, "shared expert");
        for (const char* e : {"0", "127"}) c.mlp(layer(l) + "mlp.experts." + e + ".", 2048, 768, "routed expert");
        c.add(verdict::quantized, layer(l) + "mlp.experts.gate_up_proj", {128, 1536, 2048}, "routed experts");
        c.add(verdict::quantized, layer(l) + "mlp.experts.down_proj", {128, 2048, 768}, "routed experts");
      }
    }
    c.prefix = "";
    c.keep("lm_head", 151936, 2048, "output head");
    check(c, eligibility(moe ? fw::families::qwen3_moe : fw::families::qwen3));
  }
}

TEST_CASE("DeepSeek-V3 with latent attention, indexer and the drafting layer") {
  checkpoint c;
  c.prefix = "model.";
  c.keep("embed_tokens", 129280, 7168, "embedding");
  for (const i64 l : {i64{0}, i64{3}, i64{61}}) {
    const std::string at = layer(l);
    c.fp8(at + "self_attn.q_a_proj", 1536, 7168, "attention");
    c.fp8(at + "self_attn.q_b_proj", 24576, 1536, "attention");
    c.fp8(at + "self_attn.kv_a_proj_with_mqa", 576, 7168, "attention");
    c.fp8(at + "self_attn.kv_b_proj", 32768, 512, "attention");
    c.fp8(at + "self_attn.o_proj", 7168, 16384, "attention");
    c.norm(at + "self_attn.q_a_layernorm", 1536);
    c.fp8(at + "self_attn.indexer.wq_b", 8192, 1536, "indexer");
    c.fp8(at + "self_attn.indexer.wk", 128, 7168, "indexer");
    c.keep(at + "self_attn.indexer.weights_proj", 64, 7168, "narrower");
    c.norm(at + "self_attn.indexer.k_norm", 128);
    if (l == 0) {
      c.mlp(at + "mlp.", 7168, 18432, "MLP");
    } else {
      c.keep(at + "mlp.gate", 256, 7168, "router");
      c.copy(at + "mlp.gate.e_score_correction_bias", {256}, dtype::f32);
      c.mlp(at + "mlp.experts.255.", 7168, 2048, "routed expert");
      c.mlp(at + "mlp.shared_experts.", 7168, 2048, "shared expert");
    }
  }
  c.keep("layers.61.eh_proj", 7168, 14336, "draft head");
  c.keep("layers.61.embed_tokens", 129280, 7168, "embedding");
  c.keep("layers.61.shared_head.head", 129280, 7168, "output head");
  c.norm("layers.61.shared_head.norm", 7168);
  c.norm("layers.61.enorm", 7168);
  c.prefix = "";
  c.keep("lm_head", 129280, 7168, "output head");
  check(c, eligibility(fw::families::deepseek_v3));
}

TEST_CASE("Nemotron-H: Mamba, attention, MLP and experts under one name") {
  checkpoint c;
  c.prefix = "backbone.";
  c.keep("embeddings", 131072, 4096, "embedding");
  c.fp8("layers.0.mixer.in_proj", 18560, 4096, "Mamba");
  c.fp8("layers.0.mixer.out_proj", 4096, 8192, "Mamba");
  c.add(verdict::kept, "layers.0.mixer.conv1d.weight", {10240, 1, 4}, "convolution");
  c.copy("layers.0.mixer.conv1d.bias", {10240});
  for (const char* one : {"A_log", "D", "dt_bias"}) c.copy(std::string("layers.0.mixer.") + one, {128});
  c.norm("layers.0.mixer.norm", 8192);
  c.norm("layers.0.norm", 4096);
  c.fp8("layers.1.mixer.up_proj", 21504, 4096, "MLP");
  c.fp8("layers.1.mixer.down_proj", 4096, 21504, "MLP");
  c.attention("layers.2.mixer.", 4096, 4096, 1024, 4096);
  c.keep("layers.3.mixer.gate", 128, 4096, "router");
  c.copy("layers.3.mixer.gate.e_score_correction_bias", {128}, dtype::f32);
  c.fp8("layers.3.mixer.experts.127.up_proj", 1856, 4096, "routed expert");
  c.fp8("layers.3.mixer.experts.127.down_proj", 4096, 1856, "routed expert");
  c.fp8("layers.3.mixer.shared_experts.up_proj", 3712, 4096, "shared expert");
  c.norm("norm_f", 4096);
  c.prefix = "";
  c.keep("lm_head", 131072, 4096, "output head");
  check(c, eligibility(fw::families::nemotron_h));
}

TEST_CASE("Llama, Mistral and Mixtral") {
  checkpoint c;
  c.prefix = "model.";
  c.keep("embed_tokens", 128256, 4096, "embedding");
  for (i64 l = 0; l < 2; ++l) {
    c.attention(layer(l) + "self_attn.", 4096, 4096, 1024, 4096);
    c.copy(layer(l) + "self_attn.rotary_emb.inv_freq", {64}, dtype::f32);
    c.mlp(layer(l) + "mlp.", 4096, 14336, "MLP");
    c.keep(layer(l) + "block_sparse_moe.gate", 8, 4096, "router");
    for (const char* w : {"w1", "w2", "w3"})
      c.fp8(layer(l) + "block_sparse_moe.experts.7." + w, 14336, 4096, "routed expert");
  }
  c.keep("something.new", 64, 64, "no rule names it");
  c.prefix = "";
  c.keep("lm_head", 128256, 4096, "output head");
  check(c, eligibility(fw::families::llama));
}

TEST_CASE("BERT, with and without a prefix") {
  for (const char* prefix : {"", "bert."}) {
    checkpoint c;
    c.prefix = prefix;
    c.copy("embeddings.position_ids", {1, 512}, dtype::int64);
    for (const char* one : {"word", "position", "token_type"})
      c.keep(std::string("embeddings.") + one + "_embeddings", 512, 384, "embedding");
    c.norm("embeddings.LayerNorm", 384);
    for (const char* one :
         {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"})
      c.fp8(std::string("encoder.layer.5.") + one, 384, 384, "attention");
    c.copy("encoder.layer.5.attention.self.query.bias", {384}, dtype::f32);
    c.fp8("encoder.layer.5.intermediate.dense", 1536, 384, "MLP");
    c.fp8("encoder.layer.5.output.dense", 384, 1536, "MLP");
    c.norm("encoder.layer.5.output.LayerNorm", 384);
    c.keep("pooler.dense", 384, 384, "pooler");
    check(c, eligibility(fw::families::bert));
  }
}

TEST_CASE("all-2d takes every matrix named *.weight but embeddings, heads, norms and routers") {
  checkpoint c;
  c.fp8("fc1", 10, 10, "all-2d");
  c.add(verdict::quantized, "experts.w.weight", {4, 10, 10}, "all-2d");
  c.fp8("model.visual.blocks.0.attn.qkv", 10, 10, "all-2d");
  c.fp8("layers.0.mlp.gate_proj", 10, 10, "all-2d");
  c.fp8("layers.0.mlp.gate_up_proj", 10, 10, "all-2d");
  c.fp8("layers.0.normalizer_proj", 10, 10, "all-2d");
  c.fp8("layers.0.embedder", 10, 10, "all-2d");
  for (const char* name : {"embed_tokens", "model.embed_tokens", "embeddings.word_embeddings", "wte", "transformer.wpe",
                           "model.patch_embed.proj"})
    c.keep(name, 10, 10, "embedding");
  for (const char* name : {"lm_head", "model.lm_head", "output"}) c.keep(name, 10, 10, "output head");
  for (const char* name : {"input_layernorm", "a.norm1", "a.LayerNorm", "ln_f", "q_norm"}) c.keep(name, 10, 10, "norm");
  for (const char* name :
       {"mlp.gate", "mlp.router", "mlp.shared_expert_gate", "ffn.router.layer", "moe.router_weights"})
    c.keep(name, 10, 10, "router");
  c.copy("mlp.experts.gate_up_proj", {4, 20, 10});
  c.copy("a.bias", {10, 10});
  c.copy("weight", {10, 10});
  c.copy("a.weight", {10});
  c.copy("b.weight", {2, 2, 2, 2});
  for (const dtype type : {dtype::f8_e4m3, dtype::int8, dtype::f64, dtype::boolean}) c.copy("c.weight", {10, 10}, type);
  check(c, eligibility());
  const tensor_spec half{"a.weight", dtype::f16, {10, 10}};
  CHECK(eligibility().decide(half).what == verdict::quantized);
}

TEST_CASE("a family is found by name and by model_type, and what is unknown gets the list of what is known") {
  const std::map<std::string, std::string> types = {{"qwen3_5", "qwen3_5"},
                                                    {"qwen3_5_moe", "qwen3_5"},
                                                    {"qwen3_5_moe_text", "qwen3_5"},
                                                    {"qwen3", "qwen3"},
                                                    {"qwen3_moe", "qwen3-moe"},
                                                    {"deepseek_v3", "deepseek-v3"},
                                                    {"deepseek_v32", "deepseek-v3"},
                                                    {"llama", "llama"},
                                                    {"mistral", "llama"},
                                                    {"nemotron_h", "nemotron-h"},
                                                    {"bert", "bert"}};
  for (const auto& known : types) {
    const std::string& type = known.first;
    CAPTURE(type);
    const auto found = fw::families::of_model_type(type);
    REQUIRE(found);
    CHECK((*found)->name == known.second);
  }
  std::set<std::string_view> seen;
  for (const fw::family* one : fw::families::all) {
    CHECK(*fw::families::find(one->name) == one);
    for (const std::string_view type : one->model_types) CHECK(seen.insert(type).second);
  }
  CHECK(fw::families::of_model_type("gpt9").error().message() ==
        "gpt9: unknown model_type; known are: " + fw::families::model_types());
  CHECK(fw::families::of_model_type("").error().code == fw::errc::unsupported);
  CHECK(fw::families::find("auto").error().message() ==
        "auto: no such model family; there are: all-2d, qwen3, qwen3-moe, "
        "qwen3_5, deepseek-v3, nemotron-h, llama, bert");
}

TEST_CASE("the first and the last layers stay in BF16 on demand") {
  eligibility rules(fw::families::qwen3);
  REQUIRE_FALSE(rules.keep_layers(1, 2, 12));
  const auto why = [&](const std::string& name) {
    const decision got = rules.decide({name, dtype::bf16, {256, 256}});
    return std::string(name_of(got.what)) + ": " + got.why;
  };
  CHECK(why("model.layers.0.mlp.up_proj.weight") == "kept: one of the first 1 layers");
  CHECK(why("model.layers.1.mlp.up_proj.weight") == "quantized: qwen3: MLP");
  CHECK(why("model.layers.9.mlp.up_proj.weight") == "quantized: qwen3: MLP");
  CHECK(why("model.layers.10.mlp.up_proj.weight") == "kept: one of the last 2 layers");
  CHECK(why("model.layers.11.mlp.up_proj.weight") == "kept: one of the last 2 layers");
  CHECK(why("model.layers.12.mlp.up_proj.weight") == "quantized: qwen3: MLP");  // a drafting layer behind the last
  CHECK(why("mtp.layers.0.mlp.up_proj.weight") == "quantized: qwen3: MLP");
  CHECK(why("model.layers.0.mlp.gate.weight") == "kept: qwen3: router");
  CHECK(rules.keep_layers(7, 6, 12).code == fw::errc::bad_argument);
  CHECK(rules.keep_layers(-1, 0, 12).code == fw::errc::bad_argument);
  CHECK(fw::layer_of("encoder.layer.11.output.dense.weight") == 11);
  CHECK(fw::layer_of("model.visual.layers.3.mlp.weight") == -1);
  CHECK(fw::layer_of("model.layers.x.mlp.weight") == -1);
  CHECK(fw::layer_of("layers") == -1);
  CHECK(fw::layer_of("layers.99999999999999999999.a") == -1);
}

TEST_CASE("rules of the user come first, and a wrong one is named by its line") {
  eligibility rules(fw::families::llama);
  REQUIRE_FALSE(
      rules.add_rules("# nothing\n\nkeep **.o_proj  sensitive, see run 12\r\n"
                      "\tquantize lm_head   # worth it\n"
                      "keep model.layers.#.mlp.down_proj\n"
                      "quantize **.mlp.down_proj never reached for numbered layers",
                      "rules.txt"));
  const auto decide = [&](const std::string& name) { return rules.decide({name, dtype::bf16, {256, 256}}); };
  CHECK(decide("model.layers.0.self_attn.o_proj.weight") ==
        decision{verdict::kept, "rules.txt: sensitive, see run 12"});
  CHECK(decide("lm_head.weight") == decision{verdict::quantized, "rules.txt: lm_head"});
  CHECK(decide("model.layers.3.mlp.down_proj.weight") ==
        decision{verdict::kept, "rules.txt: model.layers.#.mlp.down_proj"});
  CHECK(decide("model.layers.0.mlp.up_proj.weight") == decision{verdict::quantized, "llama: MLP"});
  CHECK(rules.decide({"lm_head.weight", dtype::bf16, {256}}).what ==
        verdict::copied);  // no rule makes a vector a matrix
  const std::vector<fw::tensor_spec> some = {{"lm_head.weight", dtype::bf16, {2, 2}},
                                             {"model.layers.3.mlp.down_proj.weight", dtype::bf16, {2, 2}}};
  CHECK(rules.useless_rules(some) == std::vector<std::string>{"**.o_proj"});
  for (const char* wrong : {"keep\n", "drop **.o_proj\n", "keep **.o_proj.weight\n"}) {
    CAPTURE(wrong);
    eligibility fresh;
    const fw::error got = fresh.add_rules(std::string("quantize a.b\n") + wrong, "r");
    CHECK(got.code == fw::errc::bad_argument);
    CHECK(got.tensor == "r:2");
    CHECK(fresh.decide({"a.b.weight", dtype::bf16, {2, 2}}).why == "all-2d: matrix");
  }
}
