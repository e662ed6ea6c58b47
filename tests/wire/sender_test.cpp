// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include <fp8wire/wire/window.hpp>

#include "update_fixture.hpp"

namespace fw = fp8wire;
using fw::commit_mode;
using fw::condition;
using fw::errc;
using test::block_wire;

namespace {
using world = test::world<block_wire, fake::late_backend>;
constexpr fw::plan_options small{1, 256, 2, false, false};  // every unit has a buffer of its own

const test::tensor& named(const test::model& from, std::string_view name) {
  return *std::find_if(from.begin(), from.end(), [&](const test::tensor& one) { return one.name == name; });
}
}  // namespace

TEST_CASE("items come in any order inside the window") {
  const test::model from = test::small_model();
  std::mt19937 random(7);
  int reached = 0;
  for (int round = 0; round < 60; ++round) {
    world w(from, {1 << 20, 256, 2, false, false}, commit_mode::staged, 1);
    std::vector<std::size_t> order(from.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    REQUIRE(!w.learner.begin(1));
    for (const std::size_t i : order) REQUIRE(!w.send(from[i]));
    REQUIRE(!w.learner.finish(w.stream()));
    CHECK(w.serves(0, from));
    ++reached;
  }
  CHECK(reached == 60);
}

TEST_CASE("an item beyond the window is refused with the names that hold the window up, and the update goes on") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  REQUIRE(!w.learner.begin(1));
  REQUIRE(!w.send(named(from, "embed.weight")));
  REQUIRE(!w.send(named(from, "l0.gate.weight")));
  REQUIRE(!w.send(named(from, "l0.norm.weight")));
  const fw::error wrong = w.send(named(from, "l0.down.weight"));
  CHECK(wrong.code == errc::out_of_order);
  CHECK(wrong.broken == condition::c3_complete_pairs);
  CHECK(wrong.tensor == "l0.down.weight");
  CHECK(wrong.what.find("missing keys (1): [l0.up.weight]") != std::string::npos);
  for (const char* name :
       {"l0.up.weight", "l0.experts.weight", "l0.down.weight", "empty.weight", "l1.q.weight", "l1.kv_scale"})
    REQUIRE(!w.send(named(from, name)));
  REQUIRE(!w.learner.finish(w.stream()));
  CHECK(w.serves(1, from));
}

TEST_CASE("the slots that slots_needed says are enough, and one fewer is not") {
  std::mt19937 random(3);
  int tight = 0;
  for (int round = 0; round < 40; ++round) {
    test::model from = test::small_model();
    std::shuffle(from.begin(), from.end(), random);
    const fw::manifest tensors = test::manifest_of<block_wire>(from);
    fw::plan_options options{round % 2 == 0 ? 1u : 6000u, 256, 64, round % 3 == 0, false};
    options.slots = fw::slots_needed(tensors, fw::make_plan(tensors, options).value());
    const auto run = [&] {
      world w(from, options, commit_mode::staged, 1);
      const fw::error wrong = w.update(1, from);
      if (!wrong) CHECK(w.serves(0, from));
      return wrong;
    };
    CHECK(!run());
    if (--options.slots == 0) continue;
    CHECK(run().code == errc::out_of_order);
    ++tight;
  }
  CHECK(tight > 5);
}

TEST_CASE("what does not belong is refused by name and leaves the update as it was") {
  test::model from = test::small_model();
  fw::manifest tensors = test::manifest_of<block_wire>(from);
  world w(from, {1 << 20, 256, 2, false, false}, commit_mode::staged);
  REQUIRE(!w.learner.begin(1));
  REQUIRE(!w.send(from[1]));
  const auto refused = [&](const fw::error& wrong, errc code, std::string_view tensor) {
    INFO(wrong.message());
    CHECK(wrong.code == code);
    CHECK(wrong.tensor == tensor);
  };
  test::tensor other = from[2];
  refused(w.send(from[1]), errc::duplicate, "l0.gate.weight");
  other.name = "l9.up.weight";
  refused(w.send(other), errc::unexpected, "l9.up.weight");
  other.name = "l0.up.weight_scale_inv";
  refused(w.send(other), errc::unexpected, "l0.up.weight_scale_inv");
  other = from[2];
  std::swap(other.shape[0], other.shape[1]);
  refused(w.send(other), errc::wrong_shape, "l0.up.weight");
  test::tensor batch_of_one = from[2];  // lives on: the work on it is done at the end
  batch_of_one.shape = {1, 40, 64};
  CHECK(!w.send(batch_of_one));
  other = from[0];
  other.values.pop_back();
  refused(w.send(other), errc::wrong_size, "embed.weight");
  other = from[0];
  other.quantized = true;
  refused(w.send(other), errc::wrong_dtype, "embed.weight");
  other = from[5];
  other.quantized = false;
  refused(w.send(other), errc::wrong_dtype, "l0.down.weight");
  const fw::bf16 one_value[64] = {};
  refused(w.learner.put("l0.experts.weight", fw::dense(one_value, 1, 32, 2), w.stream()), errc::wrong_shape,
          "l0.experts.weight");
  for (const std::size_t i : {0u, 3u, 4u, 5u, 6u, 7u, 8u}) REQUIRE(!w.send(from[i]));
  REQUIRE(!w.learner.finish(w.stream()));
  CHECK(w.serves(0, from));
}

