// SPDX-License-Identifier: Apache-2.0
#include "compare.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>

#include <fmt/format.h>

#include "../common/files.hpp"
#include "fit.hpp"

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::i64;
using fp8wire::u64;

/// The value of element i of a float tensor or of codes; NaN for other dtypes.
double value_at(dtype type, const std::byte* data, i64 i) {
  for (const quantizer& row : quantizers())
    if (row.codes == type) return static_cast<double>(row.values[static_cast<fp8wire::u8>(data[i])]);
  pair_bytes as_scales;
  as_scales.scales = data;
  as_scales.scale_type = type;
  if (type == dtype::f32 || type == dtype::bf16 || type == dtype::f8_e8m0)
    return static_cast<double>(as_scales.scale(i));
  return std::nan("");
}

void compare_bytes(difference& found, const fp8wire::checkpoint_tensor& a, const fp8wire::checkpoint_tensor& b) {
  const i64 width = (std::max)(1, fp8wire::bit_width(a.dtype) / 8), count = static_cast<i64>(a.bytes.size()) / width;
  found.of = static_cast<u64>(count);
  for (i64 i = 0; i < count; ++i) {
    if (std::memcmp(a.bytes.data() + i * width, b.bytes.data() + i * width, static_cast<std::size_t>(width)) == 0)
      continue;
    if (found.differ++ == 0) found.first = i;
    const double distance = std::fabs(value_at(a.dtype, a.bytes.data(), i) - value_at(a.dtype, b.bytes.data(), i));
    if (distance > found.largest) found.largest = distance;
  }
}

double cell_db(const deviation& block) {
  if (block.squared_error == 0.0) return 1000;
  return (std::max)(-1000.0, block.sqnr_db());
}

}  // namespace

