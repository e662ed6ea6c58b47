// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/io/engine_config.hpp>

namespace fw = fp8wire;
namespace json = fp8wire::json;
using fw::config_dialect;
using fw::engine_config;
using fw::errc;

namespace {

/// The form that the engine's own writers give it, spaces aside.
std::string compact(const json::value& value) {
  std::string text;
  bool quoted = false;
  for (const char c : json::write(value)) {
    if (c == '"') quoted = !quoted;
    if (quoted || (c != ' ' && c != '\n')) text += c;
  }
  return text;
}
engine_config made(config_dialect dialect, bool microscaling, bool power_of_two = false) {
  engine_config config;
  config.dialect = dialect;
  config.microscaling = microscaling;
  config.power_of_two = power_of_two || (microscaling && dialect == config_dialect::fp8);
  if (microscaling) config.block_rows = 1, config.block_cols = 32;
  config.ignored = {"lm_head", "model.layers.0.mlp.gate"};
  return config;
}
fw::result<engine_config> read(const std::string& text) {
  const auto parsed = json::parse(text, "config.json");
  REQUIRE(parsed);
  return fw::read_engine_config(*parsed, "config.json");
}

}  // namespace

TEST_CASE("block FP8 as vLLM and SGLang read it") {
  CHECK(compact(fw::quantization_config(made(config_dialect::fp8, false))) ==
        R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[128,128],)"
        R"("modules_to_not_convert":["lm_head","model.layers.0.mlp.gate"]})");
  CHECK(compact(fw::quantization_config(made(config_dialect::fp8, false, true))).find(R"("scale_fmt":"ue8m0")") !=
        std::string::npos);
  engine_config other = made(config_dialect::fp8, false);
  other.element = "e5m2";
  CHECK(fw::quantization_config(other).find("fmt")->text() == "e5m2");
  CHECK(read(json::write(fw::quantization_config(other))).value() == other);
}

TEST_CASE("MXFP8 as SGLang and miles have it") {
  CHECK(compact(fw::quantization_config(made(config_dialect::fp8, true))) ==
        R"({"quant_method":"mxfp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[1,32],)"
        R"("scale_fmt":"ue8m0","modules_to_not_convert":["lm_head","model.layers.0.mlp.gate"]})");
}

TEST_CASE("MXFP8 as ModelOpt has it, with the keys that vLLM insists on") {
  const engine_config config = made(config_dialect::modelopt, true);
  CHECK(compact(fw::quantization_config(config)) ==
        R"({"quant_method":"modelopt","quant_algo":"MXFP8","ignore":["lm_head","model.layers.0.mlp.gate"]})");
  CHECK(compact(fw::modelopt_file(config)) ==
        std::string(R"({"producer":{"name":"fp8wire","version":")") + std::string(fw::version_string) +
            R"("},"quantization":{"quant_algo":"MXFP8","group_size":32,"kv_cache_quant_algo":null,)"
            R"("exclude_modules":["lm_head","model.layers.0.mlp.gate"]}})");
  engine_config empty = config;
  empty.ignored.clear();
  CHECK(compact(fw::modelopt_file(empty)).find(R"("exclude_modules":[])") != std::string::npos);
  CHECK_THROWS_AS(fw::quantization_config(made(config_dialect::modelopt, false)), fw::precondition_error);
}

TEST_CASE("compressed-tensors, block and MXFP8") {
  CHECK(compact(fw::quantization_config(made(config_dialect::compressed_tensors, false))) ==
        R"({"quant_method":"compressed-tensors","format":"float-quantized","quantization_status":"compressed",)"
        R"("config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","symmetric":true,)"
        R"("dynamic":false,"strategy":"block","block_structure":[128,128]},"input_activations":{"num_bits":8,)"
        R"("type":"float","symmetric":true,"dynamic":true,"strategy":"group","group_size":128}}},)"
        R"("ignore":["lm_head","model.layers.0.mlp.gate"]})");
  CHECK(compact(fw::quantization_config(made(config_dialect::compressed_tensors, true))) ==
        R"({"quant_method":"compressed-tensors","format":"mxfp8-quantized","quantization_status":"compressed",)"
        R"("config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","symmetric":true,)"
        R"("dynamic":false,"strategy":"group","group_size":32,"scale_dtype":"torch.uint8"},"input_activations":)"
        R"({"num_bits":8,"type":"float","symmetric":true,"dynamic":true,"strategy":"group","group_size":32,)"
        R"("scale_dtype":"torch.uint8"}}},"ignore":["lm_head","model.layers.0.mlp.gate"]})");
}

