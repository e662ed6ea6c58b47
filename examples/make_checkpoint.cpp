// SPDX-License-Identifier: Apache-2.0
// Writes a small checkpoint with the tensors of Qwen3.5 (dense and MoE MLP, gated delta nets, vision), with the same
// bytes for the same seed on every machine. For demonstrations, tests and measurements.
#include <filesystem>

#include <fp8wire/io/json.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

#include "common/program.hpp"
#include "common/progress.hpp"
#include "common/target.hpp"
#include "common/workers.hpp"
#include "qwen3_5.hpp"

namespace {

using fp8wire::i64;
using fp8wire::u64;
using programs::must;

i64 bytes_of(const std::vector<fp8wire::tensor_spec>& tensors) {
  i64 total = 0;
  for (const fp8wire::tensor_spec& one : tensors) total += fp8wire::byte_count(one.dtype, one.shape);
  return total;
}

/// The shape whose checkpoint comes nearest below `wanted` bytes: hidden size in steps, then layers by fours.
qwen3_5::shape shape_for(i64 wanted) {
  qwen3_5::shape shape;
  for (const i64 hidden : {2048, 1024, 512, 256, 128}) {
    shape.hidden = hidden;
    shape.vocabulary = hidden * 4;
    if (bytes_of(qwen3_5::tensors(shape)) <= wanted) break;
  }
  while (true) {
    qwen3_5::shape larger = shape;
    larger.layers += 4;
    if (bytes_of(qwen3_5::tensors(larger)) > wanted) return shape;
    shape = larger;
  }
}

void write_file(const std::string& path, const std::vector<fp8wire::tensor_spec>& tensors, u64 seed,
                programs::workers& threads, programs::progress& bar) {
  const auto layout = must(fp8wire::lay_out_safetensors(tensors, {{"format", "pt"}}, path));
  const auto file = must(fp8wire::mapped_output::create(path, layout.header.file_bytes()));
  std::byte* out = file.bytes().data();
  std::memcpy(out, layout.head.data(), layout.head.size());
  const auto& placed = layout.header.tensors;
  for (std::size_t first = 0; first < placed.size();) {
    // As many as make a gigabyte at a time, so that memory stays small.
    std::size_t last = first + 1;
    while (last < placed.size() && placed[last].end - placed[first].begin <= i64{1} << 30) ++last;
    threads.run(static_cast<i64>(last - first), [&](i64 number) {
      const auto& one = placed[first + static_cast<std::size_t>(number)];
      qwen3_5::fill(one, seed, out + layout.header.data_begin + one.begin);
    });
    const i64 bytes = placed[last - 1].end - placed[first].begin;
    file.drop(layout.header.data_begin + placed[first].begin, bytes);
    bar.add(static_cast<u64>(bytes));
    first = last;
  }
}

/// Greedy in the model's order, as Hugging Face writers do.
void write_folder(const std::filesystem::path& folder, const qwen3_5::shape& shape, int shards, u64 seed,
                  programs::workers& threads) {
  const auto tensors = qwen3_5::tensors(shape);
  const i64 total = bytes_of(tensors), share = (total + shards - 1) / shards;
  std::vector<std::vector<fp8wire::tensor_spec>> parts(1);
  i64 used = 0;
  for (const fp8wire::tensor_spec& one : tensors) {
    if (used >= share && static_cast<int>(parts.size()) < shards) parts.emplace_back(), used = 0;
    used += fp8wire::byte_count(one.dtype, one.shape);
    parts.back().push_back(one);
  }
  programs::progress bar("writing", static_cast<u64>(total));
  fp8wire::json::value index;
  index["metadata"]["total_size"] = total;
  fp8wire::json::value& map = index["weight_map"] = fp8wire::json::value::object();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::string name = parts.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, parts.size());
    write_file((folder / name).string(), parts[part], seed, threads, bar);
    for (const fp8wire::tensor_spec& one : parts[part]) map[one.name] = name;
  }
  if (parts.size() > 1) programs::write_text(folder / "model.safetensors.index.json", fp8wire::json::write(index));
  programs::write_text(folder / "config.json", qwen3_5::config(shape));
  programs::write_text(folder / "generation_config.json", "{\n  \"do_sample\": true,\n  \"temperature\": 0.7\n}\n");
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Writes a Qwen3.5-shaped BF16 checkpoint of seeded, heavy-tailed weights.", "make_checkpoint");
  std::string output;
  u64 seed = 1;
  i64 megabytes = 40;
  int shards = 2, threads = programs::workers::available();
  bool split_experts = false, force = false;
  app.add_option("OUTPUT", output, "A new folder, or a new file.safetensors")->required();
  app.add_option("--seed", seed, "Other weights, the same shapes")->capture_default_str();
  app.add_option("--size", megabytes, "About how large, in MB")
      ->type_name("MB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--shards", shards, "Files of a folder")
      ->type_name("N")
      ->check(CLI::Range(1, 99999))
      ->capture_default_str();
  app.add_option("--threads", threads, "Threads")->type_name("N")->check(CLI::Range(1, 1024));
  app.add_flag("--split-experts", split_experts, "One matrix an expert in place of 3-D tensors");
  app.add_flag("--force", force, "Replace OUTPUT");
  return programs::run(app, count, arguments, [&] {
    const std::string parent = std::filesystem::absolute(output).parent_path().string();
    std::error_code unknown;
    if (std::filesystem::is_directory(parent, unknown))
      must(fp8wire::check_free_space(parent, megabytes * 1000000));  // before so many shapes are counted
    programs::workers pool(threads);
    qwen3_5::shape shape = shape_for(megabytes * 1000000);
    shape.fused_experts = !split_experts;
    const auto tensors = qwen3_5::tensors(shape);
    const bool folder = std::filesystem::path(output).extension() != ".safetensors";
    fp8wire::atomic_output made = programs::claim_output(output, folder, force, bytes_of(tensors));
    if (folder) {
      write_folder(made.path(), shape, shards, seed, pool);
    } else {
      programs::progress bar("writing", static_cast<u64>(bytes_of(tensors)));
      write_file(made.path(), tensors, seed, pool, bar);
    }
    must(made.commit());
    return programs::done;
  });
}