comparison compare_checkpoints(const fp8wire::checkpoint& a, const fp8wire::checkpoint& b, const std::string& pattern,
                               workers& threads) {
  comparison found;
  const auto wanted = [&](const std::string& name) {
    return pattern.empty() || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  std::vector<const fp8wire::checkpoint_tensor*> common;
  for (const fp8wire::checkpoint_tensor* tensor : by_name(a)) {
    if (!wanted(tensor->name)) continue;
    if (b.find(tensor->name) == nullptr) found.only_a.push_back(tensor->name);
    else common.push_back(tensor);
  }
  for (const fp8wire::checkpoint_tensor* tensor : by_name(b))
    if (wanted(tensor->name) && a.find(tensor->name) == nullptr) found.only_b.push_back(tensor->name);
  std::mutex adding;
  threads.run(static_cast<i64>(common.size()), [&](i64 number) {
    const fp8wire::checkpoint_tensor& left = *common[static_cast<std::size_t>(number)];
    const fp8wire::checkpoint_tensor& right = *b.find(left.name);
    difference one;
    one.name = left.name;
    if (left.dtype != right.dtype || left.shape != right.shape) {
      one.what = fmt::format("{} [{}] against {} [{}]", name_of(left.dtype), fmt::join(left.shape, ", "),
                             name_of(right.dtype), fmt::join(right.shape, ", "));
    } else {
      compare_bytes(one, left, right);
      one.what = one.name.find("_scale") != std::string::npos ? "scales"
                 : fp8wire::bit_width(left.dtype) == 8        ? "codes"
                                                              : "weights";
    }
    a.drop(left);
    b.drop(right);
    const std::lock_guard lock(adding);
    if (one.differ > 0 || left.dtype != right.dtype || left.shape != right.shape)
      found.differences.push_back(std::move(one));
    else ++found.same;
  });
  std::sort(found.differences.begin(), found.differences.end(),
            [](const difference& x, const difference& y) { return x.name < y.name; });
  const auto said = [](const fp8wire::checkpoint& of, std::string_view what, std::string otherwise) {
    for (const fp8wire::checkpoint_shard& shard : of.shards())
      for (const auto& [key, value] : shard.metadata)
        if (key == what) return value;
    return otherwise;
  };
  found.grid_a = said(a, "fp8wire.grid_id", "");
  found.grid_b = said(b, "fp8wire.grid_id", "");
  found.layout_a = said(a, "fp8wire.layout", "canonical");
  found.layout_b = said(b, "fp8wire.layout", "canonical");
  found.presets =
      common_fits(inspect_checkpoint(a, pattern, threads).presets, inspect_checkpoint(b, pattern, threads).presets);
  return found;
}

std::vector<pair_error> measure_against(const inspection& found, const fp8wire::checkpoint& original,
                                        const fp8wire::checkpoint& from, workers& threads) {
  constexpr std::size_t most_worst = 5;
  constexpr i64 most_cells = 48;
  std::vector<pair_error> errors;
  for (const pair_report& pair : found.pairs) {
    pair_error& one = errors.emplace_back();
    one.name = pair.name;
    const fp8wire::checkpoint_tensor* weight = original.find(pair.name);
    if (!pair.canonical || pair.bytes.values == nullptr) one.problem = "its scales are not canonical";
    else if (weight == nullptr) one.problem = "no such tensor in the original";
    else if (!is_weight_dtype(weight->dtype)) one.problem = fmt::format("{} in the original", name_of(weight->dtype));
    else if (weight->shape != pair.shape)
      one.problem = fmt::format("[{}] in the original", fmt::join(weight->shape, ", "));
    if (!one.problem.empty()) continue;
    std::vector<u64> aligned;
    const weights in = aligned_weights(weight->dtype, weight->bytes, pair.extents, aligned);
    const i64 block_rows =
        fp8wire::ceil_div(pair.extents.rows, fp8wire::detail::block_extent(pair.bytes.block_rows, pair.extents.rows));
    const i64 block_cols =
        fp8wire::ceil_div(pair.extents.cols, fp8wire::detail::block_extent(pair.bytes.block_cols, pair.extents.cols));
    const i64 all_rows = pair.extents.batch * block_rows;  // matrices of a batch stand below each other
    one.heat_rows = (std::min)(all_rows, most_cells);
    one.heat_cols = (std::min)(block_cols, most_cells);
    one.heat.assign(static_cast<std::size_t>(one.heat_rows * one.heat_cols), 1000.0f);
    std::vector<deviation> sums(static_cast<std::size_t>(all_rows));
    std::mutex adding;
    const auto less = [](const block_error& x, const block_error& y) {
      const double dx = cell_db(x.error), dy = cell_db(y.error);
      return dx != dy ? dx < dy : std::tie(x.batch, x.row, x.col) < std::tie(y.batch, y.row, y.col);
    };
    measure_blocks(in, pair.bytes, threads, [&](i64 batch, i64 row, i64 col, const deviation& block) {
      const i64 line = batch * block_rows + row;
      sums[static_cast<std::size_t>(line)].add(block);
      const auto db = static_cast<float>(cell_db(block));
      if (db >= 1000) return;
      const std::lock_guard lock(adding);
      float& cell = one.heat[static_cast<std::size_t>(line * one.heat_rows / all_rows * one.heat_cols +
                                                      col * one.heat_cols / block_cols)];
      cell = (std::min)(cell, db);
      const block_error candidate{batch, row, col, block};
      if (one.worst.size() == most_worst && !less(candidate, one.worst.back())) return;
      one.worst.insert(std::upper_bound(one.worst.begin(), one.worst.end(), candidate, less), candidate);
      if (one.worst.size() > most_worst) one.worst.pop_back();
    });
    for (const deviation& sum : sums) one.all.add(sum);
    std::vector<char> proven(pair.presets.size(), 0);
    threads.run(static_cast<i64>(proven.size()), [&](i64 number) {
      const quantizer& row = *pair.presets[static_cast<std::size_t>(number)].row;
      // Some writers round FP32 weights to BF16 first.
      for (const bool via_bf16 : {false, true})
        if (!row.verify(in, pair.bytes.codes, pair.bytes.scales, row.amax_floor, via_bf16).found)
          proven[static_cast<std::size_t>(number)] = 1;
    });
    for (std::size_t i = 0; i < proven.size(); ++i)
      if (proven[i] != 0)
        one.made_by.push_back(fmt::format("{} {}", pair.presets[i].row->name, pair.presets[i].row->scale));
    original.drop(*weight);
    from.drop(*from.find(pair.name));
  }
  return errors;
}

}  // namespace programs
