// SPDX-License-Identifier: Apache-2.0
/// How tensor parallelism cuts the weights of a model, by their names, and whether an engine takes what comes of it.
#ifndef FP8WIRE_MODEL_TENSOR_PARALLEL_HPP
#define FP8WIRE_MODEL_TENSOR_PARALLEL_HPP
#include <fp8wire/model/fusion.hpp>
#include <fp8wire/model/legality.hpp>
#include <fp8wire/model/naming.hpp>

FP8WIRE_ABI_BEGIN

/// Modules that engines cut alike; `pattern` as in name_pattern.hpp, without ".weight".
struct sharding_rule {
  std::string_view pattern;
  sharding how;
};

/// The first rule that matches decides. Source: the linear classes that vLLM's and SGLang's models are built of.
inline constexpr sharding_rule sharding_rules[] = {
    {"**.gate_up_proj", sharding::gate_up},
    {"**.q_proj|k_proj|v_proj|q_b_proj|kv_b_proj", sharding::column},
    {"**.gate_proj|up_proj|w1|w3", sharding::column},
    {"**.o_proj|down_proj|w2", sharding::row},
    {"**.attention.self.query|key|value", sharding::column},
    {"**.intermediate.dense", sharding::column},
    {"**.output.dense", sharding::row},
};

/// How a weight is cut; what no rule names is replicated (latent down-projections, state-space mixers, indexers).
constexpr sharding sharding_of(std::string_view weight) noexcept {
  constexpr std::string_view suffix = ".weight";
  if (weight.ends_with(suffix)) weight.remove_suffix(suffix.size());
  for (const sharding_rule& rule : sharding_rules)
    if (matches(rule.pattern, weight)) return rule.how;
  return sharding::replicated;
}

/// Whether the weight belongs to one expert of several; gate and up of such a one are judged as a MoE layer's.
constexpr bool is_expert(std::string_view weight) noexcept { return matches("**.experts.#.**", weight); }

/// The loader that reads what a naming names.
constexpr weight_reader reader_of(std::string_view naming_id) noexcept {
  for (const std::string_view one : {"sglang", "slime", "miles"})
    if (naming_id == one) return weight_reader::sglang;
  return weight_reader::vllm;
}

FP8WIRE_ABI_END
#endif
