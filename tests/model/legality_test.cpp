// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <fp8wire/model/legality.hpp>

using namespace fp8wire;
using reader = weight_reader;
using texts = std::vector<std::string>;

namespace {
constexpr parallelism column(i64 tp) { return {sharding::column, tp}; }
constexpr parallelism row(i64 tp) { return {sharding::row, tp}; }
constexpr parallelism gate_up(i64 tp, i64 experts = 0, i64 ep = 1) { return {sharding::gate_up, tp, ep, experts}; }
constexpr parallelism blocks(parallelism where, i64 rows, i64 cols) {
  where.block_rows = rows;
  where.block_cols = cols;
  return where;
}
constexpr parallelism mxfp8(parallelism where) { return blocks(where, 1, 32); }
constexpr parallelism skipping(parallelism where) {
  where.skips_block_check = true;
  return where;
}
constexpr parallelism of_experts(parallelism where, i64 experts) {
  where.experts = experts;
  return where;
}

// What the loaders check, written from their rules and not from legal(): a yes or a no.
bool loads(bool vllm, const std::vector<i64>& rows, i64 cols, const parallelism& where) {
  const i64 tp = where.tp;
  if (where.how == sharding::row) {
    if (cols % tp != 0) return false;
    if (where.experts > 0) return cols / tp % where.block_rows == 0 && (tp == 1 || cols / tp % where.block_cols == 0);
    return where.skips_block_check || tp == 1 || cols / tp % where.block_cols == 0;
  }
  const bool split = where.how != sharding::replicated && tp > 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (split && rows[i] % tp != 0) return false;
    const i64 part = split ? rows[i] / tp : rows[i];
    if (where.how == sharding::gate_up) {
      if (part % where.block_rows != 0 || (tp > 1 && part % where.block_cols != 0)) return false;
    } else if (!where.skips_block_check && (split || rows.size() > 1)) {
      const bool excepted = vllm && rows.size() > 1 && !split && i + 1 == rows.size();
      if (part % where.block_rows != 0 && !excepted) return false;
    }
  }
  return true;
}
}  // namespace

