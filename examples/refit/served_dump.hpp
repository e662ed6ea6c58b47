// SPDX-License-Identifier: Apache-2.0
/// What an engine serves, as the file that fp8-convert would have written.
#ifndef FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#define FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#include <cstring>

#include <fmt/format.h>

#include <fp8wire/io/atomic_output.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors_writer.hpp>
#include <fp8wire/wire/manifest.hpp>

#include "update_source.hpp"

namespace programs {

/// What stands in the file: tensors in canonical layout, and what it says about itself.
struct dump_settings {
  fp8wire::safetensors_metadata metadata;
  const fp8wire::manifest* canonical = nullptr;
};

/// DIR/engine<E>-v<V>.safetensors, whole or not there at all. fill(item, first, second) writes the bytes of one item of
/// the canonical manifest: codes and scales, or those of a kept tensor and nothing.
template <class Fill> fp8wire::error write_dump(int engine, fp8wire::u64 version, const dump_settings& dump,
                                                const refit_settings& settings, const Fill& fill) {
  const std::string path = fmt::format("{}/engine{}-v{}.safetensors", settings.dump_folder, engine, version);
  const fp8wire::manifest& tensors = *dump.canonical;
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
  std::vector<std::span<std::byte>> places(tensors.entries().size());
  for (const fp8wire::safetensors_entry& one : header.tensors)
    places[static_cast<std::size_t>(tensors.find(one.name))] = file->bytes().subspan(
        static_cast<std::size_t>(header.data_begin + one.begin), static_cast<std::size_t>(one.end - one.begin));
  for (std::size_t item = 0; item < tensors.items().size(); ++item) {
    const fp8wire::manifest_item& one = tensors.items()[item];
    if (fp8wire::error wrong = fill(item, places[one.first_entry],
                                    one.entries == 2 ? places[one.first_entry + 1] : std::span<std::byte>{}))
      return wrong;
  }
  *file = fp8wire::mapped_output();
  return target->commit();
}

}  // namespace programs
#endif
