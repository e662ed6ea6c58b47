// SPDX-License-Identifier: Apache-2.0
#include "shard.hpp"

#include "../common/metadata.hpp"

#include <mutex>

#include "../common/files.hpp"

namespace programs {
namespace {

using fp8wire::i64;
using fp8wire::u64;

std::span<const std::byte> part(std::span<const std::byte> file, i64 at, i64 bytes) {
  return file.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
}
std::span<std::byte> part(std::span<std::byte> file, i64 at, i64 bytes) {
  return file.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes));
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
      "preset's own rule "
      "decide, --keep leaves the tensor as it is",
      tensor.in.name, first, first / in.extents.cols, first % in.extents.cols, count, size);
}

}  // namespace

shard_plan plan_shard(const std::string& input, const std::string& name, const selection& select, const format& how,
                      const std::set<std::string>* listed) {
  const fp8wire::mapped_file file = must(fp8wire::mapped_file::open(input));
  const fp8wire::safetensors_header header = must(fp8wire::read_safetensors(file.bytes(), input));
  shard_plan shard;
  shard.input = input;
  shard.name = name;
  shard.in_bytes = static_cast<i64>(file.bytes().size());
  std::vector<fp8wire::tensor_spec> specs;
  if (listed != nullptr)
    for (const std::string& wanted : *listed)
      if (header.find(wanted) == nullptr) refuse("{}: the index says that it is in {}, and it is not", wanted, name);
  for (const fp8wire::safetensors_entry& entry : header.tensors) {
    if (listed != nullptr && !listed->contains(entry.name)) continue;
    tensor_plan tensor;
    tensor.in = entry;
    tensor.in_at = header.data_begin + entry.begin;
    tensor.in_bytes = entry.end - entry.begin;
    tensor.choice = select.decide(entry);
    if (tensor.choice.what == action::quantized) {
      auto made = how.preset->tensors(entry.name, entry.shape);
      if (!made) refuse("{}; --keep '{}' leaves it in its own dtype", made.error().message(), entry.name);
      tensor.extents = must(fp8wire::extents_of(entry.name, entry.shape));
      for (fp8wire::tensor_spec& spec : *made) specs.push_back(std::move(spec));
    } else {
      specs.push_back(entry);
    }
    shard.tensors.push_back(std::move(tensor));
  }
  shard.out = must(fp8wire::lay_out_safetensors(std::move(specs), add_metadata(header.metadata, how), name));
  shard.out_bytes = shard.out.header.file_bytes();
  const auto place = [&](const std::string& tensor, i64& at, i64& bytes) {
    const fp8wire::safetensors_entry* entry = shard.out.header.find(tensor);
    at = shard.out.header.data_begin + entry->begin;
    bytes = entry->end - entry->begin;
  };
  for (tensor_plan& tensor : shard.tensors) {
    place(tensor.in.name, tensor.out_at, tensor.out_bytes);
    if (tensor.choice.what == action::quantized)
      place(chosen_naming.scale_of(tensor.in.name, how.preset->microscaling), tensor.scales_at, tensor.scales_bytes);
  }
  return shard;
}

