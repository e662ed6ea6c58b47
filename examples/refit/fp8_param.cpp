// SPDX-License-Identifier: Apache-2.0
#include "fp8_param.hpp"

#include <fp8wire/format/fp32.hpp>
#include <fp8wire/quant/presets/all.hpp>

namespace programs {
namespace {

template <class Recipe> struct shards_of {
  using stored = fp8wire::stored_t<Recipe>;

  /// Calls function.operator()<In>() with the type that the dtype stands for.
  template <class Function> static auto with_type(fp8wire::dtype type, const Function& function) {
    switch (type) {
      case fp8wire::dtype::bf16: return function.template operator()<fp8wire::bf16>();
      case fp8wire::dtype::f16: return function.template operator()<fp8wire::fp16>();
      default: return function.template operator()<float>();
    }
  }
  template <class Value> static fp8wire::matrix_view<Value> grid(const fp8wire::matrix_extents& of, Value* values) {
    using block = typename Recipe::block;
    return fp8wire::dense(values, fp8wire::scale_rows<block>(of.rows), fp8wire::scale_cols<block>(of.cols), of.batch);
  }
  static fp8wire::i64 amax(fp8wire::dtype type, const fp8wire::matrix_extents& of, fp8wire::flat_range range,
                           const void* values, fp8wire::u32* amaxes) {
    return with_type(type, [&]<class In>() {
      return fp8wire::partial_amax<Recipe, In>(of, range, static_cast<const In*>(values), grid(of, amaxes));
    });
  }
  static fp8wire::scale_changes scales(fp8wire::dtype type, const fp8wire::matrix_extents& of,
                                       const fp8wire::u32* amaxes, void* scales_, float* operands, float amax_floor) {
    return with_type(type, [&]<class In>() {
      return fp8wire::block_scales<Recipe, In>(grid(of, amaxes), grid(of, static_cast<stored*>(scales_)),
                                               grid(of, operands), amax_floor);
    });
  }
  static fp8wire::i64 cast(fp8wire::dtype type, const fp8wire::matrix_extents& of, fp8wire::flat_range range,
                           const void* values, const float* operands, fp8wire::u8* codes) {
    return with_type(type, [&]<class In>() {
      return fp8wire::partial_cast<Recipe, In>(of, range, static_cast<const In*>(values), grid(of, operands), codes);
    });
  }
};

}  // namespace

shard_functions shard_functions_of(const quantizer& row) {
  shard_functions found;
  found.row = &row;
  fp8wire::presets::for_each([&]<class Preset>() {
    using recipe = typename Preset::recipe;
    if (found.amax != nullptr || Preset::name != row.name || Preset::scale != row.scale ||
        recipe::element::id != row.element || recipe::block::rows != row.block_rows ||
        recipe::block::cols != row.block_cols)
      return;
    using functions = shards_of<recipe>;
    found.amax = functions::amax;
    found.scales = functions::scales;
    found.cast = functions::cast;
  });
  return found;
}

}  // namespace programs
