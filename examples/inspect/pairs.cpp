// SPDX-License-Identifier: Apache-2.0
#include "pairs.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "../common/layouts.hpp"
#include "../common/options.hpp"
#include "fit.hpp"

namespace programs {
namespace {

using fp8wire::dtype;
using fp8wire::i64;
using fp8wire::u64;

bool is_code_dtype(dtype type) {
  return type == dtype::f8_e4m3 || type == dtype::f8_e5m2 || type == dtype::f8_e4m3fnuz || type == dtype::f8_e5m2fnuz;
}

/// The values of the 256 codes, from any preset that stores that dtype; null where there is none.
const float* values_of(dtype codes) {
  for (const quantizer& row : quantizers())
    if (row.codes == codes) return row.values;
  return nullptr;
}

/// Every name that some engine gives to the scales of that tensor.
std::set<std::string> scale_names(const std::string& weight) {
  std::set<std::string> names;
  for (const fp8wire::naming& one : fp8wire::namings::all)
    for (const bool microscaling : {false, true}) names.insert(one.scale_of(weight, microscaling));
  return names;
}

/// The weight that a name would be the scale of; empty where it is no such name.
std::string weight_of(const std::string& scale) {
  std::string weight;
  for (const fp8wire::naming& one : fp8wire::namings::all)
    for (const bool microscaling : {false, true})
      if (one.is_scale(scale, microscaling, weight)) return weight;
  return {};
}

i64 round_up(i64 count, i64 multiple) { return fp8wire::ceil_div(count, multiple) * multiple; }

struct block_size {
  int rows, cols;
};
constexpr block_size block_sizes[] = {
    {128, 128}, {1, 32}, {32, 1}, {1, 128}, {128, 1}, {1, fp8wire::whole}, {fp8wire::whole, fp8wire::whole}};

std::string text_of(block_size block) {
  if (block.rows == fp8wire::whole) return "tensor";
  return block.cols == fp8wire::whole ? "row" : fmt::format("{}x{}", block.rows, block.cols);
}

/// Finds how the scales cover the codes, from dtype and shape alone. Leaves a problem where no way fits.
void find_blocks(pair_report& pair) {
  const auto [batch, rows, cols] = pair.extents;
  std::vector<i64> shape = pair.scale_shape;
  i64 count = 1;
  for (const i64 extent : shape) count *= extent;
  const bool bytes = pair.scale_dtype == dtype::uint8 || pair.scale_dtype == dtype::f8_e8m0;
  if (bytes || pair.scale_dtype == dtype::f32 || pair.scale_dtype == dtype::bf16) {
    for (const block_size block : block_sizes) {
      if (!bytes && (block.rows == 32 || block.cols == 32)) continue;  // microscaling has bytes for scales
      const i64 block_rows = fp8wire::ceil_div(rows, fp8wire::detail::block_extent(block.rows, rows));
      const i64 block_cols = fp8wire::ceil_div(cols, fp8wire::detail::block_extent(block.cols, cols));
      std::vector<i64> expected{block_rows, block_cols};
      if (pair.shape.size() == 3) expected.insert(expected.begin(), batch);
      std::vector<i64> squeezed = expected;
      while (squeezed.size() > 1 && squeezed.back() == 1) squeezed.pop_back();
      const bool exact = shape == expected, one = block.rows == fp8wire::whole && count == 1 && shape.size() < 2;
      if (!exact && shape != squeezed && !one) continue;
      if (!exact && !one) pair.note = "the scales' rank is not the weight's: a trailing extent of 1 was dropped";
      pair.canonical = true;
      pair.block = text_of(block);
      pair.encoding = bytes ? "E8M0" : pair.scale_dtype == dtype::bf16 ? "BF16" : "FP32";
      pair.bytes.block_rows = block.rows;
      pair.bytes.block_cols = block.cols;
      pair.bytes.scale_type = bytes ? dtype::f8_e8m0 : pair.scale_dtype;
      pair.blocks = static_cast<u64>(batch * block_rows * block_cols);
      return;
    }
  }
  const i64 groups = fp8wire::ceil_div(cols, 32);
  for (const i64 tile : {128, 8}) {
    if (!bytes || count != batch * round_up(rows, tile) * round_up(groups, 4)) continue;
    pair.encoding = fmt::format("E8M0 in {}x4 tiles", tile);
    pair.block = "1x32";
    return;
  }
  if (pair.scale_dtype == dtype::int32) {
    for (const i64 width : {128, 32}) {
      for (const i64 height : {1, 128}) {
        const i64 words = fp8wire::ceil_div(fp8wire::ceil_div(cols, width), 4),
                  lines = height == 1 ? rows : fp8wire::ceil_div(rows, height);
        if (count != batch * words * lines && count != batch * words * round_up(lines, 4)) continue;
        pair.encoding = "E8M0 packed in int32";
        pair.block = fmt::format("{}x{}", height, width);
        return;
      }
    }
  }
  pair.problem = fmt::format("{} scales of shape [{}] fit no way of covering [{}]", name_of(pair.scale_dtype),
                             fmt::join(shape, ", "), fmt::join(pair.shape, ", "));
}

/// What the file says of itself.
std::string_view metadata_of(const fp8wire::checkpoint& from, const fp8wire::checkpoint_tensor& tensor,
                             std::string_view key, std::string_view otherwise) {
  for (const auto& [name, value] : from.shards()[tensor.shard].metadata)
    if (name == key) return value;
  return otherwise;
}

/// Every weight whose codes a layout could store in that shape: rows by columns, transposed, or in blocks of columns.
std::vector<fp8wire::matrix_extents> stored_in(const std::vector<i64>& s) {
  if (s.size() == 2) return {{1, s[0], s[1]}, {1, s[1], s[0]}};
  if (s.size() == 3) return {{s[0], s[1], s[2]}, {s[0], s[2], s[1]}, {1, s[1], s[0] * s[2]}};
  if (s.size() == 4) return {{s[0], s[2], s[1] * s[3]}};
  return {};
}

/// Takes a pair back from the layout that its file names to canonical form. False where no preset of the file's recipe
/// explains its shapes.
bool take_back(pair_report& pair, std::string_view layout, std::string_view recipe, std::string_view scale,
               std::span<const std::byte> codes, std::span<const std::byte> scales) {
  for (const quantizer& row : quantizers()) {
    if (row.name != recipe || row.scale != scale || row.codes != pair.codes) continue;
    for (const fp8wire::matrix_extents& m : stored_in(pair.shape)) {
      const auto shapes = shapes_in(layout, row, pair.name, m);
      if (!shapes) continue;
      const auto shown_as = [](const std::vector<i64>& all, const std::vector<i64>& shown) {
        return shown == all || (all.front() == 1 && std::equal(all.begin() + 1, all.end(), shown.begin(), shown.end()));
      };
      if (!shown_as(shapes->codes, pair.shape) || !shown_as(shapes->scales, pair.scale_shape)) continue;
      const i64 grid_rows = row.scale_rows(m.rows), grid_cols = row.scale_cols(m.cols);
      pair.own_codes.resize(codes.size() / 8 + 1);
      pair.own_scales.resize(
          static_cast<std::size_t>(m.batch * grid_rows * grid_cols * fp8wire::bit_width(row.stored) / 64 + 1));
      if (take_back_pair(layout, row, pair.name, m, codes, scales, pair.own_codes.data(), pair.own_scales.data()))
        continue;
      const bool batched = m.batch != 1 || pair.shape.size() == shapes->codes.size();
      pair.shape = batched ? std::vector<i64>{m.batch, m.rows, m.cols} : std::vector<i64>{m.rows, m.cols};
      pair.scale_shape =
          batched ? std::vector<i64>{m.batch, grid_rows, grid_cols} : std::vector<i64>{grid_rows, grid_cols};
      pair.scale_dtype = row.stored;
      pair.extents = m;
      pair.bytes.codes = reinterpret_cast<const fp8wire::u8*>(pair.own_codes.data());
      pair.bytes.scales = pair.own_scales.data();
      return true;
    }
  }
  return false;
}

/// Looks at every scale and at the codes below it.
void look_at_scales(pair_report& pair) {
  bool powers = pair.scale_dtype == dtype::f32;
  float smallest = 0, largest = 0;
  for (u64 i = 0; i < pair.blocks; ++i) {
    const i64 index = static_cast<i64>(i);
    const float scale = pair.bytes.scale(index);
    const fp8wire::u32 bits = fp8wire::bits_of(scale);
    scale_faults& faults = pair.faults;
    const bool nan = fp8wire::f32::is_nan(bits), zero = fp8wire::f32::is_zero(bits),
               infinite = fp8wire::f32::is_inf(bits);
    const bool negative = !nan && !zero && (bits & fp8wire::f32::sign_mask) != 0;
    if (nan) ++faults.nan;
    else if (negative) ++faults.negative;
    else if (infinite) ++faults.infinite;
    else if (zero) ++faults.zero;
    if (nan || negative || infinite || zero) {
      if (faults.first < 0) faults.first = index;
      continue;
    }
    // 2^-127 and below are powers of two with one bit of mantissa and no exponent.
    const fp8wire::u32 mantissa = bits & fp8wire::f32::mantissa_mask, exponent = bits >> 23;
    powers = powers && (exponent != 0 ? mantissa == 0 : (mantissa & (mantissa - 1)) == 0);
    if (smallest == 0.0f || scale < smallest) smallest = scale;
    if (scale > largest) largest = scale;
    ++pair.exponents[std::ilogb(scale)];
  }
  pair.smallest = smallest;
  pair.largest = largest;
  if (powers && pair.blocks > 0 && largest > 0) pair.encoding = "FP32 power of two";
}

}  // namespace

u64 inspection::broken() const {
  u64 count = orphans.size();
  for (const pair_report& pair : pairs) count += pair.problem.empty() ? 0u : 1u;
  return count;
}

std::vector<const fp8wire::checkpoint_tensor*> by_name(const fp8wire::checkpoint& from) {
  std::vector<const fp8wire::checkpoint_tensor*> sorted;
  for (const fp8wire::checkpoint_tensor& one : from.tensors()) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return sorted;
}

inspection inspect_checkpoint(const fp8wire::checkpoint& from, const std::string& pattern, workers& threads) {
  inspection found;
  std::set<std::string> used;
  const auto wanted = [&](const std::string& name) {
    return pattern.empty() || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  for (const fp8wire::checkpoint_tensor* one : by_name(from)) {
    const fp8wire::checkpoint_tensor& tensor = *one;
    const std::string& name = tensor.name;
    if (!is_code_dtype(tensor.dtype)) continue;
    used.insert(name);
    std::vector<std::string> partners;
    for (const std::string& scale : scale_names(name))
      if (from.find(scale) != nullptr) partners.push_back(scale), used.insert(scale);
    if (!wanted(name)) continue;
    if (partners.empty()) {
      found.orphans.push_back({name, "codes without scales"});
      continue;
    }
    pair_report best;
    for (const std::string& scale : partners) {
      const fp8wire::checkpoint_tensor& scales = *from.find(scale);
      pair_report pair;
      pair.name = name;
      pair.scale_name = scale;
      pair.codes = tensor.dtype;
      pair.shape = tensor.shape;
      pair.scale_dtype = scales.dtype;
      pair.scale_shape = scales.shape;
      pair.bytes.codes = reinterpret_cast<const fp8wire::u8*>(tensor.bytes.data());
      pair.bytes.scales = scales.bytes.data();
      pair.bytes.values = values_of(pair.codes);
      const std::string_view layout = metadata_of(from, tensor, "fp8wire.layout", "canonical");
      if (layout != "canonical") {
        // Laid out by fp8-convert: a swizzled buffer has the size of a canonical one, so only the tag can tell.
        if (take_back(pair, layout, metadata_of(from, tensor, "fp8wire.recipe", ""),
                      metadata_of(from, tensor, "fp8wire.scale", ""), tensor.bytes, scales.bytes)) {
          find_blocks(pair);
          pair.note = fmt::format("read back from {}", layout);
        } else {
          pair.encoding = fmt::format("{} as {}", name_of(pair.scale_dtype), layout);
          pair.note = "not canonical: its scales were not looked at";
        }
      } else if (const auto extents = fp8wire::extents_of(name, pair.shape); !extents) {
        pair.problem = extents.error().message();
      } else {
        pair.extents = *extents;
        find_blocks(pair);
      }
      if (best.name.empty() || (pair.problem.empty() && !best.problem.empty())) best = std::move(pair);
    }
    if (partners.size() > 1)
      best.note = fmt::format("{} tensors could be its scales: {}", partners.size(), fmt::join(partners, ", "));
    found.pairs.push_back(std::move(best));
  }
  for (const fp8wire::checkpoint_tensor* one : by_name(from)) {
    const fp8wire::checkpoint_tensor& tensor = *one;
    const std::string& name = tensor.name;
    if (used.contains(name) || !wanted(name)) continue;
    const std::string weight = weight_of(name);
    const fp8wire::checkpoint_tensor* partner = weight.empty() ? nullptr : from.find(weight);
    // Without its weight, or beside one that is no FP8. Scales of activations and KV caches have no weight's name.
    if (!weight.empty() && (partner != nullptr || weight.ends_with(".weight")))
      found.orphans.push_back({name, partner == nullptr
                                         ? "scales without codes"
                                         : fmt::format("scales beside a weight in {}", name_of(partner->dtype))});
    else ++found.other[std::string(name_of(tensor.dtype))];
  }
  threads.run(static_cast<i64>(found.pairs.size()), [&](i64 number) {
    pair_report& pair = found.pairs[static_cast<std::size_t>(number)];
    if (!pair.problem.empty() || !pair.canonical) return;
    look_at_scales(pair);
    fit_presets(pair);
    if (pair.faults.broken())
      pair.problem = fmt::format(
          "{} scales that decode to nothing sound: {} negative, {} Inf, {} NaN, {} zero over other codes; the first at "
          "index {}",
          pair.faults.negative + pair.faults.infinite + pair.faults.nan + pair.faults.zero_over_codes,
          pair.faults.negative, pair.faults.infinite, pair.faults.nan, pair.faults.zero_over_codes, pair.faults.first);
  });
  bool first = true;
  for (const pair_report& pair : found.pairs) {
    from.drop(*from.find(pair.name));
    if (!pair.canonical || (pair.blocks == 0 && pair.problem.empty())) continue;  // nothing in it to tell presets by
    found.presets = std::exchange(first, false) ? pair.presets : common_fits(found.presets, pair.presets);
  }
  return found;
}

}  // namespace programs
