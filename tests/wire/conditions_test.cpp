// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <set>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/testing/toy_model.hpp>
#include <fp8wire/wire/conditions/arrivals.hpp>
#include <fp8wire/wire/conditions/buffers.hpp>
#include <fp8wire/wire/conditions/derived_state.hpp>
#include <fp8wire/wire/conditions/geometry.hpp>
#include <fp8wire/wire/conditions/grid.hpp>
#include <fp8wire/wire/conditions/layer_set.hpp>
#include <fp8wire/wire/conditions/other_state.hpp>
#include <fp8wire/wire/conditions/scales.hpp>
#include <fp8wire/wire/conditions/self_check.hpp>
#include <fp8wire/wire/conditions/served_version.hpp>

namespace fw = fp8wire;
using fw::condition;
using fw::dtype;
using fw::errc;
using fw::i64;

namespace {

fw::manifest update() { return fw::testing::toy_manifest(); }

// What a loader sees of an entry.
fw::error arrive(fw::arrivals& books, const fw::manifest_entry& entry, fw::u64 version = 3) {
  return books.arrived(entry.name, entry.dtype, entry.shape, version);
}

}  // namespace

TEST_CASE("C1: a part of the layers is audited as the whole is, and dtypes are the live ones") {
  const fw::manifest sent = update();
  std::vector<fw::tensor_spec> live;
  for (const fw::manifest_entry& entry : sent.entries())
    if (entry.what != fw::role::scales) live.push_back({entry.name, entry.dtype, entry.shape});
  const fw::layer_set wire = fw::layers_of(sent), learner = fw::layers_of(sent, "the learner");
  CHECK(fw::audit(learner, wire, fw::layers_of(live)).empty());
  for (fw::tensor_spec& one : live)
    if (one.name == "model.layers.1.self_attn.o_proj.weight") one.dtype = dtype::bf16;
  const fw::layer_set engine = fw::layers_of(live);
  const auto found = fw::audit(learner, wire, engine);
  REQUIRE(found.size() == 1);
  CHECK(found[0].tensor == "model.layers.1.self_attn.o_proj.weight");
  CHECK(found[0].broken == condition::c1_layer_set);
  const auto stage = [&](i64 first, i64 last, bool outside) {
    return fw::audit(fw::part_of(learner, first, last, outside), fw::part_of(wire, first, last, outside),
                     fw::part_of(engine, first, last, outside))
        .size();
  };
  CHECK(stage(0, 1, true) == 0);
  CHECK(stage(1, 2, false) == 1);
  CHECK(fw::part_of(wire, 1, 2).rows().size() == 1);
  CHECK(fw::part_of(wire, 5, 9, true).rows().size() == 1);  // the embedding
  CHECK(fw::part_of(wire, 0, 1).rows()[0].parts == 3);      // q, k and v
}

TEST_CASE("C2: the first element that is not the learner's is named, and samples take turns") {
  const fw::manifest sent = update();
  const fw::manifest_entry& scales =
      sent.entries()[static_cast<std::size_t>(sent.find("model.layers.0.self_attn.o_proj.weight_scale_inv"))];
  std::vector<std::byte> learner(16), engine(16);
  CHECK(!fw::check_grid(scales, learner, engine));
  engine[9] = std::byte{1};
  const fw::error wrong = fw::check_grid(scales, learner, engine);
  CHECK(wrong.message() ==
        "C2 model.layers.0.self_attn.o_proj.weight_scale_inv: is not what the learner's GEMM uses; bits of element 2: "
        "got 256, expected 0");
  CHECK(fw::check_grid(scales, learner, std::span(engine).first(12)).code == errc::wrong_size);
  std::set<fw::u32> seen;
  for (fw::u64 version = 1; version <= 40; ++version)
    for (const fw::u32 item : fw::grid_samples(sent, version, 2)) seen.insert(item);
  CHECK(seen.size() == fw::grid_samples(sent, 1, 1000).size());
}

