// SPDX-License-Identifier: Apache-2.0
/// What config.json says about the FP8 tensors beside it, as the engine behind the chosen naming reads it.
#ifndef FP8WIRE_EXAMPLES_CONVERT_ENGINE_CONFIG_HPP
#define FP8WIRE_EXAMPLES_CONVERT_ENGINE_CONFIG_HPP
#include <string>
#include <vector>

#include <fp8wire/io/json.hpp>

#include "../common/quantizer.hpp"

namespace programs {

/// The value of "quantization_config". `kept`: weights that stayed as they are.
fp8wire::json::value quantization_config(const quantizer& preset, const std::vector<std::string>& kept);

/// hf_quant_config.json, which ModelOpt writes beside config.json; null for other engines.
fp8wire::json::value modelopt_config(const fp8wire::json::value& quantization_config);

}  // namespace programs
#endif
