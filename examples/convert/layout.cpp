// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <tuple>

#include <fp8wire/model/name_pattern.hpp>

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::i64;
using fp8wire::u8;

/// Fused experts hold gate and up; every other weight is plain.
fp8wire::layout_use use_of(const quantizer& preset, std::string_view weight) {
  const bool gate_up = fp8wire::matches("**.experts.gate_up_proj", weight);
  return {preset.block_rows, preset.block_cols, preset.stored,
          gate_up ? fp8wire::weight_role::gate_up : fp8wire::weight_role::plain};
}

/// Calls function(canonical scales) under the type that they are stored in.
template <class Function>
auto with_scales(const quantizer& preset, const fp8wire::matrix_extents& extents, const void* words,
                 Function&& function) {
  const auto view = [&]<class Stored>(const Stored* scales) {
    return function(fp8wire::laid_out<fp8wire::row_major, const Stored>{
        scales, extents.batch, preset.scale_rows(extents.rows), preset.scale_cols(extents.cols)});
  };
  if (preset.stored == dtype::f8_e8m0) return view(static_cast<const fp8wire::e8m0*>(words));
  if (preset.stored == dtype::bf16) return view(static_cast<const fp8wire::bf16*>(words));
  return view(static_cast<const float*>(words));
}

std::span<u8> code_bytes(std::span<std::byte> bytes) { return {reinterpret_cast<u8*>(bytes.data()), bytes.size()}; }
std::span<const u8> code_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const u8*>(bytes.data()), bytes.size()};
}

}  // namespace

canonical_pair::canonical_pair(const quantizer& preset, const fp8wire::matrix_extents& extents)
    : codes(static_cast<std::size_t>(extents.batch * extents.rows * extents.cols)),
      scales(static_cast<std::size_t>(extents.batch * preset.scale_rows(extents.rows) *
                                          preset.scale_cols(extents.cols) * fp8wire::bit_width(preset.stored) / 64 +
                                      1)) {}

std::string list_layouts() {
  constexpr std::string_view line = "{:<20} {:<12} {:<10} {:<8} {}\n";
  std::string text = fmt::format(line, "name", "reads", "scales", "padding", "shape of the scales of an [N, K] weight");
  fp8wire::layouts::for_each([&]<class Entry>() {
    // What it reads, asked for every kind of weight that presets make.
    for (const auto& [label, rows, cols, scale] :
         {std::tuple{"128x128 fp32", 128, 128, dtype::f32}, std::tuple{"128x128 e8m0", 128, 128, dtype::f8_e8m0},
          std::tuple{"1x128 fp32", 1, 128, dtype::f32}, std::tuple{"1x32 e8m0", 1, 32, dtype::f8_e8m0}}) {
      fp8wire::layout_use use{rows, cols, scale};
      const bool plain = Entry::reads(use);
      use.role = fp8wire::weight_role::gate_up;
      const bool gate_up = Entry::reads(use);
      if (!plain && !gate_up) continue;
      text += fmt::format(line, Entry::name, label, name_of(Entry::stored_scale(Entry::scale(use))),
                          fmt::format("0x{:02x}", Entry::pair::scales::padding_bits & 0xFF),
                          fmt::format("{}{}", Entry::scale_shape, plain ? "" : " (fused gate and up of experts)"));
    }
  });
  return text;
}

std::vector<fp8wire::tensor_spec> specs_in(const format& how, std::vector<fp8wire::tensor_spec> canonical,
                                           const fp8wire::matrix_extents& extents) {
  fp8wire::tensor_spec &codes = canonical.front(), &scales = canonical.back();
  const auto shapes = fp8wire::shapes_in(how.layout, use_of(*how.preset, codes.name), codes.name, extents.batch,
                                         extents.rows, extents.cols);
  if (!shapes && shapes.error().code == fp8wire::errc::format_mismatch)
    misuse("--layout {} with --recipe {}: {}", how.layout, how.preset->name, shapes.error().message());
  if (!shapes) refuse("{}; --keep '{}' leaves it in its own dtype", shapes.error().message(), codes.name);
  // A 2-D weight is a batch of one, and is stored without the batch.
  const auto batch = codes.shape.size() == 2 ? 1 : 0;
  codes.shape.assign(shapes->codes.begin() + batch, shapes->codes.end());
  scales.shape.assign(shapes->scales.begin() + batch, shapes->scales.end());
  scales.dtype = shapes->scale == dtype::f8_e8m0 && how.preset->microscaling ? chosen_naming.mx_dtype : shapes->scale;
  return canonical;
}

void lay_out(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
             const canonical_pair& from, std::span<std::byte> codes, std::span<std::byte> scales) {
  const fp8wire::laid_out<fp8wire::row_major, const u8> in{from.codes.data(), extents.batch, extents.rows,
                                                           extents.cols};
  must(with_scales(*how.preset, extents, from.scales.data(), [&](const auto& grid) {
    return fp8wire::lay_out(how.layout, use_of(*how.preset, weight), weight, in, grid, code_bytes(codes), scales);
  }));
}

void take_back(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
               std::span<const std::byte> codes, std::span<const std::byte> scales, canonical_pair& to) {
  const fp8wire::laid_out<fp8wire::row_major, u8> out{to.codes.data(), extents.batch, extents.rows, extents.cols};
  must(with_scales(*how.preset, extents, to.scales.data(),
                   [&]<class Stored>(const fp8wire::laid_out<fp8wire::row_major, const Stored>& grid) {
                     const fp8wire::laid_out<fp8wire::row_major, Stored> into{const_cast<Stored*>(grid.data),
                                                                              grid.batch, grid.rows, grid.cols};
                     return fp8wire::canonical_from(how.layout, use_of(*how.preset, weight), weight, code_bytes(codes),
                                                    scales, out, into);
                   }));
}

}  // namespace programs