TEST_CASE("every rule of the loaders, with its arithmetic") {
  struct row_of_rules {
    const char* rule;
    std::vector<weight_part> parts;
    parallelism where;
    texts vllm, sglang;
  };
  const texts none;
  const texts q = {"q 192 rows is not a multiple of 128"}, v = {"v 320 rows is not a multiple of 128"};
  const texts half = {"g 192 rows is not a multiple of 128", "u 192 rows is not a multiple of 128"};
  const texts halves = {"g 384 rows / tp 2 = 192 is not a multiple of 128",
                        "u 384 rows / tp 2 = 192 is not a multiple of 128"};
  const texts down = {"w2 192 columns is not a multiple of 128"};
  const texts downs = {"w2 384 columns / tp 2 = 192 is not a multiple of 128"};
  const row_of_rules table[] = {
      {"row parallel, whole blocks", {{"o", 100, 512}}, row(4), none, none},
      {"row parallel, K / tp inside a block",
       {{"o", 100, 768}},
       row(4),
       {"o 768 columns / tp 4 = 192 is not a multiple of 128"},
       {"o 768 columns / tp 4 = 192 is not a multiple of 128"}},
      {"row parallel on one rank: no rule", {{"o", 100, 700}}, row(1), none, none},
      {"row parallel, its own block width", {{"o", 100, 768}}, blocks(row(4), 128, 64), none, none},
      {"row parallel, the check is skipped", {{"o", 100, 768}}, skipping(row(4)), none, none},
      {"what tp does not divide is not skipped",
       {{"o", 100, 770}},
       skipping(row(4)),
       {"o 770 columns / tp 4 leaves a remainder of 2"},
       {"o 770 columns / tp 4 leaves a remainder of 2"}},
      {"column parallel, whole blocks", {{"q", 512, 100}}, column(4), none, none},
      {"column parallel, N / tp inside a block",
       {{"q", 768, 100}},
       column(4),
       {"q 768 rows / tp 4 = 192 is not a multiple of 128"},
       {"q 768 rows / tp 4 = 192 is not a multiple of 128"}},
      {"one part on one rank: no rule", {{"q", 700, 100}}, column(1), none, none},
      {"column parallel, its own block height", {{"q", 768, 100}}, blocks(column(4), 64, 128), none, none},
      {"column parallel, the check is skipped", {{"q", 768, 100}}, skipping(column(4)), none, none},
      {"merged, a part inside a block", {{"q", 192, 256}, {"v", 256, 256}}, column(1), q, q},
      {"merged, the last part ragged", {{"q", 256, 256}, {"v", 320, 256}}, column(1), none, v},
      {"merged and replicated, the last part ragged",
       {{"q", 256, 256}, {"v", 320, 256}},
       {sharding::replicated, 8},
       none,
       v},
      {"merged and split, the last part ragged",
       {{"q", 256, 256}, {"v", 320, 256}},
       column(2),
       {"v 320 rows / tp 2 = 160 is not a multiple of 128"},
       {"v 320 rows / tp 2 = 160 is not a multiple of 128"}},
      {"merged, the check is skipped", {{"q", 192, 256}, {"v", 320, 256}}, skipping(column(1)), none, none},
      {"MoE w13 on one rank", {{"g", 192, 256}, {"u", 192, 256}}, gate_up(1), half, half},
      {"MoE w13, sharded", {{"g", 384, 256}, {"u", 384, 256}}, gate_up(2), halves, halves},
      {"MoE w13, sharded: both extents of a block",
       {{"g", 384, 256}, {"u", 384, 256}},
       blocks(gate_up(2), 64, 128),
       halves,
       halves},
      {"MoE w13 on one rank: the height of a block alone",
       {{"g", 192, 256}, {"u", 192, 256}},
       blocks(gate_up(1), 64, 128),
       none,
       none},
      {"MoE w2 on one rank", {{"w2", 100, 192}}, of_experts(row(1), 8), down, down},
      {"MoE w2, sharded", {{"w2", 100, 384}}, of_experts(row(2), 8), downs, downs},
      {"MoE w2, sharded: both extents of a block",
       {{"w2", 100, 384}},
       blocks(of_experts(row(2), 8), 64, 128),
       downs,
       downs},
      {"MoE layers have no word that skips the check",
       {{"g", 192, 256}, {"u", 192, 256}},
       skipping(gate_up(1)),
       half,
       half},
  };
  for (const row_of_rules& one : table) {
    CAPTURE(one.rule);
    CHECK(legal(reader::vllm, one.parts, one.where) == one.vllm);
    CHECK(legal(reader::tensorrt_llm, one.parts, skipping(one.where)) == legal(reader::vllm, one.parts, [&] {
            parallelism where = one.where;
            where.skips_block_check = false;
            return where;
          }()));
    CHECK(legal(reader::sglang, one.parts, one.where) == one.sglang);
  }
}

TEST_CASE("yes and no are the loaders', for many extents, parts, blocks and ranks") {
  i64 yes = 0, no = 0;
  for (const bool vllm : {true, false})
    for (const sharding how : {sharding::replicated, sharding::column, sharding::row, sharding::gate_up})
      for (const i64 tp : {1, 2, 3, 4})
        for (const i64 block_rows : {64, 128})
          for (const i64 block_cols : {64, 128})
            for (const i64 experts : {0, 8})
              for (const bool skips : {false, true})
                for (const std::vector<i64>& rows : std::vector<std::vector<i64>>{
                         {512}, {576}, {768}, {100}, {512, 128}, {512, 192}, {192, 512}, {768, 768}, {256, 128, 100}})
                  for (const i64 cols : {96, 128, 192, 384, 512, 768}) {
                    const bool halves = how == sharding::gate_up;
                    if ((halves && rows.size() != 2) || (how == sharding::column && experts > 0)) continue;
                    const parallelism where{how, tp, 1, experts, block_rows, block_cols, skips};
                    std::vector<weight_part> parts;
                    for (std::size_t i = 0; i < rows.size(); ++i) parts.push_back({std::to_string(i), rows[i], cols});
                    // Parts that lie below each other are not what row parallelism cuts.
                    if (how == sharding::row && rows.size() > 1) continue;
                    const bool got = legal(vllm ? reader::vllm : reader::sglang, parts, where).empty();
                    CAPTURE(vllm);
                    CAPTURE(where.tp);
                    CAPTURE(cols);
                    CAPTURE(rows.size());
                    CHECK(got == loads(vllm, rows, cols, where));
                    ++(got ? yes : no);
                  }
  CHECK(yes > 500);
  CHECK(no > 500);
}

