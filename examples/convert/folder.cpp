// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"

#include <algorithm>
#include <filesystem>

#include "../common/report.hpp"
#include "../common/target.hpp"

namespace programs {
namespace {

namespace fs = std::filesystem;
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
  plan.select.only = options.only;
  plan.select.keep = options.keep;
  plan.folder = fs::is_directory(input);
  if (!plan.folder) {
    if (is_pickle(input)) refuse_pickle(input);
    plan.shards.push_back(plan_shard(input, fs::path(output).filename().string(), plan.select, how));
    return plan;
  }
  std::vector<std::string> shards;
  for (const auto& entry : fs::recursive_directory_iterator(input, fs::directory_options::follow_directory_symlink)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = fs::relative(entry.path(), input).string();
    if (entry.path().extension() == ".safetensors" && name.find('/') == std::string::npos) shards.push_back(name);
    else if (name != "config.json" && name != "model.safetensors.index.json") plan.other_files.push_back(name);
  }
  std::sort(shards.begin(), shards.end());
  std::sort(plan.other_files.begin(), plan.other_files.end());
  if (shards.empty()) {
    for (const std::string& file : plan.other_files)
      if (is_pickle(file)) refuse_pickle((fs::path(input) / file).string());
    refuse("{}: no *.safetensors file in it", input);
  }
  for (const std::string& shard : shards)
    plan.shards.push_back(plan_shard((fs::path(input) / shard).string(), shard, plan.select, how));
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
    const fs::path to = fs::path(path) / file;
    fs::create_directories(to.parent_path());
    fs::copy_file(fs::path(plan.input) / file, to);
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
  return fmt::format("{}: {} tensors in FP8 ({}), {} -> {} in {:.1f} s{}", output, quantized, how.preset->name,
                     size_text(plan.in_bytes()), size_text(plan.out_bytes()), seconds,
                     verified ? ", every byte verified" : "");
}

}  // namespace programs
