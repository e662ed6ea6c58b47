// SPDX-License-Identifier: Apache-2.0
/// Two checkpoints against each other, and one against the weights that it was made of.
#ifndef FP8WIRE_EXAMPLES_INSPECT_COMPARE_HPP
#define FP8WIRE_EXAMPLES_INSPECT_COMPARE_HPP
#include <string>
#include <vector>

#include "pairs.hpp"

namespace programs {

/// A tensor that stands in both but not with the same bytes.
struct difference {
  std::string name, what;           // what: "codes", "scales", "bytes", or why they cannot be compared
  fp8wire::u64 differ = 0, of = 0;  // elements
  double largest = 0;  // of |a - b|: values of codes, of scales, of weights; 0 where bytes have no value
  fp8wire::i64 first = -1;  // element
};

struct comparison {
  std::vector<std::string> only_a, only_b;
  std::vector<difference> differences;
  fp8wire::u64 same = 0;  // tensors
  std::string grid_a, grid_b;      // ids from the metadata, empty where there are none
  std::string layout_a, layout_b;  // names from the metadata; "canonical" where there are none
  std::vector<preset_fit> presets;  // that could have made both
  bool equal() const { return only_a.empty() && only_b.empty() && differences.empty(); }
};

comparison compare_checkpoints(const fp8wire::checkpoint& a, const fp8wire::checkpoint& b, const std::string& pattern,
                               workers& threads);

/// One block and its error.
struct block_error {
  fp8wire::i64 batch = 0, row = 0, col = 0;  // of the grid of blocks
  deviation error;
};

/// A pair against the original.
struct pair_error {
  std::string name, problem;  // why it could not be measured
  deviation all;
  std::vector<block_error> worst;  // lowest SQNR first
  // The grid in cells of at most 48 x 48, each with the lowest SQNR in it (in dB; 1000 where nothing was lost).
  fp8wire::i64 heat_rows = 0, heat_cols = 0;
  std::vector<float> heat;
  std::vector<std::string> made_by;  // presets whose bytes these are exactly
};

/// Measures every pair that has an original of the same shape, and proves which of its presets made it.
std::vector<pair_error> measure_against(const inspection& found, const fp8wire::checkpoint& original,
                                        const fp8wire::checkpoint& from, workers& threads);

}  // namespace programs
#endif
