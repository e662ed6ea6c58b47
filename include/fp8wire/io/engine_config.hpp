// SPDX-License-Identifier: Apache-2.0
/// What config.json tells an engine about the FP8 tensors beside it: written for each engine, and read back.
///
/// Sources: Fp8Config, ModelOptMxFp8Config and CompressedTensorsConfig of vLLM, Fp8Config of SGLang, and
/// compressed_tensors/quantization/quant_scheme.py at ac8e2ba.
#ifndef FP8WIRE_IO_ENGINE_CONFIG_HPP
#define FP8WIRE_IO_ENGINE_CONFIG_HPP
#include <span>

#include <fp8wire/io/json.hpp>
#include <fp8wire/version.hpp>

FP8WIRE_ABI_BEGIN

/// Whose quantization_config it is; all three are read by vLLM and SGLang.
enum class config_dialect : u8 {
  fp8,                // block scales: quant_method fp8; MXFP8 as SGLang and miles have it: quant_method mxfp8
  modelopt,           // MXFP8
  compressed_tensors  // block scales or MXFP8
};

/// What the engine must be told.
struct engine_config {
  config_dialect dialect = config_dialect::fp8;
  bool microscaling = false;
  i64 block_rows = 128, block_cols = 128;  // of block scales; MXFP8 is 1 x 32
  bool power_of_two = false;               // the scales are, so kernels that want UE8M0 take them unchanged
  std::vector<std::string> ignored;        // modules (model/ignored_modules.hpp)
  std::string element = "e4m3";            // of the codes; all engines want this one
  bool operator==(const engine_config&) const = default;
};

/// The dialect that goes with a naming's id for that kind of scales.
constexpr config_dialect dialect_of(std::string_view naming_id, bool microscaling) noexcept {
  if (naming_id == "compressed-tensors" || (naming_id == "skyrl" && microscaling))
    return config_dialect::compressed_tensors;
  const bool native = naming_id == "sglang" || naming_id == "verl" || naming_id == "slime" || naming_id == "miles";
  return microscaling && !native ? config_dialect::modelopt : config_dialect::fp8;
}

namespace detail {

inline json::value json_list(std::span<const std::string> texts) {
  json::value list = json::value::array();
  for (const std::string& one : texts) list.push_back(one);
  return list;
}

inline json::value json_block(const engine_config& config) {
  json::value list = json::value::array();
  list.push_back(config.microscaling ? i64{1} : config.block_rows);
  list.push_back(config.microscaling ? i64{32} : config.block_cols);
  return list;
}

inline json::value compressed_tensors_config(const engine_config& config) {
  json::value weights;
  weights["num_bits"] = 8;
  weights["type"] = "float";
  weights["symmetric"] = true;
  json::value activations = weights;
  weights["dynamic"] = false;
  activations["dynamic"] = true;
  activations["strategy"] = "group";
  activations["group_size"] = config.microscaling ? i64{32} : config.block_cols;
  if (config.microscaling) {
    weights["strategy"] = "group";
    weights["group_size"] = 32;
    weights["scale_dtype"] = activations["scale_dtype"] = "torch.uint8";
  } else {
    weights["strategy"] = "block";
    weights["block_structure"] = json_block(config);
  }
  json::value group, made;
  group["targets"].push_back("Linear");
  group["weights"] = std::move(weights);
  group["input_activations"] = std::move(activations);
  made["quant_method"] = "compressed-tensors";
  made["format"] = config.microscaling ? "mxfp8-quantized" : "float-quantized";
  made["quantization_status"] = "compressed";
  made["config_groups"]["group_0"] = std::move(group);
  made["ignore"] = json_list(config.ignored);
  return made;
}

}  // namespace detail

/// The value of config.json's "quantization_config". Expects: modelopt only for MXFP8. Checked: throws
/// precondition_error.
inline json::value quantization_config(const engine_config& config) {
  if (config.dialect == config_dialect::compressed_tensors) return detail::compressed_tensors_config(config);
  json::value made;
  if (config.dialect == config_dialect::modelopt) {
    detail::expect_equal(config.microscaling ? 1 : 0, 1, "quantization_config: ModelOpt's form is for MXFP8");
    made["quant_method"] = "modelopt";
    made["quant_algo"] = "MXFP8";
    made["ignore"] = detail::json_list(config.ignored);
    return made;
  }
  made["quant_method"] = config.microscaling ? "mxfp8" : "fp8";
  made["fmt"] = config.element;
  made["activation_scheme"] = "dynamic";
  made["weight_block_size"] = detail::json_block(config);
  if (config.power_of_two || config.microscaling) made["scale_fmt"] = "ue8m0";
  made["modules_to_not_convert"] = detail::json_list(config.ignored);
  return made;
}

/// hf_quant_config.json, the file that ModelOpt writes beside config.json. vLLM refuses it without the two keys at the
/// end, whatever they hold.
inline json::value modelopt_file(const engine_config& config) {
  json::value file;
  file["producer"]["name"] = "fp8wire";
  file["producer"]["version"] = version_string;
  json::value& quantization = file["quantization"];
  quantization["quant_algo"] = "MXFP8";
  quantization["group_size"] = 32;
  quantization["kv_cache_quant_algo"] = json::value();
  quantization["exclude_modules"] = detail::json_list(config.ignored);
  return file;
}

namespace detail {

/// Reads members of one object and remembers the first fault.
class config_reader {
 public:
  config_reader(const json::value& object, std::string_view source) : object_(object), source_(source) {}

