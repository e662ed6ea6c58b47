// SPDX-License-Identifier: Apache-2.0
/// Pre-flight: can an engine load and multiply this weight at this parallelism, and if not, why, with the arithmetic.
#ifndef FP8WIRE_MODEL_LEGALITY_HPP
#define FP8WIRE_MODEL_LEGALITY_HPP
#include <string>
#include <vector>

#include <fp8wire/model/rank_slices.hpp>

FP8WIRE_ABI_BEGIN

/// What reads a weight: a loader (vllm, sglang, tensorrt_llm), which cuts shards and fused parts, or a kernel, which
/// multiplies certain shapes only. An engine is one of each; te_mxfp8 is a learner's kernel, which quantizes a weight
/// along its rows and its columns.
enum class weight_reader : u8 {
  vllm,
  sglang,
  tensorrt_llm,
  deepgemm,
  flashinfer_mxfp8,
  flashinfer_mxfp8_trtllm,
  sm120_mxfp8,
  trtllm_mxfp8_moe,
  trtllm_fp8_block_moe,
  te_mxfp8
};

namespace detail {

/// What a loader or kernel asks for; 1 and 0 ask for nothing.
struct reader_rules {
  std::string_view name;
  bool loader;               // shards and parts of a fused weight must be whole blocks
  bool last_part_ragged;     // ... but for the last part of a fused weight that is not sharded
  bool uneven_experts;
  i64 rows, cols, at_least;  // per rank: all parts together
  i64 part_rows;             // per rank and part
};

inline constexpr reader_rules reader_table[] = {
    {"vllm", true, true, true, 1, 1, 0, 1},
    {"sglang", true, false, false, 1, 1, 0, 1},
    {"tensorrt-llm", true, true, false, 1, 1, 0, 1},
    {"deepgemm", false, false, true, 64, 128, 0, 1},
    {"flashinfer-mxfp8", false, false, true, 1, 32, 128, 1},
    {"flashinfer-mxfp8-trtllm", false, false, true, 32, 256, 128, 1},
    {"sm120-mxfp8", false, false, true, 32, 32, 0, 1},
    {"trtllm-mxfp8-moe", false, false, true, 128, 128, 0, 1},
    {"trtllm-fp8-block-moe", false, false, true, 128, 128, 0, 128},
    {"te-mxfp8", false, false, true, 32, 32, 0, 1},
};

}  // namespace detail

constexpr std::string_view name_of(weight_reader one) noexcept {
  return detail::reader_table[static_cast<int>(one)].name;
}

/// One tensor of a checkpoint, or one part of what the engine fuses (q, k and v).
struct weight_part {
  std::string name;
  i64 rows = 0, cols = 0;
};

/// Where a weight goes. gate_up: the parts are gate and up of one expert, or one fused [gate; up]; experts: how many
/// there are, 0 for none (the rows of a column-parallel weight and the columns of a row-parallel one are then the
/// experts' intermediate size). skips_block_check: the layer says allow_fp8_block_shape_mismatch to vLLM or
/// skip_block_quant_check to SGLang; MoE layers and TensorRT-LLM have no such word.
struct parallelism {
  sharding how = sharding::column;
  i64 tp = 1, ep = 1, experts = 0;
  i64 block_rows = 128, block_cols = 128;
  bool skips_block_check = false;
};

/// Heads of a gated delta net, each of so many channels.
struct gdn_heads {
  i64 key_dim = 0, key_heads = 0, value_dim = 0, value_heads = 0;

  /// Rows of the in_proj that learners keep in one: query, key, value, z, and b and a of each value head. What cuts it
  /// by tp is legal(weight_reader::te_mxfp8, {{"in_proj", rows, hidden}}, {sharding::column, tp}).
  /// Source: SkyRL quantization_utils.py:100-150 of pull request 2072.
  constexpr i64 in_proj_rows() const noexcept {
    return 2 * key_dim * key_heads + 2 * value_dim * value_heads + 2 * value_heads;
  }
};

namespace detail {

class reasons {
 public:
  std::vector<std::string> list;

  void add(std::string text) { list.push_back(std::move(text)); }
  /// "q_proj 4544 rows / tp 4 = 1136 is not a multiple of 128".
  void multiple(const std::string& part, i64 extent, std::string_view axis, i64 tp, i64 of) {
    if (of <= 1 || extent % tp != 0 || extent / tp % of == 0) return;
    add(shared(part, extent, axis, tp).append(" is not a multiple of ").append(std::to_string(of)));
  }
  void at_least(const std::string& part, i64 extent, std::string_view axis, i64 tp, i64 least) {
    if (extent % tp == 0 && extent / tp < least)
      add(shared(part, extent, axis, tp).append(" is less than ").append(std::to_string(least)));
  }
  void divides(const std::string& part, i64 extent, std::string_view axis, std::string_view group, i64 size) {
    if (extent % size == 0) return;
    add(text(part, extent, axis)
            .append(" / ")
            .append(group)
            .append(" ")
            .append(std::to_string(size))
            .append(" leaves a remainder of ")
            .append(std::to_string(extent % size)));
  }

