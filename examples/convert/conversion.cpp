// SPDX-License-Identifier: Apache-2.0
#include "conversion.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include <fp8wire/io/engine_config.hpp>
#include <fp8wire/model/fusion.hpp>
#include <fp8wire/model/ignored_modules.hpp>
#include <fp8wire/model/tensor_parallel.hpp>

#include "../common/files.hpp"
#include "../common/metadata.hpp"
#include "../common/report.hpp"
#include "layout.hpp"

namespace programs {
namespace {

using fp8wire::i64;
using fp8wire::u64;
using fp8wire::verdict;
using bytes_in = std::span<const std::byte>;

/// Neither may lie in the other: the output would become part of the input, or the input go with the old output.
void expect_apart(const std::string& input, const std::string& output) {
  const bool within = fp8wire::lies_within(output, input), around = fp8wire::lies_within(input, output);
  if (within && around) misuse("OUTPUT is INPUT: {}", output);
  if (within) misuse("OUTPUT {} lies inside INPUT {}", output, input);
  if (around) misuse("INPUT {} lies inside OUTPUT {}", input, output);
}

[[noreturn]] void refuse_nonfinite(const tensor_plan& tensor, const weights& in) {
  i64 first = -1, count = 0;
  const i64 size = in.extents.batch * in.extents.rows * in.extents.cols;
  const auto look = [&]<class In>(const In* data) {
    for (i64 i = 0; i < size; ++i) {
      if (fp8wire::f32::is_finite(fp8wire::bits_of(fp8wire::to_float(data[i])))) continue;
      if (count++ == 0) first = i;
    }
  };
  if (in.type == fp8wire::dtype::bf16) look(static_cast<const fp8wire::bf16*>(in.data));
  else if (in.type == fp8wire::dtype::f16) look(static_cast<const fp8wire::fp16*>(in.data));
  else look(static_cast<const float*>(in.data));
  refuse(
      "{}: NaN or Inf, the first at element {} (row {}, column {}), {} of {} in all; --nonfinite tool lets the "
      "preset's "
      "own rule decide, --keep leaves the tensor as it is",
      tensor.in->name, first, first / in.extents.cols, first % in.extents.cols, count, size);
}

/// Which places of a tensor differ from what they should be, as a refusal.
[[noreturn]] void refuse_byte(const tensor_plan& tensor, const fp8wire::mismatch& wrong, i64 batch) {
  refuse("{}: --verify: {} at batch {}, row {}, column {} is {:#x}, the reference makes {:#x}", tensor.in->name,
         wrong.in_scale ? "scale" : "code", batch, wrong.row, wrong.col, wrong.got, wrong.expected);
}

/// Why the naming's engine does not load these weights, on one GPU: the arithmetic of the first, and how many follow.
std::string refused_by_loader(const conversion_plan& plan) {
  const quantizer& preset = *plan.how.preset;
  std::map<std::string, std::vector<const tensor_plan*>> fused;
  for (const tensor_plan& one : plan.tensors) {
    const std::string whole = fp8wire::fused_with(one.in->name);
    if (one.choice.what == verdict::quantized && !whole.empty()) fused[whole].push_back(&one);
  }
  // The engine's order: the last part may end in half a block.
  const auto place = [](const tensor_plan* one) {
    const std::string_view name = one->in->name, module = name.substr(0, name.rfind('.'));
    const std::string_view part = module.substr(module.rfind('.') + 1);
    for (const fp8wire::fusion_rule& rule : fp8wire::fusion_rules)
      if (const std::size_t at = rule.parts.find(part); at != rule.parts.npos) return at;
    return std::size_t{0};
  };
  std::vector<std::string> all;
  for (auto& [whole, tensors] : fused) {
    std::stable_sort(tensors.begin(), tensors.end(), [&](const auto* a, const auto* b) { return place(a) < place(b); });
    std::vector<fp8wire::weight_part> parts;
    for (const tensor_plan* one : tensors) parts.push_back({one->in->name, one->extents.rows, one->extents.cols});
    const bool expert = fp8wire::is_expert(whole);
    const fp8wire::parallelism where{
        expert ? fp8wire::sharding::gate_up : fp8wire::sharding::column, 1, 1, 0, preset.block_rows, preset.block_cols};
    for (std::string& reason : fp8wire::legal(fp8wire::reader_of(chosen_naming.id), std::move(parts), where))
      all.push_back(std::move(reason));
  }
  if (all.empty()) return {};
  return fmt::format("{}{}", plain(all.front()), all.size() == 1 ? "" : fmt::format(", and {} more", all.size() - 1));
}

/// How an engine takes a folder of that format, or why none does.
std::string how_to_serve(const conversion_plan& plan, const std::string& folder) {
  const quantizer& preset = *plan.how.preset;
  const std::string_view names = chosen_naming.id;
  const bool rows_of_32 = preset.microscaling && preset.block_rows == 1;
  if (preset.codes == fp8wire::dtype::f8_e5m2) return "no engine serves it: all of them want E4M3 weights";
  if (!rows_of_32 && (preset.block_rows != 128 || preset.block_cols != 128))
    return fmt::format("no engine serves it: none takes weights in blocks of {}", preset.block);
  if (names == "nemo" && rows_of_32)
    return "NeMo-RL's own loader takes these names; --naming modelopt makes what vLLM serves";
  if (names == "modelopt" && !rows_of_32)
    return "TensorRT-LLM takes block scales under this name; --naming vllm makes what vLLM and SGLang serve";
  const bool sglang = names == "sglang" || names == "verl" || names == "slime" || names == "miles";
  if (const std::string reason = refused_by_loader(plan); !reason.empty())
    return fmt::format("{} does not load it: {}; --keep leaves such weights as they are",
                       name_of(fp8wire::reader_of(names)), reason);
  const std::string_view command = sglang ? "python3 -m sglang.launch_server --model-path" : "vllm serve";
  return fmt::format("serve it: {} {}{}", command, folder, rows_of_32 ? " (MXFP8 wants a GPU of SM100 or later)" : "");
}

}  // namespace

conversion_plan plan_conversion(const std::string& input, const std::string& output, const format_options& options) {
  conversion_plan plan;
  plan.how = resolve(options);
  expect_apart(input, output);
  plan.input = must(fp8wire::checkpoint::open(input));
  if (!plan.input.config().empty()) plan.config = must(json::parse(plan.input.config(), input + "/config.json"));
  if (const json::value* already = plan.config.find("quantization_config");
      already != nullptr && !already->is(json::kind::null)) {
    const json::value* method = already->find("quant_method");
    refuse("{}: is quantized already (quant_method {}): convert the checkpoint that it was made of", input,
           method == nullptr ? "unknown" : method->text());
  }
  plan.select = selection(options, plan.config, plan.input.tensors());
  for (const fp8wire::checkpoint_shard& shard : plan.input.shards())
    plan.shards.push_back({shard.name, {}, add_metadata(shard.metadata, plan.how)});
  std::vector<fp8wire::decided_weight> decided;
  for (const fp8wire::checkpoint_tensor& in : plan.input.tensors()) {
    tensor_plan tensor;
    tensor.in = &in;
    tensor.choice = plan.select.decide(in);
    std::vector<fp8wire::tensor_spec> made{in};
    if (tensor.choice.what == verdict::quantized) {
      auto pair = plan.how.preset->tensors(in.name, in.shape);
      if (!pair) refuse("{}; --keep '{}' leaves it in its own dtype", pair.error().message(), in.name);
      tensor.extents = must(fp8wire::extents_of(in.name, in.shape));
      made = specs_in(plan.how, std::move(pair).value(), tensor.extents);
      tensor.scale_name = made.back().name;
    }
    if (tensor.choice.what != verdict::copied) decided.push_back({in.name, tensor.choice.what == verdict::quantized});
    for (fp8wire::tensor_spec& spec : made) {
      tensor.bytes_out += fp8wire::byte_count(spec.dtype, spec.shape);
      plan.shards[in.shard].tensors.push_back(std::move(spec));
    }
    plan.bytes_in += static_cast<i64>(in.bytes.size());
    plan.bytes_out += tensor.bytes_out;
    plan.tensors.push_back(std::move(tensor));
  }
  if (!plan.config.is(json::kind::null)) {
    const quantizer& preset = *plan.how.preset;
    const fp8wire::engine_config config{fp8wire::dialect_of(chosen_naming.id, preset.microscaling),
                                        preset.microscaling,
                                        preset.block_rows,
                                        preset.block_cols,
                                        preset.scale == "pow2" || preset.scale == "e8m0",
                                        must(fp8wire::ignored_modules(decided)),
                                        preset.codes == fp8wire::dtype::f8_e5m2 ? "e5m2" : "e4m3"};
    plan.config["quantization_config"] = fp8wire::quantization_config(config);
    if (config.dialect == fp8wire::config_dialect::modelopt) plan.modelopt_file = fp8wire::modelopt_file(config);
  }
  return plan;
}

void fill(conversion_plan& plan, const fp8wire::checkpoint_writer& output, bool measure_errors, workers& threads) {
  const quantizer& preset = *plan.how.preset;
  progress bar("converting", static_cast<u64>(plan.bytes_in));
  std::vector<u64> aligned;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    expect_no_interruption();
    tensor_plan& tensor = plan.tensors[i];
    const fp8wire::checkpoint_tensor& in = *tensor.in;
    // The disk reads the next tensor while this one is worked on, and writes the last ones as the kernel sees fit.
    if (i + 1 < plan.tensors.size()) read_ahead(plan.tensors[i + 1].in->bytes);
    const std::span<std::byte> out = output.bytes(in.name);
    if (tensor.choice.what != verdict::quantized) {
      copy_bytes(in.bytes, out, threads);
    } else {
      const std::span<std::byte> scales = output.bytes(tensor.scale_name);
      const weights from = aligned_weights(in.dtype, in.bytes, tensor.extents, aligned);
      // Straight into the output, unless another layout stands in between.
      const bool canonical = plan.how.layout == "canonical";
      canonical_pair pair(preset, canonical ? fp8wire::matrix_extents{0, 0, 0} : tensor.extents);
      void* const codes_to = canonical ? static_cast<void*>(out.data()) : pair.codes.data();
      void* const scales_to = canonical ? static_cast<void*>(scales.data()) : pair.scales.data();
      const bool finite = preset.quantize(from, codes_to, scales_to, plan.how.amax_floor, plan.how.via_bf16, threads);
      if (!finite && plan.how.refuse_nonfinite) refuse_nonfinite(tensor, from);
      if (measure_errors)
        tensor.measured = measure(from,
                                  {static_cast<const fp8wire::u8*>(codes_to), scales_to, preset.stored,
                                   preset.block_rows, preset.block_cols, preset.values},
                                  threads);
      if (!canonical) lay_out(plan.how, in.name, tensor.extents, pair, out, scales);
      output.drop(tensor.scale_name);
    }
    plan.input.drop(in);
    output.drop(in.name);
    bar.add(in.bytes.size());
  }
}