TEST_CASE("what is legal has a place for its scales: parts' rows of them follow each other without a gap") {
  // off' = ceil(off / 128), size' = ceil(size / 128), as vLLM and TensorRT-LLM place them.
  const auto up = [](i64 extent) { return (extent + 127) / 128; };
  for (const std::vector<i64>& rows : std::vector<std::vector<i64>>{
           {4096, 512, 512}, {4096, 512, 576}, {1536, 576}, {192, 192}, {100, 128}, {384, 640}, {1024, 256}}) {
    for (const i64 tp : {1, 2, 4}) {
      std::vector<weight_part> parts;
      i64 all = 0, at = 0;
      bool placed = true;
      for (const i64 extent : rows) {
        parts.push_back({"part", extent, 256});
        placed = placed && extent % tp == 0 && up(all) == at;
        at = up(all) + up(extent / tp);
        all += extent / tp;
      }
      placed = placed && at == up(all);
      CAPTURE(tp);
      CAPTURE(all);
      if (legal(reader::vllm, parts, column(tp)).empty()) CHECK(placed);
    }
  }
  CHECK(legal(reader::vllm, {{"q", 192, 256}, {"k", 192, 256}}, column(1)).size() == 1);  // 2 + 2 rows for 3
}

TEST_CASE("a learner's fused in_proj of a gated delta net is cut where every rank has whole blocks of 32") {
  constexpr gdn_heads heads{128, 16, 128, 32};
  static_assert(heads.in_proj_rows() == 12352);
  const std::vector<weight_part> parts = {{"in_proj", heads.in_proj_rows(), 2048}};
  CHECK(legal(reader::te_mxfp8, parts, column(1)).empty());
  CHECK(legal(reader::te_mxfp8, parts, column(2)).empty());
  CHECK(legal(reader::te_mxfp8, parts, column(4)) == texts{"in_proj 12352 rows / tp 4 = 3088 is not a multiple of 32"});
  CHECK(legal(reader::te_mxfp8, parts, column(3)) == texts{"in_proj 12352 rows / tp 3 leaves a remainder of 1"});
  // As one number: 2 kd kh + 2 vd vh + 2 vh is a multiple of 32 tp.
  for (const i64 value_heads : {8, 16, 32, 48, 64})
    for (i64 tp = 1; tp <= 16; ++tp) {
      const gdn_heads some{128, 16, 128, value_heads};
      const bool got = legal(reader::te_mxfp8, {{"in_proj", some.in_proj_rows(), 2048}}, column(tp)).empty();
      CHECK(got == ((2 * 128 * 16 + 2 * 128 * value_heads + 2 * value_heads) % (32 * tp) == 0));
    }
  CHECK(name_of(reader::te_mxfp8) == "te-mxfp8");
}

TEST_CASE("column parallel: every rank's rows are whole blocks") {
  CHECK(legal(reader::vllm, {{"q_proj", 4096, 4096}}, column(4)).empty());
  CHECK(legal(reader::vllm, {{"q_proj", 4544, 4544}}, column(4)) ==
        texts{"q_proj 4544 rows / tp 4 = 1136 is not a multiple of 128"});
  CHECK(legal(reader::vllm, {{"q_proj", 4544, 4544}}, column(1)).empty());  // one part, one rank: no rule
  CHECK(legal(reader::sglang, {{"q_proj", 4544, 4544}}, column(1)).empty());
  CHECK(legal(reader::vllm, {{"q_proj", 100, 128}}, column(3)) ==
        texts{"q_proj 100 rows / tp 3 leaves a remainder of 1"});
}

