// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/model/tensor_parallel.hpp>

using namespace fp8wire;

TEST_CASE("names say how a weight is cut, and what no rule names is replicated") {
  CHECK(sharding_of("model.layers.0.self_attn.q_proj.weight") == sharding::column);
  CHECK(sharding_of("model.layers.0.mlp.experts.3.up_proj.weight") == sharding::column);
  CHECK(sharding_of("model.layers.0.block_sparse_moe.experts.3.w3.weight") == sharding::column);
  CHECK(sharding_of("bert.encoder.layer.0.attention.self.query.weight") == sharding::column);
  CHECK(sharding_of("bert.encoder.layer.0.intermediate.dense.weight") == sharding::column);
  CHECK(sharding_of("model.layers.0.self_attn.o_proj.weight") == sharding::row);
  CHECK(sharding_of("model.layers.0.mlp.experts.down_proj") == sharding::row);
  CHECK(sharding_of("bert.encoder.layer.0.attention.output.dense.weight") == sharding::row);
  CHECK(sharding_of("model.layers.0.mlp.experts.gate_up_proj") == sharding::gate_up);
  CHECK(sharding_of("model.layers.0.self_attn.kv_a_proj_with_mqa.weight") == sharding::replicated);
  CHECK(sharding_of("model.layers.0.self_attn.not_q_proj.weight") == sharding::replicated);
  CHECK(sharding_of("a.weight") == sharding::replicated);
}

TEST_CASE("experts are known by their number, loaders by the naming they read") {
  CHECK(is_expert("model.layers.0.mlp.experts.17.gate_proj.weight"));
  CHECK_FALSE(is_expert("model.layers.0.mlp.gate_proj.weight"));
  CHECK_FALSE(is_expert("model.layers.0.mlp.shared_experts.gate_proj.weight"));
  CHECK(reader_of("vllm") == weight_reader::vllm);
  CHECK(reader_of("sglang") == weight_reader::sglang);
  CHECK(reader_of("miles") == weight_reader::sglang);
}
