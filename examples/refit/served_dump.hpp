// SPDX-License-Identifier: Apache-2.0
/// What an engine serves, as the file that fp8-convert would have written.
#ifndef FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#define FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#include <cstring>

#include <fmt/format.h>

#include <fp8wire/io/atomic_output.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors_writer.hpp>
#include <fp8wire/wire/host_store.hpp>

#include "update_source.hpp"

namespace programs {

/// What stands in the file besides the tensors.
struct dump_settings {
  fp8wire::safetensors_metadata metadata;
};

/// DIR/engine<E>-v<V>.safetensors, whole or not there at all.
inline fp8wire::error write_dump(int engine, fp8wire::u64 version, const fp8wire::manifest& tensors,
                                 const fp8wire::host_store<>& store, const dump_settings& dump,
                                 const refit_settings& settings) {
  const std::string path = fmt::format("{}/engine{}-v{}.safetensors", settings.dump_folder, engine, version);
  std::vector<fp8wire::tensor_spec> specs;
  for (const fp8wire::manifest_entry& entry : tensors.entries())
    specs.push_back({entry.name, entry.dtype, entry.shape});
  const auto layout = fp8wire::lay_out_safetensors(std::move(specs), dump.metadata, path);
  if (!layout) return layout.error();
  const fp8wire::safetensors_header& header = layout->header;
  const fp8wire::i64 data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;

  auto target = fp8wire::atomic_output::file(path, fp8wire::existing::replace);
  if (!target) return target.error();
  auto file = fp8wire::mapped_output::create(target->path(), header.data_begin + data_bytes);
  if (!file) return file.error();
  std::memcpy(file->bytes().data(), layout->head.data(), layout->head.size());
  for (const fp8wire::safetensors_entry& one : header.tensors) {
    const auto bytes = store.bytes(static_cast<std::size_t>(tensors.find(one.name)));
    if (!bytes.empty())
      std::memcpy(file->bytes().data() + static_cast<std::size_t>(header.data_begin + one.begin), bytes.data(),
                  bytes.size());
  }
  *file = fp8wire::mapped_output();
  return target->commit();
}

}  // namespace programs
#endif