TEST_CASE("row parallel: every rank's columns are whole blocks") {
  CHECK(legal(reader::vllm, {{"o_proj", 7168, 1536}}, row(4)).empty());
  CHECK(legal(reader::vllm, {{"o_proj", 7168, 1536}}, row(16)) ==
        texts{"o_proj 1536 columns / tp 16 = 96 is not a multiple of 128"});
  CHECK(legal(reader::sglang, {{"o_proj", 7168, 1500}}, row(1)).empty());
}

TEST_CASE("fused: parts are whole blocks; vLLM lets the last one be ragged while it is not sharded") {
  const std::vector<weight_part> ragged_last = {{"q", 4096, 7168}, {"k", 512, 7168}, {"v", 576, 7168}};
  CHECK(legal(reader::vllm, ragged_last, column(1)).empty());
  CHECK(legal(reader::tensorrt_llm, ragged_last, column(1)).empty());
  CHECK(legal(reader::sglang, ragged_last, column(1)) == texts{"v 576 rows is not a multiple of 128"});
  CHECK(legal(reader::vllm, ragged_last, column(2)) == texts{"v 576 rows / tp 2 = 288 is not a multiple of 128"});
  // Not cut by rows at all: replicated on eight ranks.
  CHECK(legal(reader::vllm, {{"q_a_proj", 1536, 7168}, {"kv_a_proj_with_mqa", 576, 7168}}, {sharding::replicated, 8})
            .empty());
  const std::vector<weight_part> halves = {{"gate_proj", 192, 256}, {"up_proj", 192, 256}};
  CHECK(legal(reader::vllm, halves, column(1)) == texts{"gate_proj 192 rows is not a multiple of 128"});
  CHECK(legal(reader::sglang, halves, column(1)) ==
        texts{"gate_proj 192 rows is not a multiple of 128", "up_proj 192 rows is not a multiple of 128"});
  CHECK(legal(reader::vllm, {{"q", 128, 256}, {"k", 128, 128}}, column(1)) == texts{"k has 128 columns, q has 256"});
}

TEST_CASE("MoE: I is whole blocks always, its columns only where they are sharded") {
  CHECK(legal(reader::vllm, {{"gate", 320, 4096}, {"up", 320, 4096}}, gate_up(1)) ==
        texts{"gate 320 rows is not a multiple of 128", "up 320 rows is not a multiple of 128"});
  CHECK(legal(reader::vllm, {{"w13", 640, 4096}}, gate_up(1)) ==
        texts{"w13 half 320 rows is not a multiple of 128", "w13 half 320 rows is not a multiple of 128"});
  CHECK(legal(reader::vllm, {{"w13", 768, 4096}}, gate_up(1)).empty());
  CHECK(legal(reader::vllm, {{"w13", 641, 4096}}, gate_up(1))[0] == "w13 641 rows / halves 2 leaves a remainder of 1");
  CHECK(legal(reader::sglang, {{"gate", 1280, 2048}, {"up", 1280, 2048}}, gate_up(4)) ==
        texts{"gate 1280 rows / tp 4 = 320 is not a multiple of 128",
              "up 1280 rows / tp 4 = 320 is not a multiple of 128"});
  CHECK(legal(reader::vllm, {{"w2", 4096, 192}}, row(1)).empty());
  CHECK(legal(reader::vllm, {{"w2", 4096, 1536}}, row(8)) ==
        texts{"w2 1536 columns / tp 8 = 192 is not a multiple of 128"});
}

TEST_CASE("experts: vLLM spreads them unevenly, the others want equal shares") {
  const std::vector<weight_part> parts = {{"gate", 768, 2048}, {"up", 768, 2048}};
  CHECK(legal(reader::vllm, parts, gate_up(1, 30, 8)).empty());
  CHECK(legal(reader::sglang, parts, gate_up(1, 30, 8)) == texts{"all 30 experts / ep 8 leaves a remainder of 6"});
  CHECK(legal(reader::sglang, parts, gate_up(1, 128, 8)).empty());
  CHECK(legal(reader::vllm, parts, gate_up(1, 4, 8)) == texts{"4 experts are fewer than ep 8"});
}

