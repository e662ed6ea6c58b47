// SPDX-License-Identifier: Apache-2.0
/// Nemotron-H: Mamba-2, attention, MLP or experts, each of them the "mixer" of its layer.
///
/// Engines decide by module here and build every linear one in FP8. Source: NeMo-RL fp8.py:437-454 at 7ea279abf.
#ifndef FP8WIRE_MODEL_FAMILIES_NEMOTRON_H_HPP
#define FP8WIRE_MODEL_FAMILIES_NEMOTRON_H_HPP
#include <fp8wire/model/family.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr std::string_view nemotron_h_types[] = {"nemotron_h"};
inline constexpr family_rule nemotron_h_rules[] = {
    {"**.mixer.in_proj|out_proj", verdict::quantized, "Mamba"},
    {"**.mixer.conv1d", verdict::kept, "convolution"},
    {"**.mixer.q_proj|k_proj|v_proj|o_proj", verdict::quantized, "attention"},
    {"**.mixer.up_proj|down_proj", verdict::quantized, "MLP"},
    {"**.mixer.experts.#.up_proj|down_proj", verdict::quantized, "routed expert"},
    {"**.mixer.experts.up_proj|down_proj", verdict::quantized, "routed experts", tensor_form::bare},
    {"**.mixer.shared_experts.up_proj|down_proj", verdict::quantized, "shared expert"},
    {"**.mixer.fc1_latent_proj|fc2_latent_proj", verdict::quantized, "latent projection"},
    {"mtp.**.eh_proj", verdict::kept, "joins the draft head to the model"},
};
inline constexpr family nemotron_h{"nemotron-h", nemotron_h_types, nemotron_h_rules};

}  // namespace families
FP8WIRE_ABI_END
#endif
