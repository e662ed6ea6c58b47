// SPDX-License-Identifier: Apache-2.0
/// An engine's layout, chosen at run time, for a preset chosen at run time: what the library's functions are asked. All
/// layouts are compiled here, once for all programs.
#ifndef FP8WIRE_EXAMPLES_LAYOUTS_HPP
#define FP8WIRE_EXAMPLES_LAYOUTS_HPP
#include <fp8wire/model/engine_layout.hpp>

#include "quantizer.hpp"

namespace programs {

/// Shapes and bytes of a weight in a layout; errors as fp8wire::shapes_in.
fp8wire::result<fp8wire::engine_shapes> shapes_in(std::string_view layout, const quantizer& preset,
                                                  std::string_view weight, const fp8wire::matrix_extents& m);

/// The two tensors of a weight in a layout, from those in canonical layout. Exit 2 where it reads no such preset.
std::vector<fp8wire::tensor_spec> specs_in(std::string_view layout, const quantizer& preset,
                                           std::vector<fp8wire::tensor_spec> canonical,
                                           const fp8wire::matrix_extents& m);

/// Canonical codes and scales, dense, into the engine's bytes.
fp8wire::error lay_out_pair(std::string_view layout, const quantizer& preset, std::string_view weight,
                            const fp8wire::matrix_extents& m, const void* codes, const void* scales,
                            std::span<std::byte> codes_out, std::span<std::byte> scales_out);

/// And back. The canonical scales are aligned to their type.
fp8wire::error take_back_pair(std::string_view layout, const quantizer& preset, std::string_view weight,
                              const fp8wire::matrix_extents& m, std::span<const std::byte> codes_in,
                              std::span<const std::byte> scales_in, void* codes, void* scales);

}  // namespace programs
#endif