TEST_CASE("MXFP8: rows hold whole blocks of 32, whoever cuts them") {
  CHECK(legal(reader::vllm, {{"q", 100, 96}}, mxfp8(column(4))).empty());
  CHECK(legal(reader::vllm, {{"q", 100, 80}}, mxfp8(column(1))) == texts{"q 80 columns is not a multiple of 32"});
  CHECK(legal(reader::sglang, {{"o", 100, 96}}, mxfp8(row(2))) ==
        texts{"o 96 columns / tp 2 = 48 is not a multiple of 32"});
}

TEST_CASE("kernels: shapes that they multiply") {
  CHECK(legal(reader::deepgemm, {{"w", 192, 256}}, column(1)).empty());
  CHECK(legal(reader::deepgemm, {{"w", 200, 192}}, column(1)) ==
        texts{"w 200 rows is not a multiple of 64", "w 192 columns is not a multiple of 128"});
  CHECK(legal(reader::flashinfer_mxfp8, {{"w", 128, 160}}, column(1)).empty());
  CHECK(legal(reader::flashinfer_mxfp8, {{"w", 96, 96}}, column(1)) ==
        texts{"w 96 rows is less than 128", "w 96 columns is less than 128"});
  CHECK(legal(reader::flashinfer_mxfp8_trtllm, {{"w", 160, 512}}, column(1)).empty());
  CHECK(legal(reader::flashinfer_mxfp8_trtllm, {{"w", 144, 384}}, column(1)) ==
        texts{"w 144 rows is not a multiple of 32", "w 384 columns is not a multiple of 256"});
  CHECK(legal(reader::sm120_mxfp8, {{"w", 48, 96}}, column(1)) == texts{"w 48 rows is not a multiple of 32"});
  CHECK(legal(reader::deepgemm, {{"q", 128, 256}, {"k", 64, 256}}, column(2)) ==
        texts{"q + k 192 rows / tp 2 = 96 is not a multiple of 64"});
}

TEST_CASE("trtllm-gen MoE: I = 192 must be padded to 256, half by half") {
  // Vector 26: 2I = 384 is a multiple of 128, I / 32 = 6 is none of 4.
  CHECK(legal(reader::trtllm_mxfp8_moe, {{"w13", 384, 2048}}, mxfp8(gate_up(1))).empty());
  CHECK(legal(reader::trtllm_mxfp8_moe, {{"w2", 2048, 192}}, mxfp8(row(1))) ==
        texts{"w2 192 columns is not a multiple of 128"});
  CHECK(legal(reader::trtllm_mxfp8_moe, {{"w2", 2048, 256}}, mxfp8(row(1))).empty());
  CHECK(legal(reader::trtllm_mxfp8_moe, {{"w13", 384, 2000}}, mxfp8(gate_up(1))) ==
        texts{"w13 half + w13 half 2000 columns is not a multiple of 128"});
  CHECK(legal(reader::trtllm_fp8_block_moe, {{"gate", 192, 2048}, {"up", 192, 2048}}, gate_up(1)) ==
        texts{"gate 192 rows is not a multiple of 128", "up 192 rows is not a multiple of 128"});
  CHECK(legal(reader::trtllm_fp8_block_moe, {{"gate", 512, 2048}, {"up", 512, 2048}}, gate_up(2)).empty());
}

TEST_CASE("what makes no sense is a reason too, and the sizes that do are listed") {
  CHECK(legal(reader::vllm, {}, column(1)) == texts{"there is no part"});
  CHECK(legal(reader::vllm, {{"w", 128, 128}}, column(0)) == texts{"tp 0 is less than 1"});
  // 18432 = 144 blocks.
  CHECK(legal_tp(reader::vllm, {{"gate", 18432, 7168}, {"up", 18432, 7168}}, column(1), 32) ==
        std::vector<i64>{1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24});
  CHECK(name_of(reader::tensorrt_llm) == "tensorrt-llm");
  CHECK(name_of(reader::trtllm_fp8_block_moe) == "trtllm-fp8-block-moe");
}