void write_shard(shard_plan& shard, const std::string& path, const conversion& how, progress& bar) {
  const quantizer& preset = *how.how.preset;
  const fp8wire::mapped_file input = must(fp8wire::mapped_file::open(shard.input));
  if (static_cast<i64>(input.bytes().size()) != shard.in_bytes)
    refuse("{}: it changed while it was read: {} bytes, {} before", shard.input, input.bytes().size(), shard.in_bytes);
  const fp8wire::mapped_output output = must(fp8wire::mapped_output::create(path, shard.out_bytes));
  const write_behind behind(path);
  std::memcpy(output.bytes().data(), shard.out.head.data(), shard.out.head.size());
  std::vector<u64> aligned;
  for (std::size_t i = 0; i < shard.tensors.size(); ++i) {
    tensor_plan& tensor = shard.tensors[i];
    if (i + 1 < shard.tensors.size())
      read_ahead(part(input.bytes(), shard.tensors[i + 1].in_at, shard.tensors[i + 1].in_bytes));
    const auto from = part(input.bytes(), tensor.in_at, tensor.in_bytes);
    const auto to = part(output.bytes(), tensor.out_at, tensor.out_bytes);
    if (tensor.choice.what != action::quantized) {
      // Piece by piece: an embedding of gigabytes does not pile up in memory.
      constexpr i64 most = i64{256} << 20;
      for (i64 at = 0; at < tensor.in_bytes; at += most) {
        const i64 bytes = (std::min)(most, tensor.in_bytes - at);
        copy_bytes(part(from, at, bytes), part(to, at, bytes), *how.threads);
        behind.start(tensor.out_at + at, bytes);
        input.drop(tensor.in_at + at, bytes);
        output.drop(tensor.out_at + at, bytes);
        bar.add(static_cast<u64>(bytes));
      }
      continue;
    }
    const auto scales = part(output.bytes(), tensor.scales_at, tensor.scales_bytes);
    const weights in = aligned_weights(tensor.in.dtype, from, tensor.extents, aligned);
    const bool finite =
        preset.quantize(in, to.data(), scales.data(), how.how.amax_floor, how.how.via_bf16, *how.threads);
    if (!finite && how.how.refuse_nonfinite) refuse_nonfinite(tensor, in);
    if (how.measure)
      tensor.measured = measure(in,
                                {reinterpret_cast<const fp8wire::u8*>(to.data()), scales.data(), preset.stored,
                                 preset.block_rows, preset.block_cols, preset.values},
                                *how.threads);
    behind.start(tensor.out_at, tensor.out_bytes);
    input.drop(tensor.in_at, tensor.in_bytes);
    output.drop(tensor.out_at, tensor.out_bytes);
    output.drop(tensor.scales_at, tensor.scales_bytes);
    bar.add(static_cast<u64>(tensor.in_bytes));
  }
}

void verify_shard(const shard_plan& shard, const std::string& path, const conversion& how, progress& bar) {
  const quantizer& preset = *how.how.preset;
  const fp8wire::mapped_file input = must(fp8wire::mapped_file::open(shard.input));
  const fp8wire::mapped_file output = must(fp8wire::mapped_file::open(path));
  const fp8wire::safetensors_header header = must(fp8wire::read_safetensors(output.bytes(), path));
  if (header.tensors != shard.out.header.tensors || header.metadata != shard.out.header.metadata)
    refuse("{}: --verify: the header does not read back as it was written", shard.name);
  // The scalar reference is slow and knows no threads: matrices are shared out instead.
  struct job {
    const tensor_plan* tensor;
    i64 batch;
  };
  std::vector<job> jobs;
  for (const tensor_plan& tensor : shard.tensors) {
    if (tensor.choice.what == action::quantized) {
      for (i64 batch = 0; batch < tensor.extents.batch; ++batch) jobs.push_back({&tensor, batch});
    } else {
      if (!same_bytes(part(input.bytes(), tensor.in_at, tensor.in_bytes),
                      part(output.bytes(), tensor.out_at, tensor.out_bytes), *how.threads))
        refuse("{}: --verify: {} in {} is not the copy it should be", tensor.in.name, name_of(tensor.in.dtype),
               shard.name);
      input.drop(tensor.in_at, tensor.in_bytes);
      output.drop(tensor.out_at, tensor.out_bytes);
      bar.add(static_cast<u64>(tensor.in_bytes));
    }
  }
  std::mutex drawing;
  how.threads->run(static_cast<i64>(jobs.size()), [&](i64 number) {
    const auto& [tensor, batch] = jobs[static_cast<std::size_t>(number)];
    const i64 batches = tensor->extents.batch, bytes = tensor->in_bytes / batches;
    const fp8wire::matrix_extents extents{1, tensor->extents.rows, tensor->extents.cols};
    std::vector<u64> aligned;
    const auto from = part(input.bytes(), tensor->in_at + batch * bytes, bytes);
    const i64 codes_at = tensor->out_at + batch * (tensor->out_bytes / batches);
    const i64 scales_at = tensor->scales_at + batch * (tensor->scales_bytes / batches);
    const fp8wire::mismatch wrong = preset.verify(
        aligned_weights(tensor->in.dtype, from, extents, aligned), part(output.bytes(), codes_at, 0).data(),
        part(output.bytes(), scales_at, 0).data(), how.how.amax_floor, how.how.via_bf16);
    if (wrong.found)
      refuse("{}: --verify: {} at batch {}, row {}, column {} is {:#x}, the reference makes {:#x}", tensor->in.name,
             wrong.in_scale ? "scale" : "code", batch, wrong.row, wrong.col, wrong.got, wrong.expected);
    input.drop(tensor->in_at + batch * bytes, bytes);
    output.drop(codes_at, tensor->out_bytes / batches);
    const std::lock_guard lock(drawing);
    bar.add(static_cast<u64>(bytes));
  });
}

}  // namespace programs
