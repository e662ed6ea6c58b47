// SPDX-License-Identifier: Apache-2.0
/// What a model family is here: the names its checkpoints use, and for each of them FP8 or not, with the reason.
#ifndef FP8WIRE_MODEL_FAMILY_HPP
#define FP8WIRE_MODEL_FAMILY_HPP
#include <span>

#include <fp8wire/model/name_pattern.hpp>

FP8WIRE_ABI_BEGIN

/// What becomes of a tensor.
enum class verdict : u8 {
  quantized,
  kept,   // a matrix that stays in its own dtype, by a rule that says why
  copied  // no weight matrix at all
};

constexpr std::string_view name_of(verdict what) noexcept {
  return what == verdict::quantized ? "quantized" : what == verdict::kept ? "kept" : "copied";
}

/// How a tensor that a rule is about is called.
enum class tensor_form : u8 {
  weight,  // pattern.weight
  bare     // the pattern alone: fused experts as transformers 5 stores them, [experts, rows, cols]
};

/// The first rule that matches decides. `pattern` is of the module, without ".weight" (name_pattern.hpp).
struct family_rule {
  std::string_view pattern;
  verdict what = verdict::kept;
  std::string_view reason;
  tensor_form form = tensor_form::weight;
};

/// One family. A name that no rule knows is kept: a guess would be FP8 on one side and BF16 on the other.
struct family {
  std::string_view name;                          // as --model takes it
  std::span<const std::string_view> model_types;  // in config.json
  std::span<const family_rule> rules;             // after the common ones
};

/// What no family quantizes, whatever it calls the rest.
inline constexpr family_rule common_rules[] = {
    {"**.~embed|~embedding|~embeddings|wte|wpe.**", verdict::kept, "embedding"},
    {"**.lm_head|embed_out", verdict::kept, "output head"},
    {"output", verdict::kept, "output head"},
    {"**.~norm|~layernorm|~rmsnorm|~ln", verdict::kept, "norm"},
    {"**.gate|shared_expert_gate|~router", verdict::kept, "router"},
    {"**.router.**", verdict::kept, "router"},
};

FP8WIRE_ABI_END
#endif
