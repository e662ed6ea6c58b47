// SPDX-License-Identifier: Apache-2.0
/// `--layout`: canonical pairs into an engine's layout and back, for a preset chosen at run time.
#ifndef FP8WIRE_EXAMPLES_CONVERT_LAYOUT_HPP
#define FP8WIRE_EXAMPLES_CONVERT_LAYOUT_HPP
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/model/engine_layout.hpp>

#include "../common/options.hpp"

namespace programs {

/// One pair on its way: dense canonical codes and scales of `extents`.
struct canonical_pair {
  std::vector<fp8wire::u8> codes;
  std::vector<fp8wire::u64> scales;  // words, for alignment
  canonical_pair(const quantizer& preset, const fp8wire::matrix_extents& extents);
};

/// What --list-layouts prints.
std::string list_layouts();

/// The two tensors of a weight in that layout, from those in canonical layout. Exit 2 where it reads no such preset.
std::vector<fp8wire::tensor_spec> specs_in(const format& how, std::vector<fp8wire::tensor_spec> canonical,
                                           const fp8wire::matrix_extents& extents);

/// Canonical to the engine's layout.
void lay_out(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
             const canonical_pair& from, std::span<std::byte> codes, std::span<std::byte> scales);

/// And back.
void take_back(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
               std::span<const std::byte> codes, std::span<const std::byte> scales, canonical_pair& to);

}  // namespace programs
#endif
