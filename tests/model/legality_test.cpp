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
constexpr parallelism mxfp8(parallelism where) {
  where.block_rows = 1;
  where.block_cols = 32;
  return where;
}
}  // namespace

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
