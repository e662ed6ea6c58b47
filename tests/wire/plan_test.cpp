// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/wire/explain.hpp>
#include <fp8wire/wire/plan.hpp>
#include <fp8wire/wire/window.hpp>

#include "count_allocations.hpp"

namespace fw = fp8wire;
using fw::i64;
using fw::u32;
using fw::u64;
using block_wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm>;
using mx_wire = fw::wire_format<fw::presets::te_mxfp8::recipe, fw::namings::modelopt>;

namespace {

fw::manifest bytes_only(const std::vector<std::pair<std::string, i64>>& sizes,
                        const std::vector<std::string>& units = {}) {
  fw::manifest made;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    REQUIRE(!made.keep(sizes[i].first, fw::dtype::uint8, {sizes[i].second}, units.empty() ? "" : units[i]));
  return made;
}

std::vector<std::vector<std::string>> names_in(const fw::manifest& tensors, const fw::plan& wire) {
  std::vector<std::vector<std::string>> made;
  for (const fw::plan_buffer& buffer : wire.buffers()) {
    made.emplace_back();
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i)
      made.back().push_back(tensors.entries()[wire.pieces()[i].entry].name);
  }
  return made;
}

// A model with fused siblings that are not neighbours, a batch, ragged edges and an empty weight.
template <class Wire> fw::manifest model() {
  fw::manifest made;
  REQUIRE(!made.keep("embed.weight", fw::dtype::bf16, {3, 5}));
  REQUIRE(!made.add<Wire>("gate.weight", {5, 32}, 0.0f, "gate_up"));
  REQUIRE(!made.keep("norm.weight", fw::dtype::bf16, {7}));
  REQUIRE(!made.add<Wire>("up.weight", {5, 32}, 0.0f, "gate_up"));
  REQUIRE(!made.add<Wire>("tall.weight", {300, 32}));
  REQUIRE(!made.add<Wire>("experts.weight", {3, 150, 32}));
  REQUIRE(!made.add<Wire>("empty.weight", {0, 32}));
  REQUIRE(!made.keep("kv_scale", fw::dtype::f32, {}));
  return made;
}

// Everything that a plan promises, checked without a line of the planner: the first promise that is broken, or "".
std::string broken_promise(const fw::manifest& tensors, const fw::plan& wire) {
  const fw::plan_options& options = wire.options();
  std::vector<u64> covered(tensors.entries().size());
  std::vector<std::vector<u32>> buffers_of_unit(tensors.units().size());
  std::vector<bool> unit_is_cut(tensors.units().size());
  u32 next = 0;
  for (u32 b = 0; b < wire.buffers().size(); ++b) {
    const fw::plan_buffer& buffer = wire.buffers()[b];
    if (buffer.first != next || buffer.count == 0) return "buffers follow each other";
    next += buffer.count;
    u64 end = 0;
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
      const fw::plan_piece& piece = wire.pieces()[i];
      if (piece.buffer != b) return "a piece knows its buffer";
      if (piece.offset % options.align_bytes != 0) return "offsets are aligned";
      if (piece.offset < end) return "pieces do not overlap";
      if (piece.offset - end >= options.align_bytes) return "padding is less than the alignment";
      end = piece.offset + piece.bytes;
      if (piece.from != covered[piece.entry]) return "pieces of an entry follow each other";
      covered[piece.entry] += piece.bytes;
      const u32 unit = tensors.items()[tensors.entries()[piece.entry].item].unit;
      if (buffers_of_unit[unit].empty() || buffers_of_unit[unit].back() != b) buffers_of_unit[unit].push_back(b);
      if (buffer.cut) unit_is_cut[unit] = true;
    }
    if (buffer.used_bytes < end || buffer.used_bytes - end >= options.align_bytes)
      return "used bytes end with the last piece";
    if (buffer.used_bytes > wire.slot_bytes()) return "a slot holds every buffer";
    if (buffer.used_bytes > options.capacity_bytes && !buffer.oversized)
      return "only oversized buffers are over the capacity";
    if (!buffer.cut) continue;
    // A piece is a pair: codes, then exactly the scales of their blocks.
    if (buffer.count != 2) return "a piece has codes and scales";
    const fw::plan_piece &codes = wire.pieces()[buffer.first], &scales = wire.pieces()[buffer.first + 1];
    const auto& facts = tensors.items()[tensors.entries()[codes.entry].item].facts;
    if (scales.entry != codes.entry + 1) return "scales follow their codes";
    const i64 block_rows = (facts.extents.rows + facts.split_rows - 1) / facts.split_rows;
    const i64 scale_row = static_cast<i64>(tensors.entries()[scales.entry].bytes) / (facts.extents.batch * block_rows);
    const auto block_of = [&](i64 row) {
      return row / facts.extents.rows * block_rows + row % facts.extents.rows / facts.split_rows;
    };
    const i64 first = static_cast<i64>(codes.from) / facts.extents.cols;
    const i64 last = static_cast<i64>(codes.from + codes.bytes) / facts.extents.cols - 1;
    if (static_cast<i64>(scales.from) != block_of(first) * scale_row) return "scales begin with their codes";
    if (static_cast<i64>(scales.from + scales.bytes) != (block_of(last) + 1) * scale_row)
      return "scales end with their codes";
    const bool starts_block = first % facts.extents.rows % facts.split_rows == 0;
    const bool ends_block =
        (last + 1) % facts.extents.rows == 0 || (last + 1) % facts.extents.rows % facts.split_rows == 0;
    if (!starts_block || !ends_block) return "no block is cut";
  }
  if (next != wire.pieces().size()) return "every piece is in a buffer";
  for (std::size_t e = 0; e < covered.size(); ++e)
    if (covered[e] != tensors.entries()[e].bytes) return "every byte has a place";
  for (std::size_t unit = 0; unit < buffers_of_unit.size(); ++unit) {
    if (buffers_of_unit[unit].empty()) return "every unit has a buffer";
    if (buffers_of_unit[unit].size() != 1 && !unit_is_cut[unit]) return "units are whole";
    if (unit_is_cut[unit] && !options.split_rows) return "nothing is cut unasked";
  }
  return "";
}

}  // namespace

