// SPDX-License-Identifier: Apache-2.0
/// How far four frameworks pad token sequences so that FP8 GEMMs take them under tensor and context parallelism.
///
/// Collation, packing and MoE replay must agree on the padded lengths, or replay routes other tokens than were trained:
/// all three ask the same function, and `pack` is the one place where lengths become offsets.
#ifndef FP8WIRE_MODEL_ALIGNMENT_HPP
#define FP8WIRE_MODEL_ALIGNMENT_HPP
#include <numeric>
#include <span>
#include <string_view>

#include <fp8wire/core/expects.hpp>

FP8WIRE_ABI_BEGIN

/// The learner's FP8 recipe as far as alignment asks: one scale a tensor, 128x128 and 1x128 blocks, or MXFP8.
enum class fp8_training : u8 { tensorwise, blockwise, mxfp8 };

constexpr std::string_view name_of(fp8_training recipe) noexcept {
  constexpr std::string_view names[] = {"tensorwise", "blockwise", "mxfp8"};
  return names[static_cast<int>(recipe)];
}

/// How a sequence is spread. `sequences`: in one micro-batch, where a rule asks. `sequence_parallel` and `hybrid_ep`:
/// NeMo's rule asks.
struct token_layout {
  i64 tp = 1, cp = 1;
  fp8_training recipe = fp8_training::blockwise;
  i64 sequences = 1;
  bool sequence_parallel = true;
  bool hybrid_ep = false;
};

/// Each sequence is padded to a multiple of `sequence`; the tokens of a pack, before context parallelism splits it, to
/// a multiple of `total`, by extending its last sequence.
struct token_alignment {
  i64 sequence = 1, total = 1;

  /// Expects: tokens >= 0 and a multiple away from 2^63 (unchecked).
  constexpr i64 padded(i64 tokens) const noexcept { return ceil_div(tokens, sequence) * sequence; }
  constexpr i64 padded_total(i64 tokens) const noexcept { return ceil_div(tokens, total) * total; }
  /// A bin takes one sequence at least, however few tokens it was meant for.
  constexpr i64 bin_capacity(i64 most_tokens) const noexcept { return most_tokens > sequence ? most_tokens : sequence; }
  bool operator==(const token_alignment&) const = default;
};

/// Where the sequences of a pack begin: starts[i], and starts[n] where the pack ends. Sequence i is padded to
/// starts[i + 1] - starts[i]; its own tokens are [starts[i], starts[i] + lengths[i]).
/// Throws: precondition_error on negative lengths and unless there is one start more than lengths.
constexpr void pack(std::span<const i64> lengths, token_alignment by, std::span<i64> starts) {
  detail::expect_equal(static_cast<i64>(starts.size()), static_cast<i64>(lengths.size()) + 1,
                       "pack: one start for each sequence, and the end");
  i64 at = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) detail::raise("pack: a length is negative", lengths[i], 0);
    starts[i] = at;
    at += by.padded(lengths[i]);
  }
  starts[lengths.size()] = by.padded_total(at);
}

namespace detail {

constexpr void expect_layout(const token_layout& of) {
  constexpr i64 most = i64{1} << 20;
  if (of.tp < 1 || of.tp > most) raise("alignment: tp must be 1 .. 2^20", of.tp, 1);
  if (of.cp < 1 || of.cp > most) raise("alignment: cp must be 1 .. 2^20", of.cp, 1);
  if (of.sequences < 1) raise("alignment: there must be a sequence", of.sequences, 1);
}
/// What Megatron itself asks for: context parallelism gives every rank two chunks.
constexpr i64 megatron_multiple(const token_layout& of) noexcept { return of.cp > 1 ? of.tp * of.cp * 2 : of.tp; }

}  // namespace detail

namespace alignments {

/// Source: SkyRL packing_utils.py:20-27 of its main branch; one rule for every FP8 recipe.
constexpr token_alignment skyrl_main(const token_layout& of) {
  detail::expect_layout(of);
  const i64 multiple = std::lcm(detail::megatron_multiple(of), 16 * of.cp);
  return {multiple, multiple};
}
/// The same for batches that are not packed.
constexpr token_alignment skyrl_main_unpacked(const token_layout& of) {
  detail::expect_layout(of);
  const i64 multiple = std::lcm(of.tp, i64{16});
  return {multiple, multiple};
}

/// What a rank's share must be a multiple of: 32 tokens for MXFP8, a block where tensor parallelism gathers FP8
/// activations, else 16.
/// Source: SkyRL packing_utils.py:9-43 of pull request 2072.
constexpr i64 skyrl_unit(const token_layout& of) {
  detail::expect_layout(of);
  if (of.recipe == fp8_training::mxfp8) return 32 * of.tp * of.cp;
  return of.tp > 1 ? 128 * of.tp * of.cp : 16 * of.cp;
}
constexpr token_alignment skyrl(const token_layout& of) {
  const i64 multiple = std::lcm(skyrl_unit(of), detail::megatron_multiple(of));
  return {multiple, multiple};
}
/// Batches that are not packed are split by context parallelism elsewhere: the unit of one rank of it.
constexpr token_alignment skyrl_unpacked(const token_layout& of) {
  detail::expect_layout(of);
  token_layout one = of;
  one.cp = 1;
  const i64 multiple = std::lcm(skyrl_unit(one), of.tp);
  return {multiple, multiple};
}

/// The last sequence of a pack is extended to 128 Megatron multiples.
/// Source: verl/models/mcore/util.py:50-59, 690-704; 32 for MXFP8: pull request 7519.
constexpr token_alignment verl(const token_layout& of) {
  detail::expect_layout(of);
  const i64 megatron = detail::megatron_multiple(of);
  return {std::lcm(of.recipe == fp8_training::mxfp8 ? i64{32} : i64{16}, megatron), megatron * 128};
}
/// Batches [sequences, length] that are not packed: all sequences together fill whole blocks of every rank.
constexpr token_alignment verl_batched(const token_layout& of) {
  detail::expect_layout(of);
  const i64 block = 128 * of.tp * of.cp;
  const i64 multiple = std::lcm(block / std::gcd(of.sequences, block), detail::megatron_multiple(of));
  return {multiple, multiple};
}

/// NeMo multiplies where SkyRL takes the least common multiple. With pipeline parallelism every pack is as long as the
/// longest: padded_total(most tokens).
/// Source: NeMo-RL nemo_rl/models/megatron/data.py:1259-1344 at 7ea279a.
constexpr token_alignment nemo(const token_layout& of) {
  detail::expect_layout(of);
  i64 unit = of.recipe == fp8_training::blockwise ? 128 : of.recipe == fp8_training::mxfp8 ? 32 : 16;
  if (of.hybrid_ep && unit < 128) unit = 128;
  const i64 split = (of.cp > 1 ? 2 * of.cp : 1) * (of.sequence_parallel ? of.tp : 1);
  return {split, unit * split};
}

/// One rule by the name that people type.
struct named {
  std::string_view name;
  token_alignment (*rule)(const token_layout&);
};
inline constexpr named all[] = {{"skyrl", skyrl},
                                {"skyrl-unpacked", skyrl_unpacked},
                                {"skyrl-main", skyrl_main},
                                {"skyrl-main-unpacked", skyrl_main_unpacked},
                                {"verl", verl},
                                {"verl-batched", verl_batched},
                                {"nemo", nemo}};

/// Null where there is none of that name.
constexpr const named* find(std::string_view name) noexcept {
  for (const named& one : all)
    if (one.name == name) return &one;
  return nullptr;
}

}  // namespace alignments
FP8WIRE_ABI_END
#endif
