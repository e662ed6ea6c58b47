// SPDX-License-Identifier: Apache-2.0
/// Condition C2 on live data: what an engine holds against the learner's own quantized copy, byte for byte.
///
/// Grid ids are compared before the first byte (wire/compare.hpp). They say what each end means to compute; this says
/// what it did: a learner that quantizes FP32 masters under the id of BF16 weights is found here alone.
#ifndef FP8WIRE_WIRE_CONDITIONS_GRID_HPP
#define FP8WIRE_WIRE_CONDITIONS_GRID_HPP
#include <span>

#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

/// Compares one tensor of a pair, codes or scales, as the learner's GEMM uses it with what arrived, both canonical.
/// Errors: wrong_size (C7); grid_mismatch (C2) with the first different element, its bytes as numbers.
/// Cost: one read of both; a few tensors each update are enough, since a wrong grid is wrong everywhere.
inline error check_grid(const manifest_entry& entry, std::span<const std::byte> learner,
                        std::span<const std::byte> engine) {
  if (learner.size() != engine.size())
    return make_error(errc::wrong_size, entry.name, "its bytes differ from the learner's copy in number",
                      static_cast<i64>(engine.size()), static_cast<i64>(learner.size()), condition::c7_transport);
  if (learner.empty() || __builtin_memcmp(learner.data(), engine.data(), learner.size()) == 0) return {};
  const std::size_t width = static_cast<std::size_t>(bit_width(entry.dtype) < 8 ? 1 : bit_width(entry.dtype) / 8);
  std::size_t at = 0;
  while (learner[at] == engine[at]) ++at;
  at = at / width * width;
  const auto number = [&](std::span<const std::byte> bytes) {
    u64 value = 0;
    for (std::size_t i = 0; i < width && i < 8 && at + i < bytes.size(); ++i)
      value |= static_cast<u64>(bytes[at + i]) << (8 * i);
    return static_cast<i64>(value);
  };
  return make_error(errc::grid_mismatch, entry.name,
                    "is not what the learner's GEMM uses; bits of element " + std::to_string(at / width),
                    number(engine), number(learner), condition::c2_grid);
}

/// Which pairs to compare in that version: `count` of them, spread over the update, others in every version.
/// Items, to be compared by their entries. Cost: linear in `count` and the tensors.
inline std::vector<u32> grid_samples(const manifest& update, u64 weight_version, std::size_t count) {
  std::vector<u32> pairs;
  for (u32 i = 0; i < update.items().size(); ++i)
    if (update.items()[i].encoding >= 0) pairs.push_back(i);
  if (pairs.size() <= count) return pairs;
  std::vector<u32> chosen;
  const std::size_t first = static_cast<std::size_t>(weight_version % pairs.size());
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(pairs[(first + i * pairs.size() / count) % pairs.size()]);
  return chosen;
}

FP8WIRE_ABI_END
#endif
