// SPDX-License-Identifier: Apache-2.0
/// How far codes and scales are from the weights they were made of, block by block.
#ifndef FP8WIRE_EXAMPLES_MEASURE_HPP
#define FP8WIRE_EXAMPLES_MEASURE_HPP
#include <cmath>
#include <cstring>
#include <vector>

#include <fp8wire/format/bf16.hpp>
#include <fp8wire/format/e8m0.hpp>
#include <fp8wire/format/fp16.hpp>
#include <fp8wire/quant/block.hpp>

#include "quantizer.hpp"

namespace programs {

/// Sums over elements. Only elements whose weight and value are both finite take part in the errors.
struct deviation {
  fp8wire::u64 elements = 0, blocks = 0, zero_blocks = 0;
  fp8wire::u64 saturated = 0;  // beyond the largest code by more than half of its step: cut off, not rounded
  fp8wire::u64 nonfinite = 0;  // NaN or Inf in the weights
  double largest = 0, squared_error = 0, squared_weight = 0;

  void add(const deviation& other) {
    elements += other.elements;
    blocks += other.blocks;
    zero_blocks += other.zero_blocks;
    saturated += other.saturated;
    nonfinite += other.nonfinite;
    largest = other.largest > largest ? other.largest : largest;
    squared_error += other.squared_error;
    squared_weight += other.squared_weight;
  }
  double mse() const { return elements == 0 ? 0 : squared_error / static_cast<double>(elements); }
  /// Signal to quantization noise; infinite where nothing was lost.
  double sqnr_db() const { return 10 * std::log10(squared_weight / squared_error); }
};

/// Codes and canonical scales as bytes, and what they mean.
struct pair_bytes {
  const fp8wire::u8* codes = nullptr;
  const void* scales = nullptr;
  fp8wire::dtype scale_type = fp8wire::dtype::f32;  // f32, bf16, or f8_e8m0 however it is labelled
  int block_rows = 128, block_cols = 128;
  const float* values = nullptr;                    // of the 256 codes

  /// Any alignment: files promise none.
  float scale(fp8wire::i64 index) const {
    if (scale_type == fp8wire::dtype::f8_e8m0)
      return fp8wire::to_float(fp8wire::e8m0{static_cast<const fp8wire::u8*>(scales)[index]});
    if (scale_type == fp8wire::dtype::bf16) {
      fp8wire::bf16 value;
      std::memcpy(&value, static_cast<const char*>(scales) + index * 2, 2);
      return fp8wire::to_float(value);
    }
    float value;
    std::memcpy(&value, static_cast<const char*>(scales) + index * 4, 4);
    return value;
  }
};

/// Calls at(batch, block_row, block_col, deviation of that block), in order within a row of blocks; workers share rows.
template <class At> void measure_blocks(const weights& in, const pair_bytes& pair, workers& threads, const At& at) {
  const fp8wire::i64 rows = in.extents.rows, cols = in.extents.cols;
  const fp8wire::i64 height = fp8wire::detail::block_extent(pair.block_rows, rows),
                     width = fp8wire::detail::block_extent(pair.block_cols, cols);
  const fp8wire::i64 block_rows = fp8wire::ceil_div(rows, height), block_cols = fp8wire::ceil_div(cols, width);
  if (cols == 0) return;
  float top = 0, next = 0;  // the two largest magnitudes of the format
  for (int code = 0; code < 128; ++code) {
    const float value = pair.values[code];
    if (!fp8wire::f32::is_finite(fp8wire::bits_of(value))) continue;
    if (value > top) next = top, top = value;
  }
  const double largest = static_cast<double>(top), cut = largest + (largest - static_cast<double>(next)) / 2;
  const auto job = [&]<class In>(const In* data, fp8wire::i64 number) {
    const fp8wire::i64 batch = number / block_rows, block_row = number % block_rows;
    const fp8wire::i64 first = block_row * height, last = (std::min)(first + height, rows);
    for (fp8wire::i64 block_col = 0; block_col < block_cols; ++block_col) {
      const fp8wire::i64 left = block_col * width, right = (std::min)(left + width, cols);
      const float scale = pair.scale((batch * block_rows + block_row) * block_cols + block_col);
      const double beyond = cut * static_cast<double>(scale);
      deviation sum;
      sum.blocks = 1;
      bool zero = true;
      for (fp8wire::i64 row = first; row < last; ++row) {
        const fp8wire::i64 start = (batch * rows + row) * cols;
        for (fp8wire::i64 i = start + left; i < start + right; ++i) {
          const float weight = fp8wire::to_float(data[i]), value = pair.values[pair.codes[i]] * scale;
          zero = zero && fp8wire::f32::is_zero(fp8wire::bits_of(weight));
          if (!fp8wire::f32::is_finite(fp8wire::bits_of(weight))) {
            ++sum.nonfinite;
            continue;
          }
          if (!fp8wire::f32::is_finite(fp8wire::bits_of(value))) continue;
          const double exact = static_cast<double>(weight), error = exact - static_cast<double>(value),
                       size = std::fabs(error);
          ++sum.elements;
          if (std::fabs(exact) > beyond) ++sum.saturated;
          if (size > sum.largest) sum.largest = size;
          sum.squared_error += error * error;
          sum.squared_weight += exact * exact;
        }
      }
      sum.zero_blocks = zero ? 1 : 0;
      at(batch, block_row, block_col, sum);
    }
  };
  threads.run(in.extents.batch * block_rows, [&](fp8wire::i64 number) {
    switch (in.type) {
      case fp8wire::dtype::bf16: return job(static_cast<const fp8wire::bf16*>(in.data), number);
      case fp8wire::dtype::f16: return job(static_cast<const fp8wire::fp16*>(in.data), number);
      default: return job(static_cast<const float*>(in.data), number);
    }
  });
}

/// The whole tensor. The sum is made in one order whatever the number of threads, so that reports are the same.
inline deviation measure(const weights& in, const pair_bytes& pair, workers& threads) {
  const fp8wire::i64 block_rows =
      fp8wire::ceil_div(in.extents.rows, fp8wire::detail::block_extent(pair.block_rows, in.extents.rows));
  std::vector<deviation> rows(static_cast<std::size_t>(in.extents.batch * block_rows));
  measure_blocks(in, pair, threads, [&](fp8wire::i64 batch, fp8wire::i64 row, fp8wire::i64, const deviation& block) {
    rows[static_cast<std::size_t>(batch * block_rows + row)].add(block);
  });
  deviation whole;
  for (const deviation& row : rows) whole.add(row);
  return whole;
}

}  // namespace programs
#endif
