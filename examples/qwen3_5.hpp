// SPDX-License-Identifier: Apache-2.0
/// The tensors of a small Qwen3.5 checkpoint: names as published, shapes to scale, contents from a counter.
#ifndef FP8WIRE_EXAMPLES_QWEN3_5_HPP
#define FP8WIRE_EXAMPLES_QWEN3_5_HPP
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <fp8wire/core/hash.hpp>
#include <fp8wire/format/bf16.hpp>
#include <fp8wire/model/tensor_spec.hpp>

namespace qwen3_5 {

using fp8wire::dtype;
using fp8wire::i64;
using fp8wire::u64;

/// Every fourth layer has full attention, the others gated delta nets; layer 0 has a dense MLP, the others experts.
struct shape {
  i64 hidden = 512, layers = 4, experts = 8, vocabulary = 2048, vision_layers = 2;
  bool fused_experts = true;  // 3-D experts.gate_up_proj, as published; false: one matrix an expert

  i64 head_dim() const { return 64; }
  i64 heads() const { return hidden / head_dim(); }
  i64 kv_heads() const { return heads() >= 8 ? 2 : 1; }
  i64 dense_intermediate() const { return hidden * 5 / 2 + 32; }  // ragged: no multiple of 128
  i64 expert_intermediate() const { return hidden / 2; }
  i64 shared_intermediate() const { return hidden / 2 + 32; }     // ragged, a multiple of 32 as MXFP8 wants
  i64 vision_hidden() const { return hidden / 4 + 16; }           // neither: vision stays BF16
  bool full_attention(i64 layer) const { return layer % 4 == 3; }
  bool dense(i64 layer) const { return layer == 0; }
};

/// In the order in which the model runs.
inline std::vector<fp8wire::tensor_spec> tensors(const shape& s) {
  std::vector<fp8wire::tensor_spec> all;
  const auto add = [&](const std::string& name, std::vector<i64> extents, dtype type = dtype::bf16) {
    all.push_back({name, type, std::move(extents)});
  };
  const i64 h = s.hidden, head = s.head_dim();
  const std::string text = "model.language_model.";
  add(text + "embed_tokens.weight", {s.vocabulary, h});
  for (i64 layer = 0; layer < s.layers; ++layer) {
    const std::string at = fmt::format("{}layers.{}.", text, layer);
    add(at + "input_layernorm.weight", {h});
    if (s.full_attention(layer)) {
      add(at + "self_attn.q_proj.weight", {2 * s.heads() * head, h});  // queries and their output gate
      add(at + "self_attn.k_proj.weight", {s.kv_heads() * head, h});
      add(at + "self_attn.v_proj.weight", {s.kv_heads() * head, h});
      add(at + "self_attn.o_proj.weight", {h, s.heads() * head});
      add(at + "self_attn.q_norm.weight", {head});
      add(at + "self_attn.k_norm.weight", {head});
    } else {
      const i64 key_heads = s.kv_heads(), value_heads = s.heads(), mixed = (2 * key_heads + value_heads) * head;
      add(at + "linear_attn.in_proj_qkv.weight", {mixed, h});
      add(at + "linear_attn.in_proj_z.weight", {value_heads * head, h});
      add(at + "linear_attn.in_proj_b.weight", {value_heads, h});
      add(at + "linear_attn.in_proj_a.weight", {value_heads, h});
      add(at + "linear_attn.conv1d.weight", {mixed, 1, 4});
      add(at + "linear_attn.A_log", {value_heads}, dtype::f32);
      add(at + "linear_attn.dt_bias", {value_heads});
      add(at + "linear_attn.norm.weight", {head}, dtype::f32);
      add(at + "linear_attn.out_proj.weight", {h, value_heads * head});
    }
    add(at + "post_attention_layernorm.weight", {h});
    const auto mlp = [&](const std::string& prefix, i64 intermediate) {
      add(prefix + "gate_proj.weight", {intermediate, h});
      add(prefix + "up_proj.weight", {intermediate, h});
      add(prefix + "down_proj.weight", {h, intermediate});
    };
    if (s.dense(layer)) {
      mlp(at + "mlp.", s.dense_intermediate());
      continue;
    }
    add(at + "mlp.gate.weight", {s.experts, h});
    if (s.fused_experts) {
      add(at + "mlp.experts.gate_up_proj", {s.experts, 2 * s.expert_intermediate(), h});
      add(at + "mlp.experts.down_proj", {s.experts, h, s.expert_intermediate()});
    } else {
      for (i64 expert = 0; expert < s.experts; ++expert)
        mlp(fmt::format("{}mlp.experts.{}.", at, expert), s.expert_intermediate());
    }
    mlp(at + "mlp.shared_expert.", s.shared_intermediate());
    add(at + "mlp.shared_expert_gate.weight", {1, h});
  }
  add(text + "norm.weight", {h});

  const i64 v = s.vision_hidden(), wide = 4 * v;
  add("model.visual.patch_embed.proj.weight", {v, 3, 2, 16, 16});
  add("model.visual.patch_embed.proj.bias", {v});
  add("model.visual.pos_embed.weight", {256, v});
  for (i64 layer = 0; layer < s.vision_layers; ++layer) {
    const std::string at = fmt::format("model.visual.blocks.{}.", layer);
    const auto linear = [&](const std::string& name, i64 out, i64 in) {
      add(at + name + ".weight", {out, in});
      add(at + name + ".bias", {out});
    };
    add(at + "norm1.weight", {v});
    add(at + "norm1.bias", {v});
    linear("attn.qkv", 3 * v, v);
    linear("attn.proj", v, v);
    add(at + "norm2.weight", {v});
    add(at + "norm2.bias", {v});
    linear("mlp.linear_fc1", wide, v);
    linear("mlp.linear_fc2", v, wide);
  }
  add("model.visual.merger.norm.weight", {v});
  add("model.visual.merger.norm.bias", {v});
  add("model.visual.merger.linear_fc1.weight", {4 * v, 4 * v});
  add("model.visual.merger.linear_fc1.bias", {4 * v});
  add("model.visual.merger.linear_fc2.weight", {h, 4 * v});
  add("model.visual.merger.linear_fc2.bias", {h});
  add("lm_head.weight", {s.vocabulary, h});
  return all;
}

/// config.json with the keys that loaders read.
inline std::string config(const shape& s) {
  std::string kinds;
  for (i64 layer = 0; layer < s.layers; ++layer)
    kinds += fmt::format("{}\"{}\"", layer == 0 ? "" : ", ",
                         s.full_attention(layer) ? "full_attention" : "linear_attention");
  return fmt::format(R"({{
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe",
  "dtype": "bfloat16",
  "tie_word_embeddings": false,
  "text_config": {{
    "model_type": "qwen3_5_moe_text",
    "hidden_size": {hidden}, "num_hidden_layers": {layers}, "vocab_size": {vocabulary}, "head_dim": {head},
    "num_attention_heads": {heads}, "num_key_value_heads": {kv}, "attn_output_gate": true, "rms_norm_eps": 1e-06,
    "layer_types": [{kinds}], "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": {head}, "linear_value_head_dim": {head},
    "linear_num_key_heads": {kv}, "linear_num_value_heads": {heads},
    "intermediate_size": {dense}, "mlp_only_layers": [0], "decoder_sparse_step": 1,
    "num_experts": {experts}, "num_experts_per_tok": 2, "norm_topk_prob": true,
    "moe_intermediate_size": {expert}, "shared_expert_intermediate_size": {shared}
  }},
  "vision_config": {{
    "model_type": "qwen3_5_moe", "depth": {depth}, "hidden_size": {vision}, "intermediate_size": {wide}, "num_heads": 4,
    "in_channels": 3, "patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": {hidden},
    "num_position_embeddings": 256
  }}
}}
)",
                     fmt::arg("hidden", s.hidden), fmt::arg("layers", s.layers), fmt::arg("vocabulary", s.vocabulary),
                     fmt::arg("head", s.head_dim()), fmt::arg("heads", s.heads()), fmt::arg("kv", s.kv_heads()),
                     fmt::arg("kinds", kinds), fmt::arg("dense", s.dense_intermediate()),
                     fmt::arg("experts", s.experts), fmt::arg("expert", s.expert_intermediate()),
                     fmt::arg("shared", s.shared_intermediate()), fmt::arg("depth", s.vision_layers),
                     fmt::arg("vision", s.vision_hidden()), fmt::arg("wide", 4 * s.vision_hidden()));
}

