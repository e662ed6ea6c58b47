// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <array>

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::i64;
using fp8wire::u32;
using fp8wire::u64;
using fp8wire::u8;

constexpr u64 most_blocks = 1024;  // of one tensor; more tell nothing new

/// A block as its bytes show it.
struct seen_block {
  u32 scale_bits;
  float scale;
  u8 largest;    // code of the largest magnitude, sign dropped
  bool ragged;   // cut off by the matrix's edge
};

u32 stored_bits(const pair_bytes& bytes, i64 index) {
  if (bytes.scale_type == dtype::f8_e8m0) return static_cast<const u8*>(bytes.scales)[index];
  const u32 bits = fp8wire::bits_of(bytes.scale(index));
  return bytes.scale_type == dtype::bf16 ? bits >> 16 : bits;
}

/// The amax candidates of a block: the ends and the middle of what rounds to its largest code, and the neighbourhood of
/// the largest code's own value, where FP32 scales come from.
std::vector<float> candidates(const seen_block& block, const float* values, u8 top) {
  std::vector<float> all;
  const auto around = [&](float amax, u32 step, int reach) {
    const u32 bits = fp8wire::bits_of(amax);
    for (int i = -reach; i <= reach; ++i) all.push_back(fp8wire::float_of(bits + static_cast<u32>(i) * step));
  };
  if (block.largest == 0) return {0.0f, values[1] * block.scale / 4};
  const float value = values[block.largest], below = values[block.largest - 1],
              above = block.largest < top ? values[block.largest + 1] : value * 8 / 7;
  around(value * block.scale, 1, 3);  // FP32 weights
  around(value * block.scale, 0x10000, 1);  // BF16 weights, rounded below
  for (const float part : {0.03125f, 0.25f, 0.5f, 0.75f, 0.96875f}) {
    all.push_back((below + (value - below) * (0.5f + part / 2)) * block.scale);
    all.push_back((value + (above - value) * part * (block.largest < top ? 0.5f : 1.0f)) * block.scale);
  }
  return all;
}

bool fits(const quantizer& row, dtype input, const seen_block& block, const std::vector<float>& amaxes) {
  for (const float amax : amaxes) {
    const u32 bits = fp8wire::bits_of(amax);
    const float weight = input == dtype::bf16
                             ? fp8wire::to_float(fp8wire::bf16{static_cast<fp8wire::u16>((bits + 0x8000) >> 16)})
                             : amax;
    if (!fp8wire::f32::is_finite(fp8wire::bits_of(weight))) continue;
    const block_outcome made = row.block_of(input, weight, row.amax_floor);
    if (made.stored_bits != block.scale_bits) continue;
    // A padded edge block may owe its scale to an element that lies elsewhere.
    if ((made.code & 0x7F) == block.largest || (block.ragged && row.pads_edges)) return true;
  }
  return false;
}

}  // namespace

void fit_presets(pair_report& pair) {
  const auto [batch, rows, cols] = pair.extents;
  if (pair.bytes.values == nullptr || pair.blocks == 0) return;
  const i64 height = fp8wire::detail::block_extent(pair.bytes.block_rows, rows),
            width = fp8wire::detail::block_extent(pair.bytes.block_cols, cols);
  const i64 block_rows = fp8wire::ceil_div(rows, height), block_cols = fp8wire::ceil_div(cols, width);
  u8 top = 127;
  while (!fp8wire::f32::is_finite(fp8wire::bits_of(pair.bytes.values[top]))) --top;
  const u64 stride = (pair.blocks + most_blocks - 1) / most_blocks;
  std::vector<seen_block> blocks;
  for (u64 i = 0; i < pair.blocks; ++i) {
    const i64 index = static_cast<i64>(i), b = index / (block_rows * block_cols), row = index / block_cols % block_rows,
              col = index % block_cols;
    const i64 last_row = (std::min)((row + 1) * height, rows), last_col = (std::min)((col + 1) * width, cols);
    u8 largest = 0;
    bool nan = false;
    for (i64 r = row * height; r < last_row; ++r) {
      const u8* codes = pair.bytes.codes + (b * rows + r) * cols;
      for (i64 c = col * width; c < last_col; ++c) {
        const u8 code = codes[c] & 0x7F;
        if (code > top) ++pair.nan_codes, nan = true;
        else if (code > largest) largest = code;
      }
    }
    const float scale = pair.bytes.scale(index);
    if (largest == 0 && !nan) ++pair.zero_blocks;
    if (largest > 0 && fp8wire::f32::is_zero(fp8wire::bits_of(scale))) ++pair.faults.zero_over_codes;
    const bool ragged = last_row - row * height < height || last_col - col * width < width;
    if (i % stride == 0 && !nan) blocks.push_back({stored_bits(pair.bytes, index), scale, largest, ragged});
  }
  pair.blocks_checked = blocks.size();
  for (const quantizer& row : quantizers()) {
    if (row.codes != pair.codes || row.stored != pair.bytes.scale_type || row.block_rows != pair.bytes.block_rows ||
        row.block_cols != pair.bytes.block_cols)
      continue;
    preset_fit fit{&row, true, true};
    for (const seen_block& block : blocks) {
      const std::vector<float> amaxes = candidates(block, pair.bytes.values, top);
      fit.from_bf16 = fit.from_bf16 && fits(row, dtype::bf16, block, amaxes);
      fit.from_fp32 = fit.from_fp32 && fits(row, dtype::f32, block, amaxes);
      if (!fit.from_bf16 && !fit.from_fp32) break;
    }
    if (fit.from_bf16 || fit.from_fp32) pair.presets.push_back(fit);
  }
}

std::vector<preset_fit> common_fits(const std::vector<preset_fit>& a, const std::vector<preset_fit>& b) {
  std::vector<preset_fit> both;
  for (const preset_fit& one : a)
    for (const preset_fit& other : b)
      if (one.row == other.row && ((one.from_bf16 && other.from_bf16) || (one.from_fp32 && other.from_fp32)))
        both.push_back({one.row, one.from_bf16 && other.from_bf16, one.from_fp32 && other.from_fp32});
  return both;
}

}  // namespace programs