TEST_CASE("tied weights are sent once") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  REQUIRE(!w.tensors.tie("lm_head.weight", "embed.weight"));
  REQUIRE(!w.learner.begin(1));
  const fw::error wrong = w.learner.keep("lm_head.weight", nullptr, 0, w.stream());
  CHECK(wrong.code == errc::duplicate);
  CHECK(wrong.what == "is tied to embed.weight, which is sent once");
}

TEST_CASE("a manifest that promised another grid is kept to it") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  fw::sender<block_wire, fake::network::publisher> other(w.tensors, w.wire, w.link, 1e-4f);
  REQUIRE(!other.begin(1));
  REQUIRE(!other.keep("embed.weight", from[0].values.data(), from[0].values.size() * 2, w.stream()));
  const fw::error wrong = other.put("l0.gate.weight", test::view_of(from[1]), w.stream());
  CHECK(wrong.code == errc::grid_mismatch);
  CHECK(wrong.broken == condition::c2_grid);
}

TEST_CASE("forwarded pairs arrive as they are, strided views too") {
  using recipe = block_wire::recipe;
  const test::model from = test::small_model();
  for (const bool split : {false, true}) {
    world w(from, {4500, 256, 2, split, false}, commit_mode::staged, 1);
    const auto expected = test::expected_bytes<block_wire>(w.tensors, from);
    REQUIRE(!w.learner.begin(1));
    for (const test::tensor& one : from) {
      if (!one.quantized) {
        REQUIRE(!w.send(one));
        continue;
      }
      // Codes and scales with a spare column, as a framework's padded tensors have.
      const auto in = test::view_of(one);
      const auto& codes = expected.at(one.name);
      const auto& scales = expected.at(one.name.substr(0, one.name.size() - 6) + "weight_scale_inv");
      const fw::i64 rows = fw::scale_rows<recipe::block>(in.rows), cols = fw::scale_cols<recipe::block>(in.cols);
      static std::vector<std::vector<fw::u8>> padded_codes;
      static std::vector<std::vector<float>> padded_scales;
      auto& wide = padded_codes.emplace_back(static_cast<std::size_t>(in.batch * in.rows * (in.cols + 1)) + 1);
      auto& tall = padded_scales.emplace_back(static_cast<std::size_t>(in.batch * rows * (cols + 1)) + 1);
      for (fw::i64 r = 0; r < in.batch * in.rows; ++r)
        for (fw::i64 c = 0; c < in.cols; ++c)
          wide[static_cast<std::size_t>(r * (in.cols + 1) + c)] =
              static_cast<fw::u8>(codes[static_cast<std::size_t>(r * in.cols + c)]);
      for (fw::i64 r = 0; r < in.batch * rows; ++r)
        std::memcpy(&tall[static_cast<std::size_t>(r * (cols + 1))],
                    scales.data() + static_cast<std::size_t>(r * cols) * 4, static_cast<std::size_t>(cols) * 4);
      const fw::matrix_view<const fw::u8> code_view{
          wide.data(), in.rows, in.cols, in.cols + 1, in.batch, in.rows * (in.cols + 1), 1};
      const fw::matrix_view<const float> scale_view{tall.data(), rows, cols, cols + 1, in.batch, rows * (cols + 1), 1};
      REQUIRE(!w.learner.forward(one.name, {code_view, scale_view}, w.stream()));
    }
    REQUIRE(!w.learner.finish(w.stream()));
    CHECK(w.serves(0, from));
  }
  world w(from, small, commit_mode::staged, 1);
  REQUIRE(!w.learner.begin(1));
  REQUIRE(!w.send(from[0]));
  fw::u8 codes[40 * 64] = {};
  float scales[4] = {1, 1, 1, 1};
  CHECK(w.learner
            .forward("l0.gate.weight", {fw::dense<const fw::u8>(codes, 40, 64), fw::dense<const float>(scales, 2, 1)},
                     w.stream())
            .code == errc::wrong_shape);
  CHECK(w.learner
            .forward("l0.gate.weight", {fw::dense<const fw::u8>(codes, 40, 64), fw::dense<const float>(scales, 1, 2)},
                     w.stream())
            .code == errc::wrong_shape);
}

