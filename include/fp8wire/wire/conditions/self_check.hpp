// SPDX-License-Identifier: Apache-2.0
/// The live self-check (C6): one small product of each kind of layer, by the engine's own kernel on its own bytes.
///
/// Everything between the wire and the kernel may have gone wrong without a name of its own: a repack, a stale cache, a
/// pointer of yesterday. The product shows it. A healthy FP8 kernel is within 3 to 6 percent of the reference; a broken
/// one is off by more than the reference itself.
#ifndef FP8WIRE_WIRE_CONDITIONS_SELF_CHECK_HPP
#define FP8WIRE_WIRE_CONDITIONS_SELF_CHECK_HPP
#include <vector>

#include <fp8wire/model/eligibility.hpp>
#include <fp8wire/quant/reference.hpp>
#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

/// A weight's name without its numbers: "model.layers.*.mlp.experts.*.up_proj.weight".
inline std::string layer_kind(std::string_view name) {
  std::string kind;
  for (bool more = true; more;) {
    const std::string_view segment = detail::cut(name, '.', more);
    kind.append(kind.empty() ? "" : ".").append(detail::is_number(segment) ? std::string_view("*") : segment);
  }
  return kind;
}

/// One pair of every kind, another layer and expert in each version, so that all have their turn. `inside(name)` leaves
/// layers out: a pipeline stage, or the kinds that this engine runs in BF16 on purpose.
/// Items. Cost: linear in the tensors.
template <class Inside>
std::vector<u32> self_check_items(const manifest& update, u64 weight_version, const Inside& inside) {
  struct kind_row {
    std::string kind;
    std::vector<u32> items;
  };
  std::vector<kind_row> kinds;
  detail::name_index known;
  const auto names = [&](u32 index) { return std::string_view(kinds[index].kind); };
  for (u32 i = 0; i < update.items().size(); ++i) {
    if (update.items()[i].encoding < 0 || !inside(update.item_name(i))) continue;
    std::string kind = layer_kind(update.item_name(i));
    i64 at = known.find(kind, names);
    if (at < 0) {
      at = static_cast<i64>(kinds.size());
      kinds.push_back({std::move(kind), {}});
      known.insert(static_cast<u32>(at), names);
    }
    kinds[static_cast<std::size_t>(at)].items.push_back(i);
  }
  std::vector<u32> chosen;
  for (const kind_row& one : kinds)
    chosen.push_back(one.items[static_cast<std::size_t>(weight_version % one.items.size())]);
  return chosen;
}
inline std::vector<u32> self_check_items(const manifest& update, u64 weight_version) {
  return self_check_items(update, weight_version, [](std::string_view) { return true; });
}

/// Element i of the vector that is multiplied: quarters in [-2, 2], so that it is exact in every input format.
constexpr float self_check_input(i64 i) noexcept {
  const u64 mixed = (static_cast<u64>(i) + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<float>(static_cast<int>(mixed >> 60) - 8) * 0.25f;
}

/// Multiplies one matrix with the vector twice: from the synced bytes here, by `engine(input, output)` there, spans of
/// float, cols and rows long. The engine's output may be rounded to its own format.
/// synced: float(row, col), what the bytes that came decode to. tolerance: relative error of the whole vector; 0.25
/// passes kernels that quantize their input to FP8, a kernel in FP32 passes 1e-5.
/// Errors: nonfinite (C6) for an output that is NaN or Inf; format_mismatch (C6): the squared relative error in
/// millionths. Cost: rows x cols multiplications here, one GEMV there, a kind.
template <class Synced, class Engine>
error self_check(std::string_view weight, i64 rows, i64 cols, const Synced& synced, Engine&& engine,
                 float tolerance = 0.25f) {
  std::vector<float> input(static_cast<std::size_t>(cols)), output(static_cast<std::size_t>(rows));
  for (i64 i = 0; i < cols; ++i) input[static_cast<std::size_t>(i)] = self_check_input(i);
  for (float& one : output) one = float_of(f32::nan);  // an output that nobody writes is not a good one
  engine(std::span<const float>(input), std::span<float>(output));

  double apart = 0, norm = 0;
  for (i64 row = 0; row < rows; ++row) {
    const float got = output[static_cast<std::size_t>(row)];
    if (!f32::is_finite(bits_of(got)))
      return make_error(errc::nonfinite, std::string(weight),
                        "the engine's product is not finite at row " + std::to_string(row),
                        condition::c6_derived_state);
    double wanted = 0;
    for (i64 col = 0; col < cols; ++col)
      wanted += static_cast<double>(synced(row, col)) * static_cast<double>(input[static_cast<std::size_t>(col)]);
    apart += (static_cast<double>(got) - wanted) * (static_cast<double>(got) - wanted);
    norm += wanted * wanted;
  }
  const double limit = static_cast<double>(tolerance) * static_cast<double>(tolerance);
  if (apart <= limit * norm) return {};
  const double millionths = norm > 0 && apart < 1e9 * norm ? 1e6 * apart / norm : 1e15;
  return make_error(errc::format_mismatch, std::string(weight),
                    "the engine's product is not that of the synced bytes; squared relative error in millionths",
                    static_cast<i64>(millionths), static_cast<i64>(1e6 * limit), condition::c6_derived_state);
}

/// The same from a canonical pair of one matrix (slice_of an expert). Expects: synced.codes.batch is 1.
template <any_recipe Recipe, class Engine>
error self_check(std::string_view weight, const_pair_view<Recipe> synced, Engine&& engine, float tolerance = 0.25f) {
  const i64 height = detail::block_extent(Recipe::block::rows, synced.codes.rows);
  const i64 width = detail::block_extent(Recipe::block::cols, synced.codes.cols);
  return self_check(
      weight, synced.codes.rows, synced.codes.cols,
      [&](i64 row, i64 col) {
        return reference::decode<Recipe>(synced.codes(row, col), synced.scales(row / height, col / width));
      },
      engine, tolerance);
}

FP8WIRE_ABI_END
#endif
