// SPDX-License-Identifier: Apache-2.0
/// Presets chosen at run time: one row of function pointers for each, the one place where the programs' templates meet.
#ifndef FP8WIRE_EXAMPLES_QUANTIZER_HPP
#define FP8WIRE_EXAMPLES_QUANTIZER_HPP
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/hash.hpp>
#include <fp8wire/model/naming.hpp>
#include <fp8wire/model/tensor_spec.hpp>
#include <fp8wire/model/wire_format.hpp>
#include <fp8wire/quant/verify.hpp>

#include "workers.hpp"

namespace programs {

/// A dense tensor of BF16, FP16 or FP32 weights; `data` is aligned to its elements.
struct weights {
  fp8wire::dtype type = fp8wire::dtype::bf16;
  const void* data = nullptr;
  fp8wire::matrix_extents extents;
};

/// What a preset makes of a block, for asking which presets could have made given bytes.
struct block_outcome {
  fp8wire::u32 stored_bits = 0;
  fp8wire::u8 code = 0;
};

/// Whether tensors of that dtype can be quantized.
constexpr bool is_weight_dtype(fp8wire::dtype type) noexcept {
  return type == fp8wire::dtype::bf16 || type == fp8wire::dtype::f16 || type == fp8wire::dtype::f32;
}

/// The naming of the scales, chosen once by the command line: wire_format takes an object with static storage.
inline fp8wire::naming chosen_naming = fp8wire::namings::vllm;

/// One preset. `via_bf16`: FP32 weights are rounded to BF16 first.
struct quantizer {
  std::string_view name, scale, naming, source, element, block;
  bool modelled = false, microscaling = false;
  bool always_via_bf16 = false;  // the preset does so unasked
  bool pads_edges = false;  // with an element of the matrix
  float amax_floor = 0;  // the preset's own
  int block_rows = 0, block_cols = 0;  // fp8wire::whole: the matrix's extent
  fp8wire::dtype codes, stored;  // stored: f32, bf16, or f8_e8m0 however a naming labels it
  const float* values;  // of the 256 codes

  /// Everything that decides the bytes, in words.
  std::string (*grid_text)(float amax_floor, bool via_bf16);
  /// Codes and scales of a weight in canonical layout under the chosen naming, or why there are none.
  fp8wire::result<std::vector<fp8wire::tensor_spec>> (*tensors)(std::string_view weight,
                                                                const std::vector<fp8wire::i64>& shape);
  /// Dense, canonical; block rows are spread over the workers. Returns whether all weights are finite.
  bool (*quantize)(const weights&, void* codes, void* scales, float amax_floor, bool via_bf16, workers&);
  /// Against the scalar reference, on the calling thread.
  fp8wire::mismatch (*verify)(const weights&, const void* codes, const void* scales, float amax_floor, bool via_bf16);
  /// Bits of the scale of a block with that amax, and the code of the amax itself.
  block_outcome (*block_of)(fp8wire::dtype input, float amax, float amax_floor);

  fp8wire::u64 grid_id(float floor, bool via_bf16) const { return fp8wire::hash(grid_text(floor, via_bf16)); }
  fp8wire::i64 scale_rows(fp8wire::i64 rows) const {
    return fp8wire::ceil_div(rows, fp8wire::detail::block_extent(block_rows, rows));
  }
  fp8wire::i64 scale_cols(fp8wire::i64 cols) const {
    return fp8wire::ceil_div(cols, fp8wire::detail::block_extent(block_cols, cols));
  }
};

/// Every preset there is, in the order of presets::all.
std::span<const quantizer> quantizers();

/// The first row with all of these; empty fields mean the name's default. Null where there is none.
const quantizer* find_quantizer(std::string_view name, std::string_view scale = {}, std::string_view element = {},
                                std::string_view block = {});

}  // namespace programs
#endif
