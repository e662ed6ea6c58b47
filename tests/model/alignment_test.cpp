// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <fp8wire/model/alignment.hpp>

using namespace fp8wire;
using enum fp8_training;

namespace {

constexpr token_layout at(i64 tp, i64 cp, fp8_training recipe, i64 sequences = 1) {
  return {.tp = tp, .cp = cp, .recipe = recipe, .sequences = sequences};
}

}  // namespace

// Worked out by hand from the frameworks' sources.
static_assert(alignments::skyrl(at(2, 1, mxfp8)).sequence == 64);
static_assert(alignments::skyrl(at(2, 1, blockwise)).sequence == 256);
static_assert(alignments::skyrl(at(2, 2, mxfp8)).sequence == 128);
static_assert(alignments::skyrl(at(2, 2, blockwise)).sequence == 512);
static_assert(alignments::skyrl(at(1, 1, mxfp8)).sequence == 32);
static_assert(alignments::skyrl(at(1, 1, blockwise)).sequence == 16);
static_assert(alignments::nemo(at(2, 2, blockwise)).total == 1024);  // 2x SkyRL's

TEST_CASE("SkyRL: the unit of the recipe, and what Megatron asks for") {
  CHECK(alignments::skyrl(at(1, 2, blockwise)) == token_alignment{32, 32});      // lcm(4, 32)
  CHECK(alignments::skyrl(at(1, 3, tensorwise)) == token_alignment{48, 48});     // lcm(6, 48)
  CHECK(alignments::skyrl(at(3, 2, mxfp8)) == token_alignment{192, 192});        // lcm(12, 192)
  CHECK(alignments::skyrl_unpacked(at(1, 4, mxfp8)) == token_alignment{32, 32});  // as if cp were 1
  CHECK(alignments::skyrl_unpacked(at(2, 4, blockwise)) == token_alignment{256, 256});
  CHECK(alignments::skyrl_unpacked(at(1, 4, blockwise)) == token_alignment{16, 16});
  CHECK(alignments::skyrl_main(at(2, 2, blockwise)) == token_alignment{32, 32});  // lcm(8, 32)
  CHECK(alignments::skyrl_main(at(2, 1, mxfp8)) == token_alignment{16, 16});      // lcm(2, 16)
  CHECK(alignments::skyrl_main(at(5, 3, mxfp8)) == token_alignment{240, 240});    // lcm(30, 48)
  CHECK(alignments::skyrl_main_unpacked(at(6, 3, mxfp8)) == token_alignment{48, 48});
}

TEST_CASE("verl: sequences by 16 or 32, packs by 128 Megatron multiples, batches by blocks") {
  CHECK(alignments::verl(at(1, 1, blockwise)) == token_alignment{16, 128});
  CHECK(alignments::verl(at(2, 2, blockwise)) == token_alignment{16, 1024});
  CHECK(alignments::verl(at(2, 2, mxfp8)) == token_alignment{32, 1024});
  CHECK(alignments::verl(at(3, 1, mxfp8)) == token_alignment{96, 384});
  CHECK(alignments::verl_batched(at(1, 1, blockwise, 1)).sequence == 128);
  CHECK(alignments::verl_batched(at(2, 2, blockwise, 8)).sequence == 64);   // 512 / 8
  CHECK(alignments::verl_batched(at(2, 2, blockwise, 3)).sequence == 512);
  CHECK(alignments::verl_batched(at(2, 1, blockwise, 512)).sequence == 2);  // tp remains
}

TEST_CASE("NeMo: unit times chunks times tensor parallelism") {
  CHECK(alignments::nemo(at(1, 1, blockwise)) == token_alignment{1, 128});
  CHECK(alignments::nemo(at(2, 2, mxfp8)) == token_alignment{8, 256});
  CHECK(alignments::nemo(at(2, 2, tensorwise)) == token_alignment{8, 128});
  token_layout one = at(4, 2, blockwise);
  one.sequence_parallel = false;
  CHECK(alignments::nemo(one) == token_alignment{4, 512});
  one.recipe = mxfp8;
  one.hybrid_ep = true;
  CHECK(alignments::nemo(one) == token_alignment{4, 512});
  CHECK(alignments::nemo(at(2, 2, blockwise)).padded_total(5000) == 5120);  // with pipelines, every pack
}

TEST_CASE("collation, packing and replay see the same padded lengths") {
  const std::vector<i64> lengths = {100, 0, 16, 33, 1};
  for (const alignments::named& one : alignments::all) {
    for (const i64 tp : {1, 2, 3}) {
      for (const i64 cp : {1, 2, 4}) {
        for (const fp8_training recipe : {tensorwise, blockwise, mxfp8}) {
          CAPTURE(one.name);
          const token_alignment by = one.rule(at(tp, cp, recipe, 5));
          std::vector<i64> starts(lengths.size() + 1);
          pack(lengths, by, starts);
          for (std::size_t i = 0; i + 1 < lengths.size(); ++i) {
            CHECK(starts[i + 1] - starts[i] == by.padded(lengths[i]));  // what collation pads to
            CHECK(starts[i] + lengths[i] <= starts[i + 1]);             // what replay reads
          }
          CHECK(starts.back() % by.total == 0);
          CHECK(starts.back() - starts[4] >= by.padded(lengths[4]));  // the last sequence is extended
          CHECK(starts.back() - by.total < starts[4] + by.padded(lengths[4]));
          // Each context-parallel rank gets two whole chunks, and each tensor-parallel rank its share of them.
          if (one.name.find("unpacked") == std::string_view::npos && cp > 1) CHECK(starts.back() % (2 * tp * cp) == 0);
        }
      }
    }
  }
  CHECK(alignments::skyrl(at(2, 1, blockwise)).bin_capacity(100) == 256);
  CHECK(alignments::skyrl(at(2, 1, blockwise)).bin_capacity(8192) == 8192);
}

TEST_CASE("rules are found by name, and layouts that cannot be are refused") {
  for (const alignments::named& one : alignments::all) {
    CHECK(alignments::find(one.name) == &one);
    for (const token_layout wrong :
         {at(0, 1, mxfp8), at(1, -1, mxfp8), at(i64{1} << 40, 1, blockwise), at(1, 1, mxfp8, 0)})
      CHECK_THROWS_AS(one.rule(wrong), const precondition_error&);
  }
  CHECK(alignments::find("megatron") == nullptr);
  std::vector<i64> starts(2);
  const std::vector<i64> two = {1, 2}, negative = {-1};
  CHECK_THROWS_AS(pack(two, {}, starts), const precondition_error&);
  CHECK_THROWS_AS(pack(negative, {}, starts), const precondition_error&);
  CHECK(name_of(tensorwise) == "tensorwise");
}