TEST_CASE("C3 and C4: arrivals by name are complete, single, typed and of one version") {
  const fw::manifest sent = update();
  fw::arrivals books(sent);
  const auto all_but = [&](std::size_t left_out) {
    books.begin(3);
    for (std::size_t e = 0; e < sent.entries().size(); ++e)
      if (e != left_out) CHECK(!arrive(books, sent.entries()[e]));
    return books.complete();
  };
  CHECK(!all_but(~std::size_t{0}));
  CHECK(all_but(5).tensor == sent.entries()[5].name);
  CHECK(all_but(5).broken == condition::c3_complete_pairs);
  struct row {
    fw::manifest_entry entry;
    fw::u64 version;
    errc code;
    condition broken;
  };
  const fw::manifest_entry good = sent.entries()[3];
  row rows[] = {{good, 3, errc::unexpected, condition::c3_complete_pairs},
                {good, 3, errc::wrong_dtype, condition::c3_complete_pairs},
                {good, 3, errc::wrong_shape, condition::c5_geometry},
                {good, 3, errc::wrong_shape, condition::c5_geometry},
                {good, 2, errc::stale_version, condition::c4_atomic_pairs}};
  rows[0].entry.name += "_inv";
  rows[1].entry.dtype = dtype::int32;
  rows[2].entry.shape.push_back(1);
  rows[3].entry.shape[0] += 1;
  for (const row& one : rows) {
    books.begin(3);
    const fw::error wrong = arrive(books, one.entry, one.version);
    CAPTURE(wrong.message());
    CHECK(wrong.code == one.code);
    CHECK(wrong.broken == one.broken);
    // It sticks, whoever swallowed it.
    for (const fw::manifest_entry& entry : sent.entries()) arrive(books, entry);
    CHECK(books.complete() == wrong);
  }
  books.begin(3);
  CHECK(!arrive(books, good));
  CHECK(arrive(books, good).code == errc::duplicate);
  fw::manifest tied = update();
  REQUIRE(!tied.tie("lm_head.weight", "model.embed_tokens.weight"));
  fw::arrivals with_alias(tied);
  with_alias.begin(1);
  CHECK(with_alias.arrived("lm_head.weight", dtype::bf16, {48, 64}, 1).code == errc::duplicate);
}

TEST_CASE("C3: memory that was poisoned and not written is found to the element") {
  std::vector<std::byte> memory(12);
  fw::poison(memory);
  CHECK(fw::check_written("w", dtype::f32, memory).got == 0);
  for (std::size_t i = 0; i < 8; ++i) memory[i] = std::byte{1};
  CHECK(fw::check_written("w", dtype::f32, memory).got == 2);
  memory[9] = std::byte{0};
  CHECK(!fw::check_written("w", dtype::f32, memory));
  CHECK(fw::check_written("w", dtype::f8_e4m3, memory).got == 8);
}

TEST_CASE("C5: probes see both ends of blocks, and a position probe tells every transposition apart") {
  using recipe = fw::testing::toy_block;
  const auto probes = fw::geometry_probes({3, 1000, 300}, 128, 128);
  std::set<i64> rows, batches;
  for (const fw::index3& one : probes) rows.insert(one.row), batches.insert(one.batch);
  CHECK(rows == std::set<i64>{0, 127, 128, 255, 256, 383, 896, 999});
  CHECK(batches == std::set<i64>{0, 2});
  CHECK(fw::geometry_probes({1, 1, 1}, 0, 0).size() == 1);
  CHECK(fw::geometry_probes({0, 5, 5}, 1, 32).empty());

  std::vector<fw::u8> codes(256 * 256);
  std::vector<float> scales(4), turned(4);
  const fw::pair_view<recipe> pair{fw::dense(codes.data(), 256, 256), fw::dense(scales.data(), 2, 2)};
  fw::fill_position_probe<recipe>(pair);
  CHECK(std::set<float>(scales.begin(), scales.end()).size() == 4);
  turned = {scales[0], scales[2], scales[1], scales[3]};
  const auto all = fw::geometry_probes({1, 256, 256}, 128, 128);
  const auto sent = fw::values_of<recipe>(pair.codes, pair.scales);
  CHECK(!fw::check_geometry("w", all, sent, sent));
  const fw::error wrong =
      fw::check_geometry("w", all, sent, fw::values_of<recipe>(pair.codes, fw::dense(turned.data(), 2, 2)));
  CHECK(wrong.broken == condition::c5_geometry);
  CHECK(wrong.what == "element (0, 0, 128) is served from another place; its bits");
  bool any_nan = false;
  for (const fw::u8 code : codes) any_nan = any_nan || fw::e4m3::is_nan(code);
  CHECK(!any_nan);
}

TEST_CASE("C6: derived buffers are of this version, made once, and stay") {
  fw::derived_state book;
  const fw::u32 first = book.list("a"), second = book.list("b");
  int a = 0, b = 0;
  CHECK(!book.made(first, &a, 1));
  CHECK(book.check(1).tensor == "b");
  CHECK(!book.made(second, &b, 1));
  CHECK(!book.check(1));
  book.capture();
  CHECK(book.made(first, &a, 1).code == errc::duplicate);
  CHECK(!book.made(first, &b, 2));
  CHECK(book.made(second, &b, 1).code == errc::duplicate);
  CHECK(!book.made(second, &b, 2));
  CHECK(book.check(2).code == errc::format_mismatch);  // a moved
  CHECK(!book.made(first, &a, 3));
  CHECK(book.made(first, &a, 2).code == errc::stale_version);
  CHECK(book.check(3).tensor == "b");
}