 private:
  static std::string text(const std::string& part, i64 extent, std::string_view axis) {
    return std::string(part).append(" ").append(std::to_string(extent)).append(" ").append(axis);
  }
  static std::string shared(const std::string& part, i64 extent, std::string_view axis, i64 tp) {
    std::string said = text(part, extent, axis);
    if (tp > 1) said.append(" / tp ").append(std::to_string(tp)).append(" = ").append(std::to_string(extent / tp));
    return said;
  }
};

}  // namespace detail

/// Every reason why `who` cannot take the weight that `parts` are fused into, or is; empty: it can.
/// parts: as in the checkpoint, before any sharding, in the engine's order; all have the same columns.
/// Says what the loaders of mid-2026 check; newer ones pad sub-block shards, which nobody should count on.
/// Source: vLLM validate_fp8_block_shape and SGLang's form of it; DeepGEMM, FlashInfer, trtllm-gen and Transformer
/// Engine shape checks.
inline std::vector<std::string> legal(weight_reader who, std::vector<weight_part> parts, const parallelism& where) {
  const detail::reader_rules& rules = detail::reader_table[static_cast<int>(who)];
  detail::reasons found;
  if (parts.empty()) found.add("there is no part");
  if (where.tp < 1) found.add("tp " + std::to_string(where.tp) + " is less than 1");
  if (where.ep < 1) found.add("ep " + std::to_string(where.ep) + " is less than 1");
  if (!found.list.empty()) return found.list;
  if (where.how == sharding::gate_up && parts.size() == 1) {
    found.divides(parts[0].name, parts[0].rows, "rows", "halves", 2);
    const weight_part half{parts[0].name + " half", parts[0].rows / 2, parts[0].cols};
    parts = {half, half};
  }

  if (where.experts > 0 && where.experts < where.ep)
    found.add(std::to_string(where.experts) + " experts are fewer than ep " + std::to_string(where.ep));
  else if (!rules.uneven_experts) found.divides("all", where.experts, "experts", "ep", where.ep);

  const bool by_rows = where.how == sharding::column || where.how == sharding::gate_up, fused = parts.size() > 1;
  const bool by_cols = where.how == sharding::row;
  const bool moe = where.how == sharding::gate_up || (where.experts > 0 && (by_rows || by_cols));
  const bool checked = !where.skips_block_check || who == weight_reader::tensorrt_llm;
  const i64 row_tp = by_rows ? where.tp : 1, col_tp = by_cols ? where.tp : 1;
  std::string all;
  i64 rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const weight_part& part = parts[i];
    all.append(all.empty() ? "" : " + ").append(part.name);
    rows += part.rows;
    if (part.cols != parts[0].cols)
      found.add(part.name + " has " + std::to_string(part.cols) + " columns, " + parts[0].name + " has " +
                std::to_string(parts[0].cols));
    found.divides(part.name, part.rows, "rows", "tp", row_tp);
    found.divides(part.name, part.cols, "columns", "tp", col_tp);
    if (rules.loader) {
      bool whole_cols = where.block_rows == 1;  // MXFP8 rows hold whole blocks, whoever cuts them
      if (moe) {
        // The intermediate size: rows of one projection, columns of the other, and judged for both at once.
        const bool both = where.tp > 1 && where.block_cols != where.block_rows;
        found.multiple(part.name, by_cols ? part.cols : part.rows, by_cols ? "columns" : "rows", where.tp,
                       where.block_rows);
        if (both && by_rows) found.multiple(part.name, part.rows, "rows", where.tp, where.block_cols);
        whole_cols = whole_cols || (both && by_cols);
      } else if (checked) {
        const bool may_be_ragged = rules.last_part_ragged && i + 1 == parts.size();
        if (row_tp > 1 || (fused && !may_be_ragged))
          found.multiple(part.name, part.rows, "rows", row_tp, where.block_rows);
        whole_cols = whole_cols || col_tp > 1;
      }
      if (whole_cols) found.multiple(part.name, part.cols, "columns", col_tp, where.block_cols);
    }
    found.multiple(part.name, part.rows, "rows", row_tp, rules.part_rows);
  }
  found.multiple(all, rows, "rows", row_tp, rules.rows);
  found.multiple(all, parts[0].cols, "columns", col_tp, rules.cols);
  found.at_least(all, rows, "rows", row_tp, rules.at_least);
  found.at_least(all, parts[0].cols, "columns", col_tp, rules.at_least);
  return found.list;
}

/// The tensor-parallel sizes up to `most` that `who` takes, everything else as in `where`.
inline std::vector<i64> legal_tp(weight_reader who, const std::vector<weight_part>& parts, parallelism where,
                                 i64 most) {
  std::vector<i64> sizes;
  for (where.tp = 1; where.tp <= most; ++where.tp)
    if (legal(who, parts, where).empty()) sizes.push_back(where.tp);
  return sizes;
}

FP8WIRE_ABI_END
#endif
