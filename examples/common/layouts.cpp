// SPDX-License-Identifier: Apache-2.0
#include "layouts.hpp"

#include <fp8wire/model/fusion.hpp>

#include "program.hpp"

namespace programs {
namespace {

// What of a weight decides which pair of layouts an engine wants.
fp8wire::layout_use use_of(const quantizer& preset, std::string_view weight) {
  return {preset.block_rows, preset.block_cols, preset.stored,
          fp8wire::is_gate_up(weight) ? fp8wire::weight_role::gate_up : fp8wire::weight_role::plain};
}

// Calls function(canonical scales) under the type that a preset stores them in.
template <class Function> auto with_scales(const quantizer& preset, const fp8wire::matrix_extents& extents,
                                           const void* data, Function&& function) {
  const auto view = [&]<class Stored>(const Stored* scales) {
    return function(fp8wire::laid_out<fp8wire::row_major, const Stored>{
        scales, extents.batch, preset.scale_rows(extents.rows), preset.scale_cols(extents.cols)});
  };
  if (preset.stored == fp8wire::dtype::f8_e8m0) return view(static_cast<const fp8wire::e8m0*>(data));
  if (preset.stored == fp8wire::dtype::bf16) return view(static_cast<const fp8wire::bf16*>(data));
  return view(static_cast<const float*>(data));
}

}  // namespace

fp8wire::result<fp8wire::engine_shapes> shapes_in(std::string_view layout, const quantizer& preset,
                                                  std::string_view weight, const fp8wire::matrix_extents& m) {
  return fp8wire::shapes_in(layout, use_of(preset, weight), weight, m.batch, m.rows, m.cols);
}

std::vector<fp8wire::tensor_spec> specs_in(std::string_view layout, const quantizer& preset,
                                           std::vector<fp8wire::tensor_spec> canonical,
                                           const fp8wire::matrix_extents& m) {
  fp8wire::tensor_spec &codes = canonical.front(), &scales = canonical.back();
  const auto shapes = shapes_in(layout, preset, codes.name, m);
  if (!shapes && shapes.error().code == fp8wire::errc::format_mismatch)
    misuse("--layout {} with --recipe {}: {}", layout, preset.name, shapes.error().message());
  if (!shapes) refuse("{}; --keep '{}' leaves it in its own dtype", shapes.error().message(), codes.name);
  // A 2-D weight is a batch of one, and is stored without the batch.
  const auto batch = codes.shape.size() == 2 ? 1 : 0;
  codes.shape.assign(shapes->codes.begin() + batch, shapes->codes.end());
  scales.shape.assign(shapes->scales.begin() + batch, shapes->scales.end());
  if (shapes->scale != preset.stored) scales.dtype = shapes->scale;
  return canonical;
}

fp8wire::error lay_out_pair(std::string_view layout, const quantizer& preset, std::string_view weight,
                            const fp8wire::matrix_extents& m, const void* codes, const void* scales,
                            std::span<std::byte> codes_out, std::span<std::byte> scales_out) {
  const fp8wire::laid_out<fp8wire::row_major, const fp8wire::u8> in{static_cast<const fp8wire::u8*>(codes), m.batch,
                                                                    m.rows, m.cols};
  return with_scales(preset, m, scales, [&](const auto& grid) {
    return fp8wire::lay_out(layout, use_of(preset, weight), weight, in, grid,
                            {reinterpret_cast<fp8wire::u8*>(codes_out.data()), codes_out.size()}, scales_out);
  });
}

fp8wire::error take_back_pair(std::string_view layout, const quantizer& preset, std::string_view weight,
                              const fp8wire::matrix_extents& m, std::span<const std::byte> codes_in,
                              std::span<const std::byte> scales_in, void* codes, void* scales) {
  const fp8wire::laid_out<fp8wire::row_major, fp8wire::u8> out{static_cast<fp8wire::u8*>(codes), m.batch, m.rows,
                                                               m.cols};
  return with_scales(
      preset, m, scales, [&]<class Stored>(const fp8wire::laid_out<fp8wire::row_major, const Stored>& grid) {
        const fp8wire::laid_out<fp8wire::row_major, Stored> into{static_cast<Stored*>(scales), grid.batch, grid.rows,
                                                                 grid.cols};
        return fp8wire::canonical_from(layout, use_of(preset, weight), weight,
                                       {reinterpret_cast<const fp8wire::u8*>(codes_in.data()), codes_in.size()},
                                       scales_in, out, into);
      });
}

}  // namespace programs
