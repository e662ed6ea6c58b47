// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "../common/report.hpp"
#include "../common/target.hpp"

namespace programs {
namespace {

namespace fs = std::filesystem;
namespace json = fp8wire::json;
using fp8wire::i64;
using fp8wire::u64;

/// Neither may lie in the other: the output would become part of the input, or the input be deleted with the old output.
void expect_apart(const std::string& input, const std::string& output) {
  const bool within = fp8wire::lies_within(output, input), around = fp8wire::lies_within(input, output);
  if (within && around) misuse("OUTPUT is INPUT: {}", output);
  if (within) misuse("OUTPUT {} lies inside INPUT {}", output, input);
  if (around) misuse("INPUT {} lies inside OUTPUT {}", input, output);
}

[[noreturn]] void refuse_pickle(const std::string& file) {
  refuse(
      "{}: a pickle, which can run code when it is read; convert it to safetensors first (with transformers: "
      "model.save_pretrained(FOLDER), safe_serialization on)",
      file);
}

bool is_pickle(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt" ||
         extension == ".pkl";
}

constexpr std::string_view index_name = "model.safetensors.index.json";

/// file -> the tensors that the index reads from it; empty where there is no index.
std::map<std::string, std::set<std::string>> read_index(conversion_plan& plan) {
  const fs::path path = fs::path(plan.input) / index_name;
  plan.has_index = fs::exists(path);
  std::map<std::string, std::set<std::string>> files;
  if (!plan.has_index) return files;
  const json::value index = read_config(path);
  const json::value* map = index.find("weight_map");
  if (map == nullptr || !map->is(json::kind::object)) refuse("{}: has no weight_map", path.string());
  for (std::size_t i = 0; i < map->keys().size(); ++i) {
    const json::value& file = map->items()[i];
    if (!file.is(json::kind::string) || file.text().empty() || file.text().find('/') != std::string::npos ||
        file.text() == "..")
      refuse("{}: {} is in no file of this folder", path.string(), map->keys()[i]);
    files[file.text()].insert(map->keys()[i]);
  }
  for (const auto& [file, names] : files)
    if (!fs::exists(fs::path(plan.input) / file))
      refuse("{}: {} is in {}, which is missing", path.string(), *names.begin(), file);
  if (const json::value* metadata = index.find("metadata")) plan.index_metadata = *metadata;
  return files;
}

/// Written by hand: a value of a hundred thousand members is slow to fill.
std::string index_text(const conversion_plan& plan) {
  i64 total = 0;
  std::map<std::string_view, std::string_view> file_of;
  for (const shard_plan& shard : plan.shards) {
    for (const auto& tensor : shard.out.header.tensors) {
      file_of[tensor.name] = shard.name;
      total += tensor.end - tensor.begin;
    }
  }
  json::value metadata = plan.index_metadata;
  if (!metadata.is(json::kind::object)) metadata = json::value::object();
  metadata["total_size"] = total;
  json::value index;
  index["metadata"] = metadata;
  std::string text = json::write(index);
  text.resize(text.rfind('}') - 1);
  text += ",\n  \"weight_map\": {";
  std::string_view comma = "";
  for (const auto& [name, file] : file_of) {
    text.append(comma).append("\n    ");
    fp8wire::detail::append_json_string(text, name);
    text += ": ";
    fp8wire::detail::append_json_string(text, file);
    comma = ",";
  }
  return text + "\n  }\n}\n";
}

/// Modules whose weights stayed as they are, spelled as engines match them: with and without the language model's prefix.
json::value ignored_modules(const conversion_plan& plan) {
  std::set<std::string> names;
  for (const shard_plan& shard : plan.shards) {
    for (const tensor_plan& tensor : shard.tensors) {
      if (tensor.choice.what == action::quantized || !tensor.in.name.ends_with(".weight") || tensor.in.shape.size() < 2)
        continue;
      const std::string module = tensor.in.name.substr(0, tensor.in.name.size() - 7);
      constexpr std::string_view inner = "model.language_model.";
      names.insert(module);
      if (module.starts_with(inner)) names.insert("model." + module.substr(inner.size()));
    }
  }
  json::value list = json::value::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

json::value list_of(int first, int second) {
  json::value list = json::value::array();
  list.push_back(first);
  list.push_back(second);
  return list;
}

/// What the engine behind the naming reads. Sources: engines' own configuration readers, listed in docs/wire.md.
json::value quantization_config(const conversion_plan& plan, const format& how) {
  const quantizer& preset = *how.preset;
  json::value config;
  const json::value ignored = ignored_modules(plan);
  if (chosen_naming.id == "compressed-tensors") {
    json::value weights;
    weights["num_bits"] = 8;
    weights["type"] = "float";
    weights["symmetric"] = true;
    weights["dynamic"] = false;
    weights["strategy"] = preset.microscaling ? "group" : "block";
    json::value activations = weights;
    activations["dynamic"] = true;
    activations["strategy"] = "group";
    activations["group_size"] = preset.microscaling ? 32 : 128;
    if (preset.microscaling) {
      weights["group_size"] = 32;
      weights["scale_dtype"] = activations["scale_dtype"] = "torch.uint8";
    } else {
      weights["block_structure"] = list_of(preset.block_rows, preset.block_cols);
    }
    json::value group;
    group["targets"].push_back("Linear");
    group["weights"] = weights;
    group["input_activations"] = activations;
    config["quant_method"] = "compressed-tensors";
    config["format"] = preset.microscaling ? "mxfp8-quantized" : "float-quantized";
    config["quantization_status"] = "compressed";
    config["config_groups"]["group_0"] = group;
    config["ignore"] = ignored;
    return config;
  }
  if (preset.microscaling && chosen_naming.id != "sglang") {
    config["quant_method"] = "modelopt";
    config["quant_algo"] = "MXFP8";
    config["group_size"] = 32;
    config["kv_cache_quant_algo"] = json::value();
    config["exclude_modules"] = ignored;
    config["ignore"] = ignored;
    return config;
  }
  config["quant_method"] = preset.microscaling ? "mxfp8" : "fp8";
  config["fmt"] = preset.codes == fp8wire::dtype::f8_e5m2 ? "e5m2" : "e4m3";
  config["activation_scheme"] = "dynamic";
  config["weight_block_size"] = list_of(preset.block_rows, preset.block_cols);
  if (preset.scale != "fp32" && preset.scale != "bf16") config["scale_fmt"] = "ue8m0";
  config["modules_to_not_convert"] = ignored;
  return config;
}

/// The file that ModelOpt writes beside config.json; vLLM refuses it without these keys.
json::value modelopt_config(const json::value& config) {
  json::value file;
  file["producer"]["name"] = "fp8wire";
  file["producer"]["version"] = fp8wire::version_string;
  json::value& quantization = file["quantization"];
  quantization["quant_algo"] = "MXFP8";
  quantization["group_size"] = 32;
  quantization["kv_cache_quant_algo"] = json::value();
  quantization["exclude_modules"] = *config.find("ignore");
  return file;
}

}  // namespace

i64 conversion_plan::in_bytes() const {
  i64 total = 0;
  for (const shard_plan& shard : shards) total += shard.in_bytes;
  return total;
}

i64 conversion_plan::out_bytes() const {
  i64 total = 0;
  for (const shard_plan& shard : shards) total += shard.out_bytes;
  for (const std::string& file : other_files) total += static_cast<i64>(fs::file_size(fs::path(input) / file));
  return total;
}

conversion_plan plan_conversion(const std::string& input, const std::string& output, const format_options& options,
                                const format& how) {
  conversion_plan plan;
  plan.input = input;
  if (!fs::exists(input)) refuse("{}: no such file or folder", input);
  expect_apart(input, output);
  plan.folder = fs::is_directory(input);
  if (plan.folder) plan.config = read_config(fs::path(input) / "config.json");
  plan.select = selection(options, plan.config);
  if (!plan.folder) {
    if (is_pickle(input)) refuse_pickle(input);
    plan.shards.push_back(plan_shard(input, fs::path(output).filename().string(), plan.select, how));
    return plan;
  }
  if (const json::value* already = plan.config.find("quantization_config");
      already != nullptr && !already->is(json::kind::null)) {
    const json::value* method = already->find("quant_method");
    refuse("{}: is quantized already (quant_method {}); convert the checkpoint that it was made of", input,
           method == nullptr ? "unknown" : method->text());
  }
  const std::map<std::string, std::set<std::string>> listed = read_index(plan);
  std::set<std::string> shards;
  for (const auto& [file, names] : listed) shards.insert(file);
  for (const auto& entry : fs::recursive_directory_iterator(input, fs::directory_options::follow_directory_symlink)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = fs::relative(entry.path(), fs::path(input)).string();
    if (shards.contains(name) || name == "config.json" || name == index_name) continue;
    if (!plan.has_index && entry.path().extension() == ".safetensors" && name.find('/') == std::string::npos)
      shards.insert(name);
    else plan.other_files.push_back(name);
  }
  std::sort(plan.other_files.begin(), plan.other_files.end());
  if (shards.empty()) {
    for (const std::string& file : plan.other_files)
      if (is_pickle(file)) refuse_pickle((fs::path(input) / file).string());
    refuse("{}: no *.safetensors file in it", input);
  }
  std::map<std::string, std::string> file_of;
  for (const std::string& shard : shards) {
    plan.shards.push_back(plan_shard((fs::path(input) / shard).string(), shard, plan.select, how,
                                     plan.has_index ? &listed.at(shard) : nullptr));
    for (const auto& tensor : plan.shards.back().out.header.tensors)
      if (const auto [there, fresh] = file_of.emplace(tensor.name, shard); !fresh)
        refuse("{}: stands in {} and in {}", tensor.name, there->second, shard);
  }
  if (!plan.config.is(json::kind::null)) plan.config["quantization_config"] = quantization_config(plan, how);
  return plan;
}

void run_conversion(conversion_plan& plan, const std::string& path, const conversion& how, bool verify) {
  const auto place = [&](const shard_plan& shard) {
    return plan.folder ? (fs::path(path) / shard.name).string() : path;
  };
  {
    progress bar("converting", static_cast<u64>(plan.in_bytes()));
    for (shard_plan& shard : plan.shards) write_shard(shard, place(shard), how, bar);
  }
  for (const std::string& file : plan.other_files) {
    if (file == "hf_quant_config.json") continue;
    const fs::path to = fs::path(path) / file;
    fs::create_directories(to.parent_path());
    fs::copy_file(fs::path(plan.input) / file, to);
  }
  if (plan.has_index) write_text(fs::path(path) / index_name, index_text(plan));
  if (const json::value* config = plan.config.find("quantization_config")) {
    write_text(fs::path(path) / "config.json", json::write(plan.config));
    if (config->find("quant_method")->text() == "modelopt")
      write_text(fs::path(path) / "hf_quant_config.json", json::write(modelopt_config(*config)));
  }
  if (verify) {
    progress bar("verifying", static_cast<u64>(plan.in_bytes()));
    for (const shard_plan& shard : plan.shards) verify_shard(shard, place(shard), how, bar);
  }
}

std::string closing_line(const conversion_plan& plan, const format& how, const std::string& output, bool verified,
                         double seconds) {
  i64 quantized = 0;
  for (const shard_plan& shard : plan.shards)
    quantized += std::count_if(shard.tensors.begin(), shard.tensors.end(),
                               [](const tensor_plan& one) { return one.choice.what == action::quantized; });
  std::string text = fmt::format("{}: {} tensors in FP8 ({} {}), {} -> {} in {:.1f} s{}", output, quantized,
                                 how.preset->name, how.preset->scale, size_text(plan.in_bytes()),
                                 size_text(plan.out_bytes()), seconds, verified ? ", every byte verified" : "");
  if (!plan.folder || plan.config.is(json::kind::null))
    return text + "; put it beside a config.json with a quantization_config to serve it (a folder as INPUT makes one)";
  text += chosen_naming.id == "sglang"
              ? fmt::format("; serve it: python3 -m sglang.launch_server --model-path {}", output)
              : fmt::format("; serve it: vllm serve {}", output);
  return text + (how.preset->microscaling ? " (MXFP8 wants a GPU of SM100 or later)" : "");
}

}  // namespace programs