TEST_CASE_TEMPLATE("at every capacity, byte by byte, units stay whole and every byte has one place", Wire, block_wire,
                   mx_wire) {
  const fw::manifest tensors = model<Wire>();
  u64 all = 0;
  for (const auto& entry : tensors.entries()) all += entry.bytes + 8;
  for (const bool split : {false, true}) {
    for (u64 capacity = 1; capacity <= all + 64; ++capacity) {
      CAPTURE(capacity);
      const auto wire = fw::make_plan(tensors, {capacity, 8, 2, split, false});
      REQUIRE(wire);
      REQUIRE(broken_promise(tensors, *wire) == "");
    }
  }
  CHECK(broken_promise(tensors, fw::make_plan(tensors, {1000, 256, 2, true, true}).value()) == "");
}

TEST_CASE("a pair straddles no boundary") {
  fw::manifest tensors;
  fw::pair_facts facts{{1, 1, 600}, 0, {}, 0, 0};
  const fw::encoding_entry encoding{1, 1, "x", ""};
  REQUIRE(
      !tensors.add_pair({{"a.weight", fw::dtype::f8_e4m3, {1, 600}}, {"a.weight_scale_inv", fw::dtype::f32, {1, 4}}},
                        facts, encoding, ""));
  facts.extents.cols = 400;
  REQUIRE(
      !tensors.add_pair({{"b.weight", fw::dtype::f8_e4m3, {1, 400}}, {"b.weight_scale_inv", fw::dtype::f32, {1, 4}}},
                        facts, encoding, ""));
  const auto wire = fw::make_plan(tensors, {1024, 8, 2, false, false}).value();
  CHECK(names_in(tensors, wire) ==
        std::vector<std::vector<std::string>>{{"a.weight", "a.weight_scale_inv"}, {"b.weight", "b.weight_scale_inv"}});
}

TEST_CASE("the running size counts every tensor of a buffer") {
  const fw::manifest tensors =
      bytes_only({{"t0", 300}, {"t1", 300}, {"t2", 300}, {"t3", 300}, {"t4", 300}, {"t5", 300}, {"t6", 300}});
  const auto wire = fw::make_plan(tensors, {1000, 8, 2, false, false}).value();
  std::vector<u32> counts;
  for (const auto& buffer : wire.buffers()) counts.push_back(buffer.count);
  CHECK(counts == std::vector<u32>{3, 3, 1});
}

TEST_CASE("siblings that export far apart share a buffer, in the place of the first") {
  const fw::manifest tensors =
      bytes_only({{"gate", 100}, {"other", 100}, {"up", 100}}, {"gate_up", "other", "gate_up"});
  const auto wire = fw::make_plan(tensors, {208, 8, 2, false, false}).value();
  CHECK(names_in(tensors, wire) == std::vector<std::vector<std::string>>{{"gate", "up"}, {"other"}});
}