TEST_CASE("C6: the self-check takes one of each kind in turns and multiplies the engine's own bytes") {
  const fw::manifest sent = update();
  CHECK(fw::layer_kind("model.layers.17.mlp.experts.3.up_proj.weight") ==
        "model.layers.*.mlp.experts.*.up_proj.weight");
  std::set<fw::u32> seen;
  for (fw::u64 version = 1; version <= 2; ++version) {
    std::set<std::string> kinds;
    for (const fw::u32 item : fw::self_check_items(sent, version)) {
      CHECK(kinds.insert(fw::layer_kind(sent.item_name(item))).second);
      seen.insert(item);
    }
    CHECK(kinds.size() == 10);
  }
  CHECK(seen.size() == 14);
  const auto only_first = [](std::string_view name) { return fw::layer_of(name) == 1; };
  CHECK(fw::self_check_items(sent, 1, only_first).size() == 1);

  using recipe = fw::testing::toy_block;
  std::vector<fw::u8> codes(4 * 64);
  std::vector<float> scales = {0.5f};
  const fw::pair_view<recipe> pair{fw::dense(codes.data(), 4, 64), fw::dense(scales.data(), 1, 1)};
  fw::fill_position_probe<recipe>(pair, 7);
  float factor = 1.0f;
  std::size_t rows = 4;
  const auto engine = [&](std::span<const float> x, std::span<float> y) {
    for (std::size_t row = 0; row < rows; ++row) {
      y[row] = 0;
      for (std::size_t col = 0; col < x.size(); ++col)
        y[row] += factor * scales[0] * fw::e4m3::decode(codes[row * 64 + col]) * x[col];
    }
  };
  CHECK(!fw::self_check<recipe>("w", pair, engine, 1e-5f));
  factor = 1.1f;
  CHECK(!fw::self_check<recipe>("w", pair, engine));
  const fw::error wrong = fw::self_check<recipe>("w", pair, engine, 0.05f);
  CHECK(wrong.code == errc::format_mismatch);
  CHECK(wrong.got == doctest::Approx(10000).epsilon(0.01));
  rows = 3;  // the last one is never written
  CHECK(fw::self_check<recipe>("w", pair, engine).code == errc::nonfinite);
}

TEST_CASE("C7: leases are counted, sums compared, offsets judged") {
  fw::lease_book book(2, 2);
  CHECK(!book.acquire(0));
  book.publish(0);
  CHECK(book.check_read(0, 0).broken == condition::none);
  CHECK(book.acquire(2).code == errc::out_of_order);  // the same slot
  CHECK(!book.acquire(1));
  CHECK(!book.release(0, 1));
  CHECK(book.release(0, 1).code == errc::duplicate);
  CHECK(book.check_read(0, 1).code == errc::out_of_order);
  CHECK(book.settled().what.find("engine 0") != std::string::npos);
  CHECK(!book.release(0, 0));
  CHECK(!book.settled());
  CHECK(book.release(7, 0).code == errc::duplicate);
  CHECK(book.check_read(0, 9).code == errc::out_of_order);

  const std::vector<std::byte> bytes(100, std::byte{3});
  CHECK(!fw::check_bytes("w", bytes, fw::checksum(bytes.data(), 100)));
  CHECK(fw::check_bytes("w", std::span(bytes).first(99), fw::checksum(bytes.data(), 100)).code == errc::checksum);
  CHECK(!fw::check_plans(5, 5));
  CHECK(fw::check_plans(5, 6).code == errc::plan_mismatch);
  CHECK(!fw::check_offset("w", dtype::f32, 8));
  CHECK(fw::check_offset("w", dtype::f32, 8, 2).expected == 10);
  CHECK(!fw::check_offset("w", dtype::uint8, 7));
}

TEST_CASE("C7 and C4: placements of others are judged as plans are") {
  const fw::manifest sent = update();
  const fw::plan wire = fw::make_plan(sent, {8192, 256, 2, false, false}).value();
  fw::placement where = fw::placement_of(wire);
  CHECK(!fw::check_placement(sent, where));
  CHECK(!fw::check_units(sent, where));
  fw::placement bent = where;
  bent.tensors[1].offset = 0, bent.tensors[1].buffer = bent.tensors[0].buffer;
  CHECK(fw::check_placement(sent, bent).code == errc::wrong_offset);
  bent = where;
  bent.buffer_bytes[0] -= 256;
  CHECK(fw::check_placement(sent, bent).code == errc::capacity);
  CHECK(fw::check_placement(sent, where, 1).code == errc::wrong_offset);
}

