// SPDX-License-Identifier: Apache-2.0
/// A checkpoint as what its updates are made of.
#ifndef FP8WIRE_EXAMPLES_REFIT_LOAD_HPP
#define FP8WIRE_EXAMPLES_REFIT_LOAD_HPP
#include <deque>

#include <fp8wire/io/checkpoint.hpp>
#include <fp8wire/model/fusion.hpp>

#include "../common/selection.hpp"
#include "update_source.hpp"

namespace programs {

/// Tensors in the checkpoint's order; spans into its mapped files.
struct loaded_checkpoint {
  fp8wire::checkpoint files;
  std::vector<source_tensor> tensors;
  fp8wire::safetensors_metadata metadata;  // of the first file
  std::deque<std::vector<fp8wire::u64>> aligned;  // copies of tensors that other writers left unaligned
};

inline loaded_checkpoint load(const std::string& path, const format_options& options) {
  loaded_checkpoint loaded;
  loaded.files = must(fp8wire::checkpoint::open(path));
  fp8wire::json::value config;
  if (!loaded.files.config().empty()) config = must(fp8wire::json::parse(loaded.files.config(), path + "/config.json"));
  const selection select(options, config, loaded.files.tensors());
  if (!loaded.files.shards().empty()) loaded.metadata = loaded.files.shards().front().metadata;
  bool any = false;
  const fp8wire::checkpoint_tensor* codes = nullptr;
  for (const fp8wire::checkpoint_tensor& tensor : loaded.files.tensors()) {
    source_tensor one{tensor, tensor.bytes, select.decide(tensor).what == action::quantized, {}};
    const fp8wire::u64 item = static_cast<fp8wire::u64>(fp8wire::bit_width(tensor.dtype) + 7) / 8;
    if (is_weight_dtype(tensor.dtype) && __builtin_bit_cast(fp8wire::u64, tensor.bytes.data()) % item != 0) {
      auto& copy = loaded.aligned.emplace_back(tensor.bytes.size() / 8 + 1);
      std::memcpy(copy.data(), tensor.bytes.data(), tensor.bytes.size());
      one.bytes = {reinterpret_cast<const std::byte*>(copy.data()), tensor.bytes.size()};
    }
    if (one.quantized) one.fused_with = fp8wire::fused_with(tensor.name);
    any = any || one.quantized;
    if (tensor.dtype == fp8wire::dtype::f8_e4m3 || tensor.dtype == fp8wire::dtype::f8_e5m2) codes = &tensor;
    loaded.tensors.push_back(std::move(one));
  }
  for (const std::string& warning : select.useless_patterns(loaded.files.tensors()))
    complain("fp8-refit", "warning", warning);
  if (!any) select.expect_only_matches();
  if (!any && codes != nullptr)
    refuse("{}: is {} already, and nothing else becomes FP8: learners start from the checkpoint that it was made of",
           codes->name, name_of(codes->dtype));
  if (!any) refuse("{}: no tensor of it becomes FP8; --model all-2d takes every matrix", path);
  return loaded;
}

}  // namespace programs
#endif
