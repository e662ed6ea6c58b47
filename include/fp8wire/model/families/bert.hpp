// SPDX-License-Identifier: Apache-2.0
/// BERT and what is shaped like it; small enough to be real test data.
///
/// Source: the linear modules that vLLM builds for BertModel.
#ifndef FP8WIRE_MODEL_FAMILIES_BERT_HPP
#define FP8WIRE_MODEL_FAMILIES_BERT_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view bert_types[] = {"bert"};
inline constexpr family_rule bert_rules[] = {
    {"**.encoder.layer.#.attention.self.query|key|value", verdict::quantized, "attention"},
    {"**.encoder.layer.#.attention.output.dense", verdict::quantized, "attention"},
    {"**.encoder.layer.#.intermediate|output.dense", verdict::quantized, "MLP"},
    {"**.pooler.dense", verdict::kept, "pooler"},
    {"cls.**", verdict::kept, "output head"},
};
inline constexpr family bert{"bert", bert_types, bert_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
