// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <tuple>

#include "../common/layouts.hpp"

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::i64;

/// The shape of the codes of an [N, K] weight.
constexpr std::string_view code_shape(std::string_view layout) noexcept {
  if (layout.ends_with("block-major-k-128")) return "[ceil(K/128), N, 128]";
  return layout.ends_with("col-major") ? "[K, N]" : "[N, K]";
}

/// What padding elements hold, or that there are none.
template <class Layout> std::string padding_of(dtype stored) {
  if (typename Layout::mapping{1, 1, 1}.size() == 1) return "none";
  return stored == dtype::f32 ? fmt::format("0x{:08x}", Layout::padding_bits)
                              : fmt::format("0x{:02x}", Layout::padding_bits & 0xFF);
}

}  // namespace

canonical_pair::canonical_pair(const quantizer& preset, const fp8wire::matrix_extents& extents)
    : codes(static_cast<std::size_t>(extents.batch * extents.rows * extents.cols)),
      scales(static_cast<std::size_t>(extents.batch * preset.scale_rows(extents.rows) *
                                          preset.scale_cols(extents.cols) * fp8wire::bit_width(preset.stored) / 64 +
                                      1)) {}

std::string list_layouts() {
  constexpr std::string_view line = "{:<17} {:<13} {:<6} {:<22} {:<8} {:<8} {:<11} {}\n";
  std::string text = fmt::format(line, "name", "reads", "codes", "shape of [N, K]", "padding", "scales", "padding",
                                 "shape of the scales; how codes and scales lie");
  fp8wire::layouts::for_each([&]<class Entry>() {
    using codes = typename Entry::pair::codes;
    using scales = typename Entry::pair::scales;
    // What it reads, asked for every kind of weight that presets make, and for one scale a matrix, which none makes.
    for (const auto& [label, rows, cols, scale] :
         {std::tuple{"128x128 fp32", 128, 128, dtype::f32}, std::tuple{"128x128 e8m0", 128, 128, dtype::f8_e8m0},
          std::tuple{"1x128 fp32", 1, 128, dtype::f32}, std::tuple{"128x1 fp32", 128, 1, dtype::f32},
          std::tuple{"1x32 e8m0", 1, 32, dtype::f8_e8m0}, std::tuple{"32x1 e8m0", 32, 1, dtype::f8_e8m0},
          std::tuple{"tensor fp32", 0, 0, dtype::f32}}) {
      fp8wire::layout_use use{rows, cols, scale};
      const bool plain = Entry::reads(use);
      use.role = fp8wire::weight_role::gate_up;
      const bool gate_up = Entry::reads(use);
      if (!plain && !gate_up) continue;
      const dtype stored = Entry::stored_scale(Entry::scale(use));
      text += fmt::format(
          line, Entry::name, label, "F8", code_shape(codes::id), padding_of<codes>(dtype::f8_e4m3), name_of(stored),
          padding_of<scales>(stored),
          fmt::format("{}{}; {}", Entry::scale_shape, plain ? "" : " (fused gate and up of experts)", Entry::pair::id));
    }
  });
  return text;
}

std::vector<fp8wire::tensor_spec> specs_in(const format& how, std::vector<fp8wire::tensor_spec> canonical,
                                           const fp8wire::matrix_extents& extents) {
  return specs_in(how.layout, *how.preset, std::move(canonical), extents);
}

void lay_out(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
             const canonical_pair& from, std::span<std::byte> codes, std::span<std::byte> scales) {
  const fp8wire::error wrong =
      lay_out_pair(how.layout, *how.preset, weight, extents, from.codes.data(), from.scales.data(), codes, scales);
  if (wrong.code == fp8wire::errc::bad_scale && find_quantizer(how.preset->name, "pow2") != nullptr)
    refuse("{}; --scale pow2 makes scales that are", wrong.message());
  must(wrong);
}

void take_back(const format& how, std::string_view weight, const fp8wire::matrix_extents& extents,
               std::span<const std::byte> codes, std::span<const std::byte> scales, canonical_pair& to) {
  must(take_back_pair(how.layout, *how.preset, weight, extents, codes, scales, to.codes.data(), to.scales.data()));
}

}  // namespace programs
