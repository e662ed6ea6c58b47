// SPDX-License-Identifier: Apache-2.0
#include "engine_config.hpp"

#include <set>

#include <fp8wire/model/eligibility.hpp>
#include <fp8wire/version.hpp>

namespace programs {
namespace {

namespace json = fp8wire::json;

/// Spelled as engines match them: with the checkpoint's prefix, and with that of the text model alone.
json::value ignored_modules(const std::vector<std::string>& kept) {
  constexpr std::string_view inner = "model.language_model.";
  std::set<std::string> names;
  for (const std::string& weight : kept) {
    const std::string module(fp8wire::module_of(weight));
    names.insert(module);
    if (module.starts_with(inner)) names.insert("model." + module.substr(inner.size()));
  }
  json::value list = json::value::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

json::value pair_of(int first, int second) {
  json::value list = json::value::array();
  list.push_back(first);
  list.push_back(second);
  return list;
}

json::value compressed_tensors(const quantizer& preset, json::value ignored) {
  json::value weights, group, config;
  weights["num_bits"] = 8;
  weights["type"] = "float";
  weights["symmetric"] = true;
  weights["dynamic"] = false;
  json::value activations = weights;
  activations["dynamic"] = true;
  activations["strategy"] = "group";
  activations["group_size"] = preset.microscaling ? 32 : preset.block_cols;
  if (preset.microscaling) {
    weights["strategy"] = "group";
    weights["group_size"] = 32;
    weights["scale_dtype"] = activations["scale_dtype"] = "torch.uint8";
  } else {
    weights["strategy"] = "block";
    weights["block_structure"] = pair_of(preset.block_rows, preset.block_cols);
  }
  group["targets"].push_back("Linear");
  group["weights"] = std::move(weights);
  group["input_activations"] = std::move(activations);
  config["quant_method"] = "compressed-tensors";
  config["format"] = preset.microscaling ? "mxfp8-quantized" : "float-quantized";
  config["quantization_status"] = "compressed";
  config["config_groups"]["group_0"] = std::move(group);
  config["ignore"] = std::move(ignored);
  return config;
}

}  // namespace

json::value quantization_config(const quantizer& preset, const std::vector<std::string>& kept) {
  json::value config, ignored = ignored_modules(kept);
  if (chosen_naming.id == "compressed-tensors") return compressed_tensors(preset, std::move(ignored));
  if (preset.microscaling && chosen_naming.id != "sglang") {
    config["quant_method"] = "modelopt";
    config["quant_algo"] = "MXFP8";
    config["ignore"] = std::move(ignored);
    return config;
  }
  config["quant_method"] = preset.microscaling ? "mxfp8" : "fp8";
  config["fmt"] = preset.codes == fp8wire::dtype::f8_e5m2 ? "e5m2" : "e4m3";
  config["activation_scheme"] = "dynamic";
  config["weight_block_size"] = pair_of(preset.block_rows, preset.block_cols);
  if (preset.scale == "pow2" || preset.scale == "e8m0") config["scale_fmt"] = "ue8m0";
  config["modules_to_not_convert"] = std::move(ignored);
  return config;
}

json::value modelopt_config(const json::value& config) {
  json::value file;
  if (const json::value* method = config.find("quant_method"); method == nullptr || method->text() != "modelopt")
    return file;
  file["producer"]["name"] = "fp8wire";
  file["producer"]["version"] = fp8wire::version_string;
  json::value& quantization = file["quantization"];
  quantization["quant_algo"] = "MXFP8";
  quantization["group_size"] = 32;
  quantization["kv_cache_quant_algo"] = json::value();  // vLLM wants this key and the next, whatever they hold
  quantization["exclude_modules"] = *config.find("ignore");
  return file;
}

}  // namespace programs