TEST_CASE("what is written reads back the same, names escaped or not") {
  for (const config_dialect dialect :
       {config_dialect::fp8, config_dialect::modelopt, config_dialect::compressed_tensors})
    for (const bool microscaling : {false, true}) {
      if (dialect == config_dialect::modelopt && !microscaling) continue;
      CAPTURE(static_cast<int>(dialect));
      CAPTURE(microscaling);
      engine_config config = made(dialect, microscaling);
      config.ignored.push_back("a\"b\\c\n\xC3\xA9");
      const auto back = read(json::write(fw::quantization_config(config)));
      REQUIRE_MESSAGE(back.ok(), back.error().message());
      CHECK(*back == config);
      if (dialect == config_dialect::modelopt) {
        const auto file = read(json::write(fw::modelopt_file(config)));
        REQUIRE(file);
        CHECK(*file == config);
      }
    }
}

TEST_CASE("published configurations are read") {
  const auto deepseek = read(R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",
                                 "scale_fmt":"ue8m0","weight_block_size":[128,128]})");
  REQUIRE(deepseek);
  CHECK(deepseek->power_of_two);
  CHECK(deepseek->ignored.empty());
  const auto both = read(R"({"activation_scheme":"dynamic","quant_method":"fp8","weight_block_size":[64,32],
                             "ignored_layers":["a"],"modules_to_not_convert":["b"]})");
  REQUIRE(both);
  CHECK(both->ignored == std::vector<std::string>{"a"});
  CHECK(both->block_rows == 64);
  CHECK(both->block_cols == 32);
  const auto miles = read(R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"mxfp8"})");
  REQUIRE(miles);
  CHECK(miles->microscaling);
}

TEST_CASE("what an engine would refuse or misread is refused with the key's name") {
  struct row {
    const char* text;
    errc code;
    const char* says;
  };
  const row rows[] = {
      {R"({"quant_method":"gptq"})", errc::unsupported, "quant_method"},
      {R"({})", errc::bad_file, "quant_method is not a text"},
      {R"([])", errc::bad_file, "quant_method"},
      {R"({"quant_method":"fp8","weight_block_size":[128,128]})", errc::bad_file, "activation_scheme"},
      {R"({"quant_method":"fp8","activation_scheme":"static","weight_block_size":[128,128]})", errc::bad_file,
       "dynamic"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic"})", errc::bad_file, "weight_block_size"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128]})", errc::bad_file, "pair"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,0]})", errc::bad_file, "pair"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,1.5]})", errc::bad_file, "pair"},
      {R"({"quant_method":"mxfp8","activation_scheme":"dynamic","weight_block_size":[128,128]})", errc::bad_file,
       "[1, 32]"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128],"ignored_layers":"a"})",
       errc::bad_file, "ignored_layers"},
      {R"({"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128],"ignored_layers":[1]})",
       errc::bad_file, "ignored_layers"},
      {R"({"quant_method":"modelopt","quant_algo":"FP8"})", errc::unsupported, "quant_algo"},
      {R"({"quantization":{"quant_algo":"MXFP8","exclude_modules":[]}})", errc::bad_file, "kv_cache_quant_algo"},
      {R"({"quantization":{"quant_algo":"MXFP8","kv_cache_quant_algo":null}})", errc::bad_file, "exclude_modules"},
      {R"({"quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":null,"exclude_modules":null}})",
       errc::unsupported, "quant_algo"},
      {R"({"quant_method":"compressed-tensors"})", errc::unsupported, "config_groups"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":4,"type":"int"}}}})",
       errc::unsupported, "8-bit"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":8,"type":"float",)"
       R"("strategy":"group","group_size":16}}}})",
       errc::unsupported, "group_size"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":8,"type":"float",)"
       R"("strategy":"block"}}}})",
       errc::bad_file, "block_structure"},
  };
  for (const row& one : rows) {
    CAPTURE(std::string(one.text));
    const auto got = read(one.text);
    CHECK(got.error().code == one.code);
    CHECK(got.error().tensor == "config.json");
    CHECK_MESSAGE(got.error().what.find(one.says) != std::string::npos, got.error().what);
  }
}

TEST_CASE("the dialect follows from the naming") {
  CHECK(fw::dialect_of("vllm", false) == config_dialect::fp8);
  CHECK(fw::dialect_of("vllm", true) == config_dialect::modelopt);
  CHECK(fw::dialect_of("modelopt", true) == config_dialect::modelopt);
  CHECK(fw::dialect_of("nemo", true) == config_dialect::modelopt);
  CHECK(fw::dialect_of("skyrl", true) == config_dialect::compressed_tensors);
  CHECK(fw::dialect_of("skyrl", false) == config_dialect::fp8);
  CHECK(fw::dialect_of("compressed-tensors", false) == config_dialect::compressed_tensors);
  for (const char* native : {"sglang", "verl", "slime", "miles"})
    CHECK(fw::dialect_of(native, true) == config_dialect::fp8);
}