TEST_CASE("C8: versions rise, engines agree, answers are stamped, caches are keyed") {
  const fw::u64 serving[] = {4, 4, 3};
  CHECK(!fw::check_serving(std::span(serving).first(2), 4));
  const fw::error wrong = fw::check_serving(serving, 4);
  CHECK(wrong.rank == 2);
  CHECK(wrong.message() == "C8 engine 2: serves another version: got 3, expected 4");
  const fw::u64 none[] = {0};
  CHECK(fw::check_serving(none, 4).what == "serves nothing");
  CHECK(!fw::check_rising(3, 4));
  CHECK(fw::check_rising(4, 4).code == errc::stale_version);
  CHECK(!fw::check_stamp(3, 3, 4));
  CHECK(fw::check_stamp(2, 3, 4).expected == 3);
  CHECK(fw::check_stamp(5, 3, 4).expected == 4);
  CHECK(fw::check_stamp(0, 0, 4).code == errc::not_serving);
  CHECK(fw::cache_key(1, 7) != fw::cache_key(2, 7));
  CHECK(fw::cache_key(1, 7) != fw::cache_key(7, 1));
}

TEST_CASE("C9: scales and codes that the grid cannot make") {
  const std::vector<float> scales = {1.0f, 0.0f};
  CHECK(fw::check_scales("s", dtype::f32, std::as_bytes(std::span(scales))).got == 1);
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{0}, std::byte{254}};
  CHECK(!fw::check_scales("s", dtype::uint8, bytes));
  CHECK(fw::check_scales("s", dtype::uint8, bytes, true).got == 1);
  CHECK(!fw::check_codes("c", dtype::f8_e4m3, bytes));
  const std::vector<std::byte> bad = {std::byte{1}, std::byte{0xFF}};
  CHECK(fw::check_codes("c", dtype::f8_e4m3, bad).broken == condition::c9_scale_sanity);

  using recipe = fw::testing::toy_mx;
  std::vector<fw::bf16> weights(2 * 64);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = fw::to_bf16(0.01f * static_cast<float>(i + 1));
  std::vector<fw::u8> codes(2 * 64);
  std::vector<fw::e8m0> exponents(4);
  const fw::pair_view<recipe> pair{fw::dense(codes.data(), 2, 64), fw::dense(exponents.data(), 2, 2)};
  fw::testing::quantize_by_reference<recipe>(fw::dense<const fw::bf16>(weights.data(), 2, 64), pair);
  CHECK(!fw::check_block_range<recipe>("w", pair, 0x76));
  for (std::size_t i = 64; i < 96; ++i) codes[i] = static_cast<fw::u8>(codes[i] >= 16 ? codes[i] - 16 : 0);
  const fw::error wrong = fw::check_block_range<recipe>("w", pair, 0x76);
  CHECK(wrong.broken == condition::c9_scale_sanity);
  CHECK(wrong.what.find("(0, 1, 0)") != std::string::npos);
  for (fw::u8& code : codes) code = 0;  // zeros say nothing about their scale
  CHECK(!fw::check_block_range<recipe>("w", pair, 0x76));
}

TEST_CASE("C10: state is sent, constant or recomputed, and nothing is both or neither") {
  fw::manifest sent;
  REQUIRE(!sent.add<fw::testing::toy_block_wire>("l.q_proj.weight", {128, 128}));
  REQUIRE(!sent.keep("l.A_log", dtype::f32, {8}));
  std::vector<fw::tensor_spec> live = {{"l.qkv_proj.weight", dtype::f8_e4m3, {128, 128}},
                                       {"l.qkv_proj.weight_scale_inv", dtype::f32, {1, 1}},
                                       {"l.A_log", dtype::f32, {8}},
                                       {"l.rope.inv_freq", dtype::f32, {8}},
                                       {"l.w_swizzled", dtype::uint8, {512}}};
  std::vector<fw::state_rule> promises = {{"**.inv_freq", fw::state_kind::constant},
                                          {"**.w_swizzled", fw::state_kind::recomputed}};
  CHECK(fw::check_state(live, sent, promises).empty());
  const auto first = [&](const auto& found) { return found.empty() ? fw::error{} : found.front(); };
  promises.push_back({"l.A_log", fw::state_kind::constant});
  CHECK(first(fw::check_state(live, sent, promises)).code == errc::duplicate);
  promises.back() = {"l.gone", fw::state_kind::recomputed};
  CHECK(first(fw::check_state(live, sent, promises)).message() ==
        "C10 l.gone: is said to be recomputed, and the engine has no such state");
  promises.pop_back();
  live.push_back({"l.e_score_bias", dtype::f32, {8}});
  CHECK(first(fw::check_state(live, sent, promises)).tensor == "l.e_score_bias");
  live.pop_back();
  live.erase(live.begin() + 2);
  CHECK(first(fw::check_state(live, sent, promises)).code == errc::missing);
  const std::vector<std::byte> bytes(8, std::byte{1});
  CHECK(!fw::check_constant("c", bytes, fw::checksum(bytes.data(), 8)));
  CHECK(fw::check_constant("c", bytes, 1).broken == condition::c10_other_state);
}