void verify(const conversion_plan& plan, const std::string& path, workers& threads) {
  const quantizer& preset = *plan.how.preset;
  const fp8wire::checkpoint output = must(fp8wire::checkpoint::open(path));
  progress bar("verifying", static_cast<u64>(plan.bytes_in));
  std::size_t expected = 0;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    expected += plan.shards[i].tensors.size();
    if (output.shards()[i].metadata != plan.shards[i].metadata)
      refuse("{}: --verify: the metadata do not read back as they were written", plan.shards[i].name);
    for (const fp8wire::tensor_spec& spec : plan.shards[i].tensors) {
      const fp8wire::checkpoint_tensor* there = output.find(spec.name);
      if (there == nullptr || there->dtype != spec.dtype || there->shape != spec.shape)
        refuse("{}: --verify: it does not read back as it was written", spec.name);
    }
  }
  if (output.tensors().size() != expected)
    refuse("{}: --verify: {} tensors, {} were written", path, output.tensors().size(), expected);
  // The scalar reference knows no threads: matrices are shared out instead.
  struct job {
    const tensor_plan* tensor;
    i64 batch;
  };
  std::vector<job> jobs;
  for (const tensor_plan& tensor : plan.tensors) {
    if (tensor.choice.what == verdict::quantized) {
      // Other layouts are taken back first, and whole.
      const i64 parts =
          plan.how.layout == "canonical" ? tensor.extents.batch : (std::min)(i64{1}, tensor.extents.batch);
      for (i64 part = 0; part < parts; ++part) jobs.push_back({&tensor, part});
      continue;
    }
    const fp8wire::checkpoint_tensor& made = *output.find(tensor.in->name);
    if (!same_bytes(tensor.in->bytes, made.bytes, threads))
      refuse("{}: --verify: {} is not the copy that it should be", tensor.in->name, name_of(tensor.in->dtype));
    plan.input.drop(*tensor.in);
    output.drop(made);
    bar.add(made.bytes.size());
  }
  std::mutex drawing;
  threads.run(static_cast<i64>(jobs.size()), [&](i64 number) {
    expect_no_interruption();
    const auto& [tensor, batch] = jobs[static_cast<std::size_t>(number)];
    const fp8wire::checkpoint_tensor &codes = *output.find(tensor->in->name),
                                     &scales = *output.find(tensor->scale_name);
    const auto matrix = [&, at = batch, of = tensor->extents.batch](bytes_in bytes) {
      const std::size_t size = bytes.size() / static_cast<std::size_t>(of);
      return bytes.subspan(static_cast<std::size_t>(at) * size, size);
    };
    std::vector<u64> aligned;
    fp8wire::mismatch wrong;
    i64 wrong_batch = batch;
    if (plan.how.layout == "canonical") {
      const weights from = aligned_weights(tensor->in->dtype, matrix(tensor->in->bytes),
                                           {1, tensor->extents.rows, tensor->extents.cols}, aligned);
      wrong = preset.verify(from, matrix(codes.bytes).data(), matrix(scales.bytes).data(), plan.how.amax_floor,
                            plan.how.via_bf16);
      if (batch + 1 < tensor->extents.batch && !wrong.found) return;
    } else {
      canonical_pair pair(preset, tensor->extents);
      take_back(plan.how, tensor->in->name, tensor->extents, codes.bytes, scales.bytes, pair);
      const weights from = aligned_weights(tensor->in->dtype, tensor->in->bytes, tensor->extents, aligned);
      wrong = preset.verify(from, pair.codes.data(), pair.scales.data(), plan.how.amax_floor, plan.how.via_bf16);
      wrong_batch = wrong.batch;
    }
    if (wrong.found) refuse_byte(*tensor, wrong, wrong_batch);
    plan.input.drop(*tensor->in);
    output.drop(codes);
    const std::lock_guard lock(drawing);
    bar.add(tensor->in->bytes.size());
  });
}

std::string closing_line(const conversion_plan& plan, const std::string& output, bool verified, double seconds) {
  const quantizer& preset = *plan.how.preset;
  const auto quantized = std::count_if(plan.tensors.begin(), plan.tensors.end(),
                                       [](const tensor_plan& one) { return one.choice.what == verdict::quantized; });
  const std::string text = fmt::format("{}: {} tensors in FP8 ({} {}), {} -> {} in {:.1f} s{}", output, quantized,
                                       preset.name, preset.scale, size_text(plan.bytes_in), size_text(plan.bytes_out),
                                       seconds, verified ? ", every byte verified" : "");
  if (plan.how.layout != "canonical")
    return fmt::format("{}; laid out for the kernels behind {}, which no loader of checkpoints expects", text,
                       plan.how.layout);
  if (plan.config.is(json::kind::null))
    return text + "; an engine serves it from a folder with config.json: give that folder as INPUT";
  return text + "; " + how_to_serve(plan, output);
}

}  // namespace programs
