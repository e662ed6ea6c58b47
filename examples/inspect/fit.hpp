// SPDX-License-Identifier: Apache-2.0
/// Which presets could have made given bytes.
#ifndef FP8WIRE_EXAMPLES_INSPECT_FIT_HPP
#define FP8WIRE_EXAMPLES_INSPECT_FIT_HPP
#include <vector>

#include "pairs.hpp"

namespace programs {

/// Fills presets, blocks_checked, zero_blocks, nan_codes and faults.zero_over_codes of a canonical pair.
///
/// A preset fits a block when some amax of BF16 (or FP32) weights leads to the stored scale and to the block's largest
/// code. Presets that differ only in how elements are rounded cannot be told apart this way: --against can.
void fit_presets(pair_report& pair);

/// What is in both.
std::vector<preset_fit> common_fits(const std::vector<preset_fit>& a, const std::vector<preset_fit>& b);

}  // namespace programs
#endif
