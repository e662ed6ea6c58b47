// SPDX-License-Identifier: Apache-2.0
/// Codes and the scales that belong to them, found from dtypes, shapes and contents.
#ifndef FP8WIRE_EXAMPLES_INSPECT_PAIRS_HPP
#define FP8WIRE_EXAMPLES_INSPECT_PAIRS_HPP
#include <map>
#include <string>
#include <vector>

#include <fp8wire/io/checkpoint.hpp>
#include <fp8wire/model/wire_format.hpp>

#include "../common/measure.hpp"
#include "audit.hpp"

namespace programs {

/// Scales that no sound writer makes.
struct scale_faults {
  fp8wire::u64 zero = 0, negative = 0, infinite = 0, nan = 0;  // E8M0 255 counts as NaN
  fp8wire::u64 zero_over_codes = 0;                            // zero where the block holds other codes than zero
  fp8wire::i64 first = -1;                                     // index of the first of any kind
  fp8wire::u64 all() const { return zero + negative + infinite + nan; }
  bool broken() const { return zero_over_codes + negative + infinite + nan > 0; }
};

/// A preset that fits every block that was looked at.
struct preset_fit {
  const quantizer* row = nullptr;
  bool from_bf16 = false, from_fp32 = false;  // whether such weights could have led to these scales
};

/// One FP8 tensor and its scales.
struct pair_report {
  std::string name, scale_name;
  fp8wire::dtype codes = fp8wire::dtype::f8_e4m3, scale_dtype = fp8wire::dtype::f32;
  std::vector<fp8wire::i64> shape, scale_shape;
  fp8wire::matrix_extents extents;
  std::string encoding;  // "FP32", "FP32 power of two", "BF16", "E8M0", "E8M0 in 128x4 tiles", "E8M0 packed in int32"
  std::string block;  // "128x128"
  std::string problem;  // why the pair is broken; empty when it is not
  std::string note;
  bool canonical = false;  // row-major scales of the weight's blocks: everything below is filled
  pair_bytes bytes;
  std::vector<fp8wire::u64> own_codes, own_scales;  // what `bytes` points to where the file has another layout
  fp8wire::u64 blocks = 0, zero_blocks = 0, nan_codes = 0;
  scale_faults faults;
  float smallest = 0, largest = 0;  // of the sound scales
  std::map<int, fp8wire::u64> exponents;  // floor(log2(scale)) -> blocks
  fp8wire::u64 blocks_checked = 0;
  std::vector<preset_fit> presets;
};

struct orphan {
  std::string name, what;
};

/// A whole checkpoint.
struct inspection {
  std::vector<pair_report> pairs;
  std::vector<orphan> orphans;
  std::map<std::string, fp8wire::u64> other;  // dtype -> tensors that belong to no pair
  std::vector<preset_fit> presets;  // that could have made every pair
  audit_report audit;
  fp8wire::u64 broken() const;
};

/// A checkpoint's tensors in the order of their names.
std::vector<const fp8wire::checkpoint_tensor*> by_name(const fp8wire::checkpoint& from);

/// `pattern` limits what is looked at; empty for all.
inspection inspect_checkpoint(const fp8wire::checkpoint& from, const std::string& pattern, workers& threads);

}  // namespace programs
#endif