TEST_CASE("the slots that an export needs are known before it starts") {
  const auto needed = [](const fw::manifest& tensors, fw::plan_options options) {
    const auto wire = fw::make_plan(tensors, options).value();
    CHECK(static_cast<bool>(fw::check_window(tensors, wire)) == (fw::slots_needed(tensors, wire) > options.slots));
    return fw::slots_needed(tensors, wire);
  };
  const fw::manifest near = bytes_only({{"a", 8}, {"b", 8}, {"c", 8}, {"d", 8}});
  CHECK(needed(near, {8, 8, 2, false, false}) == 1);
  const fw::manifest apart =
      bytes_only({{"a1", 8}, {"b", 8}, {"c", 8}, {"a2", 8}, {"d", 8}}, {"a", "b", "c", "a", "d"});
  CHECK(needed(apart, {8, 8, 2, false, false}) == 3);
  CHECK(needed(apart, {8, 8, 3, false, false}) == 3);
  CHECK(needed(apart, {24, 8, 2, false, false}) == 2);
  CHECK(needed(apart, {64, 8, 2, false, false}) == 1);
  CHECK(needed(fw::manifest{}, {}) == 0);
  fw::manifest cut;
  REQUIRE(!cut.add<block_wire>("w.weight", {1280, 64}));
  CHECK(needed(cut, {128 * 64 + 256, 256, 1, true, false}) == 1);
  fw::manifest late = bytes_only({{"a1", 8}}, {"a"});
  REQUIRE(!late.add<block_wire>("w.weight", {384, 64}));
  REQUIRE(!late.keep("a2", fw::dtype::uint8, {8}, "a"));
  CHECK(needed(late, {128 * 64 + 256, 256, 2, true, false}) == 4);
}

TEST_CASE("a unit over the capacity has a buffer of its own, and the slots grow to it") {
  const fw::manifest tensors = bytes_only({{"a", 10}, {"big", 1001}, {"b", 10}});
  const auto wire = fw::make_plan(tensors, {1000, 8, 3, false, false}).value();
  CHECK(names_in(tensors, wire) == std::vector<std::vector<std::string>>{{"a"}, {"big"}, {"b"}});
  CHECK(wire.buffers()[1].oversized);
  CHECK(wire.slot_bytes() == 1008);
  CHECK(wire.peak_bytes() == 3024);
  CHECK(!fw::within_budget(wire, 1000, 4024));
  CHECK(fw::within_budget(wire, 1000, 4023).got == 4024);
  CHECK(fw::within_budget(wire, ~u64{0}, 4023).code == fw::errc::capacity);
}

TEST_CASE("by dtype, a buffer holds units of one dtype only") {
  fw::manifest tensors;
  REQUIRE(!tensors.keep("a", fw::dtype::bf16, {4}));
  REQUIRE(!tensors.add<mx_wire>("w.weight", {4, 32}));
  REQUIRE(!tensors.keep("b", fw::dtype::bf16, {4}));
  REQUIRE(!tensors.keep("c", fw::dtype::f32, {4}));
  const auto wire = fw::make_plan(tensors, {1 << 20, 8, 2, false, true}).value();
  CHECK(names_in(tensors, wire) ==
        std::vector<std::vector<std::string>>{{"w.weight", "w.weight_scale"}, {"a", "b"}, {"c"}});
}

TEST_CASE("a pair over the capacity is cut between block rows only where that is allowed and possible") {
  fw::manifest tensors;
  REQUIRE(!tensors.add<block_wire>("w.weight", {400, 64}));
  const u64 capacity = 128 * 64 + 256;
  const auto uncut = fw::make_plan(tensors, {capacity, 256, 2, false, false}).value();
  CHECK(uncut.buffers().size() == 1);
  const auto cut = fw::make_plan(tensors, {capacity, 256, 2, true, false}).value();
  REQUIRE(cut.buffers().size() == 4);
  CHECK(cut.slot_bytes() == capacity);
  CHECK(cut.pieces()[6].from == 384 * 64);
  CHECK(cut.pieces()[6].bytes == 16 * 64);
  CHECK(cut.pieces()[7].from == 12);
  CHECK(fw::make_plan(tensors, {capacity - 1, 256, 2, true, false})->buffers().size() == 1);  // no block row fits
  CHECK(fw::make_plan(tensors, {2 * 128 * 64 + 256, 256, 2, true, false})->buffers().size() == 2);
  using whole_wire =
      fw::wire_format<fw::recipe<fw::e4m3, fw::block<fw::whole, fw::whole>, fw::rules::quotient>, fw::namings::vllm>;
  fw::manifest tensor_wide;
  REQUIRE(!tensor_wide.add<whole_wire>("w.weight", {400, 64}));
  CHECK(fw::make_plan(tensor_wide, {capacity, 256, 2, true, false})->buffers().size() == 1);
}