  const error& fault() const noexcept { return fault_; }
  bool has(std::string_view key) const noexcept { return object_.find(key) != nullptr; }
  std::string text(std::string_view key) {
    const json::value* const found = object_.find(key);
    if (found == nullptr || !found->is(json::kind::string)) return refuse(key, "is not a text"), std::string();
    return found->text();
  }
  i64 integer(std::string_view key) {
    i64 number = 0;
    const json::value* const found = object_.find(key);
    if (found == nullptr || !found->to_integer(number) || number < 1) refuse(key, "is not a whole number above 0");
    return number;
  }
  void block(std::string_view key, engine_config& into) {
    const json::value* const found = object_.find(key);
    const bool two = found != nullptr && found->is(json::kind::array) && found->items().size() == 2;
    if (!two || !found->items()[0].to_integer(into.block_rows) || !found->items()[1].to_integer(into.block_cols) ||
        into.block_rows < 1 || into.block_cols < 1)
      refuse(key, "is not a pair of whole numbers above 0");
  }
  /// Missing and null are an empty list.
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> list;
    const json::value* const found = object_.find(key);
    if (found == nullptr || found->is(json::kind::null)) return list;
    if (!found->is(json::kind::array)) return refuse(key, "is not a list of texts"), list;
    for (const json::value& one : found->items()) {
      if (!one.is(json::kind::string)) return refuse(key, "is not a list of texts"), list;
      list.push_back(one.text());
    }
    return list;
  }
  void refuse(std::string_view key, std::string_view why, errc code = errc::bad_file) {
    if (!fault_) fault_ = make_error(code, std::string(source_), std::string(key).append(" ").append(why));
  }

 private:
  const json::value& object_;
  std::string_view source_;
  error fault_;
};

inline void read_compressed_tensors(const json::value& object, std::string_view source, engine_config& into,
                                    config_reader& reader) {
  into.dialect = config_dialect::compressed_tensors;
  into.ignored = reader.texts("ignore");
  const json::value* const groups = object.find("config_groups");
  if (groups == nullptr || groups->items().size() != 1)
    return reader.refuse("config_groups", "must hold one group: another mix is not known here", errc::unsupported);
  const json::value* const weights = groups->items().front().find("weights");
  if (weights == nullptr) return reader.refuse("config_groups", "has no weights");
  config_reader inner(*weights, source);
  if (inner.text("type") != "float" || inner.integer("num_bits") != 8)
    return reader.refuse("config_groups", "is not of 8-bit floats", errc::unsupported);
  const std::string strategy = inner.text("strategy");
  into.microscaling = strategy == "group";
  if (into.microscaling && inner.integer("group_size") != 32)
    reader.refuse("group_size", "must be 32 for MXFP8", errc::unsupported);
  if (!into.microscaling && strategy != "block") reader.refuse("strategy", "must be block or group", errc::unsupported);
  if (!into.microscaling) inner.block("block_structure", into);
  if (inner.fault()) reader.refuse("config_groups", inner.fault().what);
}

}  // namespace detail

/// Reads a quantization_config (config.json) or a whole hf_quant_config.json. `source` is the file that errors name.
/// Refused, as the engines do: a missing activation_scheme, a hf_quant_config.json without kv_cache_quant_algo or
/// exclude_modules, block sizes that are no pair, MXFP8 with another block than 1 x 32.
/// Errors: bad_file for what is malformed, unsupported for a method or an algorithm that is none of ours.
inline result<engine_config> read_engine_config(const json::value& object, std::string_view source) {
  engine_config made;
  if (const json::value* const inner = object.find("quantization")) {
    detail::config_reader reader(*inner, source);
    made.dialect = config_dialect::modelopt;
    made.microscaling = true;
    if (reader.text("quant_algo") != "MXFP8") reader.refuse("quant_algo", "is not MXFP8", errc::unsupported);
    for (const std::string_view key : {"kv_cache_quant_algo", "exclude_modules"})
      if (!reader.has(key)) reader.refuse(key, "is missing; vLLM refuses the file then");
    made.ignored = reader.texts("exclude_modules");
    made.block_rows = 1, made.block_cols = 32;
    if (reader.fault()) return reader.fault();
    return made;
  }
  detail::config_reader reader(object, source);
  const std::string method = reader.text("quant_method");
  if (method == "compressed-tensors") {
    detail::read_compressed_tensors(object, source, made, reader);
  } else if (method == "modelopt") {
    made.dialect = config_dialect::modelopt;
    made.microscaling = true;
    if (reader.text("quant_algo") != "MXFP8") reader.refuse("quant_algo", "is not MXFP8", errc::unsupported);
    made.ignored = reader.texts("ignore");
  } else if (method == "fp8" || method == "mxfp8") {
    made.microscaling = method == "mxfp8";
    if (const std::string scheme = reader.text("activation_scheme"); scheme != "dynamic")
      reader.refuse("activation_scheme", "must be dynamic with block scales");
    if (!made.microscaling || reader.has("weight_block_size")) reader.block("weight_block_size", made);
    if (made.microscaling && reader.has("weight_block_size") && (made.block_rows != 1 || made.block_cols != 32))
      reader.refuse("weight_block_size", "must be [1, 32] for MXFP8");
    if (reader.has("fmt")) made.element = reader.text("fmt");
    made.power_of_two = made.microscaling || (reader.has("scale_fmt") && reader.text("scale_fmt") == "ue8m0");
    // vLLM looks at the first of the two and falls back to the second.
    made.ignored = reader.texts("ignored_layers");
    if (made.ignored.empty()) made.ignored = reader.texts("modules_to_not_convert");
  } else {
    reader.refuse("quant_method", "is none of fp8, mxfp8, modelopt, compressed-tensors", errc::unsupported);
  }
  if (made.microscaling) made.block_rows = 1, made.block_cols = 32;
  if (reader.fault()) return reader.fault();
  return made;
}

FP8WIRE_ABI_END
#endif
