// SPDX-License-Identifier: Apache-2.0
/// What a file of codes and scales says about itself, in its `__metadata__`.
#ifndef FP8WIRE_EXAMPLES_METADATA_HPP
#define FP8WIRE_EXAMPLES_METADATA_HPP
#include <string>
#include <utility>

#include <fp8wire/io/safetensors_header.hpp>

#include "options.hpp"

namespace programs {

/// Keeps the input's entries and adds what made the bytes.
inline fp8wire::safetensors_metadata add_metadata(fp8wire::safetensors_metadata metadata, const format& how) {
  const std::pair<std::string, std::string> ours[] = {{"fp8wire.recipe", std::string(how.preset->name)},
                                                      {"fp8wire.scale", std::string(how.preset->scale)},
                                                      {"fp8wire.amax_floor", shortest(how.amax_floor)},
                                                      {"fp8wire.grid_id", fmt::format("0x{:016x}", how.grid_id())},
                                                      {"fp8wire.naming", std::string(chosen_naming.id)},
                                                      {"fp8wire.layout", how.layout},
                                                      {"fp8wire.version", std::string(fp8wire::version_string)}};
  for (const auto& entry : ours) {
    std::erase_if(metadata, [&](const auto& old) { return old.first == entry.first; });
    metadata.push_back(entry);
  }
  return metadata;
}

}  // namespace programs
#endif