TEST_CASE("impossible options and sizes are errors") {
  const fw::manifest tensors = bytes_only({{"a", 10}});
  CHECK(fw::make_plan(tensors, {0, 256, 2, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {~u64{0}, 256, 2, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {100, 4, 2, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {100, 24, 2, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {100, u64{1} << 63, 2, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {100, 256, 0, false, false}).error().code == fw::errc::bad_argument);
  CHECK(fw::make_plan(tensors, {u64{1} << 62, 256, 4, false, false}).error().code == fw::errc::overflow);
  CHECK(fw::make_plan(fw::manifest{}, {})->buffers().empty());
  fw::manifest huge;
  for (int i = 0; i < 8; ++i) REQUIRE(!huge.keep("a" + std::to_string(i), fw::dtype::uint8, {i64{1} << 59}));
  CHECK(huge.keep("c", fw::dtype::uint8, {1}).code == fw::errc::overflow);
  CHECK(fw::make_plan(huge, {100, 256, 1, true, false}));
}

TEST_CASE("the hash changes with whatever changes a byte's place or meaning") {
  const auto hash_of = [](const fw::manifest& tensors, fw::plan_options options = {4096, 256, 2, false, false}) {
    return fw::make_plan(tensors, options)->hash();
  };
  const u64 base = hash_of(model<block_wire>());
  CHECK(hash_of(model<mx_wire>()) != base);
  CHECK(hash_of(model<block_wire>(), {4097, 256, 2, false, false}) != base);
  CHECK(hash_of(model<block_wire>(), {4096, 512, 2, false, false}) != base);
  CHECK(hash_of(model<block_wire>(), {4096, 256, 3, false, false}) != base);
  CHECK(hash_of(model<block_wire>(), {4096, 256, 2, true, false}) != base);
  CHECK(hash_of(model<block_wire>(), {4096, 256, 2, false, true}) != base);
  fw::manifest more = model<block_wire>();
  REQUIRE(!more.tie("lm_head.weight", "embed.weight"));
  CHECK(hash_of(more) != base);
  const auto one = [](float floor, std::string_view unit, const std::vector<i64>& shape) {
    fw::manifest made;
    REQUIRE(!made.add<block_wire>("w.weight", shape, floor, unit));
    return made.hash();
  };
  CHECK(one(0, "", {2, 4}) != one(1e-10f, "", {2, 4}));
  CHECK(one(0, "", {2, 4}) != one(0, "u", {2, 4}));
  CHECK(one(0, "", {2, 4}) != one(0, "", {4, 2}));
  CHECK(one(0, "", {2, 4}) == one(-0.0f, "w.weight", {2, 4}));
}

TEST_CASE("hashes and ids of the first protocol are frozen") {
  CHECK(block_wire::id() == 18332270752266125135u);
  CHECK(mx_wire::id() == 2423199534927214884u);
  CHECK(model<block_wire>().hash() == 17942559876812241084u);
  CHECK(fw::make_plan(model<block_wire>(), {4096, 256, 2, false, false})->hash() == 6272901343763650442u);
  CHECK(fw::make_plan(model<mx_wire>(), {2048, 64, 2, true, true})->hash() == 140037173989165937u);
}

TEST_CASE("planning again allocates nothing") {
  const fw::manifest tensors = model<block_wire>();
  fw::planner planner;
  fw::plan wire;
  REQUIRE(!planner.make(tensors, {4096, 256, 2, true, false}, wire));
  const u64 hash = wire.hash();
  const std::size_t before = allocations;
  for (int i = 0; i < 3; ++i) REQUIRE(!planner.make(tensors, {4096, 256, 2, true, false}, wire));
  CHECK(allocations == before);
  CHECK(wire.hash() == hash);
}

TEST_CASE("a manifest refuses what cannot be sent, and is then as it was") {
  fw::manifest made;
  REQUIRE(!made.add<mx_wire>("w.weight", {4, 32}));
  REQUIRE(!made.keep("norm", fw::dtype::bf16, {4}));
  REQUIRE(!made.tie("tied", "norm"));
  const u64 hash = made.hash();
  CHECK(made.add<mx_wire>("w.weight", {4, 32}).code == fw::errc::duplicate);
  CHECK(made.keep("w.weight_scale", fw::dtype::f32, {1}).code == fw::errc::duplicate);
  CHECK(made.keep("tied", fw::dtype::f32, {1}).code == fw::errc::duplicate);
  CHECK(made.keep("", fw::dtype::f32, {1}).code == fw::errc::bad_argument);
  CHECK(made.keep("x", fw::dtype::f4, {3}).code == fw::errc::wrong_shape);
  CHECK(made.keep("x", fw::dtype::f32, {-1}).code == fw::errc::wrong_shape);
  CHECK(made.keep("x", fw::dtype::f32, {i64{1} << 62, 4}).code == fw::errc::overflow);
  CHECK(made.add<mx_wire>("x.weight", {4, 33}).code == fw::errc::wrong_shape);
  CHECK(made.add<mx_wire>("x.weight", {4}).code == fw::errc::wrong_shape);
  CHECK(made.tie("tied", "norm").code == fw::errc::duplicate);
  CHECK(made.tie("w.weight", "norm").code == fw::errc::duplicate);
  CHECK(made.tie("x", "nowhere").code == fw::errc::missing);
  CHECK(made.tie("x", "w.weight_scale").code == fw::errc::missing);
  CHECK(made.hash() == hash);
}

TEST_CASE("a refused first pair leaves no encoding behind") {
  fw::manifest made;
  REQUIRE(!made.keep("w.weight", fw::dtype::bf16, {4}));
  CHECK(made.add<mx_wire>("w.weight", {4, 32}).code == fw::errc::duplicate);
  CHECK(made.encodings().empty());
  REQUIRE(!made.add<mx_wire>("x.weight", {4, 32}));
  CHECK(made.add<mx_wire>("x.weight", {4, 32}).code == fw::errc::duplicate);
  CHECK(made.add<block_wire>("w.weight", {4, 32}).code == fw::errc::duplicate);
  CHECK(made.encodings().size() == 1);
}

TEST_CASE("a shard starts and ends on the block grid or at the weight's end, and the message has the arithmetic") {
  fw::manifest made;
  CHECK(!made.add_part<block_wire>("a.weight", {300, 256}, {128, 0, 172, 128}));
  CHECK(made.entries()[0].shape == std::vector<i64>{172, 128});
  CHECK(made.entries()[1].shape == std::vector<i64>{2, 1});
  const fw::error wrong = made.add_part<block_wire>("b.weight", {300, 256}, {64, 0, 128, 256});
  CHECK(wrong.broken == fw::condition::c5_geometry);
  CHECK(wrong.message() ==
        "C5 b.weight: a shard's first row 64 lies inside a block of 128; the remainder: got 64, expected 0");
  CHECK(made.add_part<block_wire>("b.weight", {300, 256}, {128, 0, 64, 256}).got == 64);
  CHECK(made.add_part<block_wire>("b.weight", {300, 256}, {256, 0, 128, 256}).got == 384);
  CHECK(made.add_part<block_wire>("b.weight", {300, 256}, {-128, 0, 128, 256}).code == fw::errc::wrong_shape);
  CHECK(made.add_part<mx_wire>("b.weight", {8, 64}, {3, 16, 2, 32}).got == 16);
  CHECK(!made.add_part<mx_wire>("b.weight", {8, 64}, {3, 32, 2, 32}));
}

TEST_CASE("explain says why every buffer ends where it ends") {
  fw::manifest tensors;
  REQUIRE(!tensors.add<block_wire>("w.weight", {400, 64}));
  REQUIRE(!tensors.keep("a", fw::dtype::uint8, {10}));
  REQUIRE(!tensors.keep("b", fw::dtype::uint8, {9000}));
  REQUIRE(!tensors.keep("c", fw::dtype::uint8, {9001}));
  const auto wire = fw::make_plan(tensors, {128 * 64 + 256, 256, 2, true, false}).value();
  const std::string text = fw::explain(tensors, wire);
  INFO(text);
  CHECK(text.find("buffer 0: 8448 of 8448 bytes, a piece of w.weight") != std::string::npos);
  CHECK(text.find("buffer 4: 256 of 8448 bytes, 1 tensor of 1 unit; ends because b needs 9216 more") !=
        std::string::npos);
  CHECK(text.find("buffer 5: 9216 bytes, more than the capacity of 8448: b fits no smaller one") != std::string::npos);
  CHECK(text.find("buffer 6") != std::string::npos);
}