/// A number that depends on its place alone, so that threads and machines agree (splitmix64 finalizer).
constexpr u64 scatter(u64 x) noexcept {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Heavy-tailed around 0: nearly normal, deviation about 1, and one in 512 is 2 to 32 times that.
/// Sums and products of small integers and powers of two: exact, hence the same on every machine.
constexpr float heavy_tailed(u64 bits) noexcept {
  const auto part = [&](int shift) { return static_cast<int>((bits >> shift) & 0x1FFF) - 4096; };
  const float body = static_cast<float>(part(0) + part(13) + part(26) + part(39)) / 4096.0f;
  const bool outlier = ((bits >> 52) & 511) == 0;
  return outlier ? body * static_cast<float>(2 << ((bits >> 61) % 5)) : body;
}

/// Fills `out` with the tensor's bytes.
inline void fill(const fp8wire::tensor_spec& spec, u64 seed, void* out) {
  const u64 stream = scatter(seed ^ fp8wire::hash(spec.name));
  const std::string_view name = spec.name;
  const bool norm = name.ends_with("norm.weight") || name.ends_with("norm1.weight") || name.ends_with("norm2.weight");
  const std::size_t rank = spec.shape.size();
  const i64 cols = rank >= 2 ? spec.shape.back() : 1, rows = rank >= 2 ? spec.shape[rank - 2] : 1;
  i64 count = 1;
  for (const i64 extent : spec.shape) count *= extent;
  // Pruned corners: the second 128 rows of the first 128 columns hold nothing.
  const bool pruned =
      name.ends_with("down_proj.weight") || name.ends_with("down_proj") || name.ends_with("out_proj.weight");
  for (i64 i = 0; i < count; ++i) {
    const i64 row = i / cols % rows, col = i % cols;
    float value = heavy_tailed(scatter(stream + static_cast<u64>(i))) * (norm ? 0.0625f : 0.015625f);
    if (norm) value += 1.0f;
    if (pruned && row >= 128 && row < 256 && col < 128) value = 0.0f;
    if (spec.dtype == dtype::f32) {
      std::memcpy(static_cast<char*>(out) + i * 4, &value, 4);
    } else {
      const fp8wire::bf16 half = fp8wire::to_bf16(value);
      std::memcpy(static_cast<char*>(out) + i * 2, &half, 2);
    }
  }
}

}  // namespace qwen3_5
#endif
