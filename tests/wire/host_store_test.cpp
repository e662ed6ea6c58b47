// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/model/rank_slices.hpp>

#include "update_fixture.hpp"

namespace fw = fp8wire;
using fw::i64;
using fw::u64;

namespace {

using recipe = test::block_wire::recipe;

struct weight {
  const char* name;
  std::vector<i64> shape;  // batch, rows, cols
  fw::sharding how;
};

const std::vector<weight> weights = {{"column.weight", {1, 512, 300}, fw::sharding::column},
                                     {"row.weight", {1, 200, 512}, fw::sharding::row},
                                     {"gate_up.weight", {3, 512, 130}, fw::sharding::gate_up},
                                     {"experts_down.weight", {2, 130, 256}, fw::sharding::row},
                                     {"whole.weight", {1, 100, 100}, fw::sharding::replicated}};

// The rows and columns of a rank, cut out of the weights before anything is quantized.
std::vector<fw::bf16> cut_out(const weight& from, const std::vector<fw::bf16>& values, i64 tp, i64 rank) {
  const i64 rows = from.shape[1], cols = from.shape[2], half = rows / 2;
  std::vector<fw::bf16> kept;
  for (i64 b = 0; b < from.shape[0]; ++b)
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col) {
        bool mine = true;
        if (from.how == fw::sharding::column) mine = row / (rows / tp) == rank;
        if (from.how == fw::sharding::row) mine = col / (cols / tp) == rank;
        if (from.how == fw::sharding::gate_up) mine = row % half / (half / tp) == rank;
        if (mine) kept.push_back(values[static_cast<std::size_t>((b * rows + row) * cols + col)]);
      }
  return kept;
}

}  // namespace

TEST_CASE("a rank keeps the bytes of its slices quantized alone, wherever buffers are cut") {
  constexpr i64 tp = 2;
  fw::manifest tensors;
  std::vector<std::vector<fw::bf16>> values;
  for (const weight& one : weights) {
    REQUIRE(!tensors.add<test::block_wire>(one.name, one.shape));
    values.push_back(test::values_of(test::count(one.shape), static_cast<unsigned>(values.size())));
  }
  REQUIRE(!tensors.keep("norm.weight", fw::dtype::f4, {64}));
  test::model whole;
  for (std::size_t i = 0; i < weights.size(); ++i)
    whole.push_back({weights[i].name, weights[i].name, weights[i].shape, true, values[i]});
  const auto expected = test::expected_bytes<test::block_wire>(tensors, whole);
  const std::vector<std::byte> norm(32, std::byte{7});

  for (const u64 capacity : {5000u, 40000u, 1u << 24}) {
    const fw::plan wire = fw::make_plan(tensors, {capacity, 256, 2, true, false}).value();
    for (i64 rank = 0; rank < tp; ++rank) {
      std::vector<fw::kept_part> parts(tensors.entries().size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i].how == fw::sharding::replicated) continue;
        const i64 rows = weights[i].shape[1], cols = weights[i].shape[2];
        const auto slices = fw::rank_slices(weights[i].name, {rows, cols}, weights[i].how, tp, rank);
        REQUIRE(slices);
        parts[2 * i] = {rows, cols, {}};
        parts[2 * i + 1] = {fw::ceil_div(rows, i64{128}), fw::ceil_div(cols, i64{128}), {}};
        for (const fw::pair_slice& one : *slices) {
          parts[2 * i].rectangles.push_back(one.codes);
          parts[2 * i + 1].rectangles.push_back(one.scales);
        }
      }
      fw::host_store<> store(tensors, wire, fw::commit_mode::in_place, parts);
      for (std::size_t piece = 0; piece < wire.pieces().size(); ++piece) {
        const fw::plan_piece& where = wire.pieces()[piece];
        const auto found = expected.find(tensors.entries()[where.entry].name);
        const std::span<const std::byte> all = found == expected.end() ? norm : found->second;
        const auto bytes = all.subspan(static_cast<std::size_t>(where.from), static_cast<std::size_t>(where.bytes));
        REQUIRE(!store.write(static_cast<fw::u32>(piece), bytes, {}));
        CHECK((*store.reports({}))[piece].sum == fw::checksum(bytes.data(), bytes.size()));
      }
      for (std::size_t i = 0; i < weights.size(); ++i) {
        CAPTURE(weights[i].name);
        const weight& one = weights[i];
        std::vector<i64> shape = one.shape;
        if (one.how == fw::sharding::row) shape[2] /= tp;
        else if (one.how != fw::sharding::replicated) shape[1] /= tp;
        fw::manifest mine;
        REQUIRE(!mine.add<test::block_wire>(one.name, shape));
        const auto alone = test::expected_bytes<test::block_wire>(
            mine, {{one.name, one.name, shape, true, cut_out(one, values[i], tp, rank)}});
        for (const std::size_t e : {2 * i, 2 * i + 1}) {
          const auto got = store.bytes(e);
          const auto& wanted = alone.at(tensors.entries()[e].name);
          CHECK(got.size() == wanted.size());
          CHECK(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
        }
      }
      const auto kept = store.bytes(2 * weights.size());
      CHECK(std::equal(kept.begin(), kept.end(), norm.begin(), norm.end()));
    }
  }
}