TEST_CASE("a weight with NaN or Inf is refused at the end, its first element named, and nobody commits") {
  for (const bool split : {false, true}) {
    const test::model good = test::small_model();
    world w(good, {4500, 256, 2, split, false}, commit_mode::staged);
    REQUIRE(!w.update(1, good));
    test::model bad = test::small_model(2);
    bad[4].values[2 * 130 * 32 + 129 * 32 + 5].bits = 0x7F80;  // the last matrix of the experts
    bad[4].values[2 * 130 * 32 + 129 * 32 + 9].bits = 0x7FC0;
    const fw::error wrong = w.update(2, bad);
    CHECK(wrong.code == errc::nonfinite);
    CHECK(wrong.broken == condition::c9_scale_sanity);
    CHECK(wrong.tensor == "l0.experts.weight");
    CHECK(wrong.what == "holds NaN or Inf, first at element " + std::to_string(2 * 130 * 32 + 129 * 32 + 5));
    for (std::size_t side = 0; side < 2; ++side) {
      CHECK(w.sides[side]->receiver.serving() == 1);
      CHECK(w.sides[side]->receiver.failure() == wrong);
      CHECK(w.serves(side, good));
    }
    REQUIRE(!w.update(3, test::small_model(3)));
    CHECK(w.sides[1]->receiver.serving() == 3);
  }
}

TEST_CASE("missing items are named, and all engines hear of it") {
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    const test::model from = test::small_model();
    world w(from, small, mode);
    REQUIRE(!w.update(1, from));
    test::model less = test::small_model(2);
    less.erase(less.begin() + 5);
    less.pop_back();
    less.pop_back();
    const fw::error wrong = w.update(2, less);
    CHECK(wrong.code == errc::missing);
    CHECK(wrong.broken == condition::c3_complete_pairs);
    CHECK(wrong.tensor == "l0.down.weight");
    CHECK(wrong.what == "missing keys (3): [l0.down.weight, l1.q.weight, l1.kv_scale]");
    for (const auto& side : w.sides) {
      CHECK(side->receiver.failure() == wrong);
      CHECK(side->receiver.serving() == (mode == commit_mode::staged ? 1u : 0u));
    }
    REQUIRE(!w.update(3, from));
    CHECK(w.sides[0]->receiver.serving() == 3);
  }
}

TEST_CASE("versions rise, and one update ends before the next begins") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  CHECK(w.learner.begin(0).code == errc::stale_version);
  CHECK(w.send(from[0]).code == errc::out_of_order);
  CHECK(w.learner.finish(w.stream()).code == errc::out_of_order);
  REQUIRE(!w.update(5, from));
  CHECK(w.learner.begin(5).broken == condition::c8_commit);
  CHECK(w.learner.begin(4).code == errc::stale_version);
  REQUIRE(!w.learner.begin(6));
  CHECK(w.learner.begin(7).code == errc::out_of_order);
  w.learner.abort(fw::make_error(errc::aborted, "", "enough"));
  CHECK(!w.learner.updating());
  CHECK(w.learner.begin(6).code == errc::stale_version);
  CHECK(w.learner.committed() == 5);
}

TEST_CASE("a sender that goes out of scope aborts its update") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  {
    fw::sender<block_wire, fake::network::publisher> brief(w.tensors, w.wire, w.link);
    REQUIRE(!brief.begin(1));
  }
  w.drain();
  CHECK(w.sides[0]->events.back() == fw::engine_event::aborted);
  CHECK(w.sides[0]->receiver.failure().code == errc::aborted);
}

TEST_CASE("the engine with the lowest rank is the one that all raise") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged, 4);
  w.sides[3]->store.fail_finalize = w.sides[1]->store.fail_finalize = true;
  const fw::error wrong = w.update(1, from);
  CHECK(wrong.code == errc::unsupported);
  CHECK(wrong.rank == 1);
  for (const std::size_t side : {0u, 2u}) CHECK(w.sides[side]->receiver.failure() == wrong);
  for (const auto& side : w.sides) CHECK(side->receiver.serving() == 0);
}
