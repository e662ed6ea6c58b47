// SPDX-License-Identifier: Apache-2.0
/// Small owners of weights, codes and scales for the tests of this floor.
#ifndef FP8WIRE_TESTS_QUANT_TENSORS_HPP
#define FP8WIRE_TESTS_QUANT_TENSORS_HPP
#include <string>
#include <vector>

#include <fp8wire/quant/reference.hpp>

namespace test {
using namespace fp8wire;

/// Codes and scales of one tensor, dense.
template <any_recipe Recipe> struct pair_of {
  i64 batch, rows, cols;
  std::vector<u8> codes;
  std::vector<stored_t<Recipe>> scales;
  pair_of(i64 r, i64 c, i64 b = 1)
      : batch(b),
        rows(r),
        cols(c),
        codes(static_cast<std::size_t>(b * r * c), 0xA5),
        scales(static_cast<std::size_t>(b * scale_rows<typename Recipe::block>(r) *
                                        scale_cols<typename Recipe::block>(c))) {}
  pair_view<Recipe> view() {
    return {dense(codes.data(), rows, cols, batch), dense(scales.data(), scale_rows<typename Recipe::block>(rows),
                                                          scale_cols<typename Recipe::block>(cols), batch)};
  }
};

inline u32 bits(float scale) { return bits_of(scale); }
inline u32 bits(bf16 scale) { return scale.bits; }
inline u32 bits(e8m0 scale) { return scale.bits; }

/// Quantizes dense matrices by the scalar definition, which every other path is compared with elsewhere.
template <any_recipe Recipe, class In>
pair_of<Recipe> quantized(const std::vector<In>& weights, i64 rows, i64 cols, float floor = Recipe::num.amax_floor,
                          i64 batch = 1) {
  pair_of<Recipe> out(rows, cols, batch);
  const auto in = dense(weights.data(), rows, cols, batch);
  for (i64 b = 0; b < batch; ++b)
    for (i64 row = 0; row < out.view().scales.rows; ++row)
      reference::quantize_block_row<Recipe, In>(in.slice_of(b), row, out.view().codes.slice_of(b),
                                                out.view().scales.slice_of(b), floor);
  return out;
}

/// FP32 bits as the input type; they must be exact in it.
template <class In> In exactly(u32 fp32_bits) { return from_float<In>(float_of(fp32_bits)); }

/// "7E,FE,38" as numbers.
inline std::vector<u32> hex_list(const std::string& text) {
  std::vector<u32> numbers;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t used = 0;
    numbers.push_back(static_cast<u32>(std::stoul(text.substr(at), &used, 16)));
    at += used + 1;
  }
  return numbers;
}

}  // namespace test
#endif
