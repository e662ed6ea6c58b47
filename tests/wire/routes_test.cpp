// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <map>

#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/wire/routes.hpp>

namespace fw = fp8wire;
using fw::condition;
using fw::dtype;
using fw::errc;
using fw::i64;

namespace {

// An engine with one rank's half of q, k and v side by side, gate and up shuffled, a transposed FP32 scale and a norm.
struct engine {
  std::vector<std::byte> qkv = std::vector<std::byte>(64 * 32), w13 = std::vector<std::byte>(64 * 16),
                         scale = std::vector<std::byte>(4 * 6 * 5), norm = std::vector<std::byte>(2 * 7);
  std::map<std::string, std::vector<std::byte>> staged;

  std::vector<fw::tensor_spec> sources() const {
    return {{"q", dtype::f8_e4m3, {32, 32}},    {"k", dtype::f8_e4m3, {16, 32}},  {"v", dtype::f8_e4m3, {16, 32}},
            {"gate", dtype::f8_e4m3, {32, 16}}, {"up", dtype::f8_e4m3, {32, 16}}, {"scale", dtype::f32, {6, 5}},
            {"norm", dtype::bf16, {7}}};
  }
  std::vector<fw::route_target> targets() {
    return {{{"qkv", dtype::f8_e4m3, {64, 32}}, qkv.data()},
            {{"w13", dtype::f8_e4m3, {64, 16}}, w13.data()},
            {{"scale_t", dtype::f32, {5, 6}}, scale.data()},
            {{"norm", dtype::bf16, {7}}, norm.data()}};
  }
  // What it does with a tensor, written without any route.
  fw::error load(const fw::tensor_spec& spec, std::span<const std::byte> bytes) {
    const auto copy = [&](std::vector<std::byte>& to, std::size_t at) {
      std::memcpy(to.data() + at, bytes.data(), bytes.size());
    };
    if (spec.name == "q") copy(qkv, 0);
    if (spec.name == "k") copy(qkv, 32 * 32);
    if (spec.name == "v") copy(qkv, 48 * 32);
    if (spec.name == "norm") copy(norm, 0);
    if (spec.name == "scale")
      for (std::size_t r = 0; r < 6; ++r)
        for (std::size_t c = 0; c < 5; ++c)
          std::memcpy(scale.data() + 4 * (c * 6 + r), bytes.data() + 4 * (r * 5 + c), 4);
    if (spec.name == "gate" || spec.name == "up") {
      staged[spec.name].assign(bytes.begin(), bytes.end());
      if (staged.size() == 2) {
        std::vector<std::byte> both = staged["gate"];
        both.insert(both.end(), staged["up"].begin(), staged["up"].end());
        fw::relayout(fw::laid_out<fw::row_major, const std::byte>{both.data(), 1, 64, 16},
                     fw::laid_out<fw::mapped_rows<fw::row_major, fw::swap_halves, fw::shuffle_rows<16>>, std::byte>{
                         w13.data(), 1, 64, 16});
        staged.clear();
      }
    }
    return {};
  }
};

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::vector<std::byte> made(size);
  unsigned state = seed * 2654435761u + 1;
  for (std::byte& one : made) one = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
  return made;
}

}  // namespace

TEST_CASE("routes that were learned move every tensor as the loader does") {
  engine probed, loaded;
  fw::routes known;
  REQUIRE(!known.learn(probed.sources(), probed.targets(),
                       [&](const fw::tensor_spec& spec, auto bytes) { return probed.load(spec, bytes); }));
  CHECK(known.known());
  CHECK(known.of("q").size() == 1);
  CHECK(known.of("q")[0] == fw::route_slice{0, 0, 0, 1, 1024, 0, 0, 1});
  CHECK(known.of("scale").size() == 1);  // five runs of six elements each, one rectangle
  CHECK(known.of("scale")[0] == fw::route_slice{2, 0, 0, 5, 6, 6, 1, 5});
  CHECK(known.of("nobody").empty());
  for (unsigned version = 1; version <= 3; ++version) {
    REQUIRE(!known.still_valid(probed.sources(), probed.targets()));
    unsigned seed = 100 * version;
    for (const fw::tensor_spec& one : probed.sources()) {
      const auto bytes = noise(static_cast<std::size_t>(fw::byte_count(one.dtype, one.shape)), ++seed);
      CHECK(!known.replay(one.name, bytes));
      CHECK(!loaded.load(one, bytes));
    }
    CHECK(probed.qkv == loaded.qkv);
    CHECK(probed.w13 == loaded.w13);
    CHECK(probed.scale == loaded.scale);
    CHECK(probed.norm == loaded.norm);
  }
}

TEST_CASE("routes are dropped with a message when shape, dtype or destination changes") {
  engine here;
  struct row {
    std::function<void(std::vector<fw::tensor_spec>&, std::vector<fw::route_target>&)> change;
    errc code;
    condition broken;
    std::string tensor;
  };
  std::vector<std::byte> elsewhere(64 * 32);
  const row rows[] = {
      {[](auto& s, auto&) { s[0].shape = {16, 64}; }, errc::wrong_shape, condition::c5_geometry, "q"},
      {[](auto& s, auto&) { s[0].shape = {32, 32, 1}; }, errc::wrong_shape, condition::c5_geometry, "q"},
      {[](auto& s, auto&) { s[5].dtype = dtype::int32; }, errc::wrong_dtype, condition::c3_complete_pairs, "scale"},
      {[](auto& s, auto&) { s[1].name = "k2"; }, errc::unexpected, condition::c3_complete_pairs, "k2"},
      {[](auto& s, auto&) { s.pop_back(); }, errc::unexpected, condition::c3_complete_pairs, "routes"},
      {[&](auto&, auto& t) { t[0].data = elsewhere.data(); }, errc::format_mismatch, condition::c6_derived_state,
       "qkv"},
      {[](auto&, auto& t) { t[1].spec.dtype = dtype::uint8; }, errc::wrong_dtype, condition::c3_complete_pairs, "w13"},
      {[](auto&, auto& t) { t[1].spec.name = "w31"; }, errc::unexpected, condition::c6_derived_state, "w31"},
      {[](auto&, auto& t) { t.pop_back(); }, errc::unexpected, condition::c6_derived_state, "routes"},
  };
  for (const row& one : rows) {
    fw::routes known;
    REQUIRE(!known.learn(here.sources(), here.targets(),
                         [&](const fw::tensor_spec& spec, auto bytes) { return here.load(spec, bytes); }));
    auto sources = here.sources();
    auto targets = here.targets();
    one.change(sources, targets);
    const fw::error wrong = known.still_valid(sources, targets);
    CAPTURE(wrong.message());
    CHECK(wrong.code == one.code);
    CHECK(wrong.broken == one.broken);
    CHECK(wrong.tensor == one.tensor);
    CHECK(wrong.what.find("dropped") != std::string::npos);
    CHECK(!known.known());
    CHECK(known.replay("q", noise(1024, 1)).code == errc::not_serving);
    CHECK(known.still_valid(here.sources(), here.targets()).code == errc::not_serving);
  }
}

TEST_CASE("a loader that leaves gaps, overwrites, or converts is found while learning") {
  const std::vector<fw::tensor_spec> sources = {{"a", dtype::uint8, {300}}, {"b", dtype::uint8, {300}}};
  std::vector<std::byte> memory(600);
  const std::vector<fw::route_target> targets = {{{"ab", dtype::uint8, {600}}, memory.data()}};
  const auto learn = [&](std::size_t a, std::size_t b, std::size_t size, int shift) {
    fw::routes known;
    const fw::error wrong = known.learn(sources, targets, [&](const fw::tensor_spec& spec, auto bytes) {
      for (std::size_t i = 0; i < size; ++i)
        memory[(spec.name == "a" ? a : b) + i] = static_cast<std::byte>(static_cast<int>(bytes[i]) >> shift);
      return fw::error{};
    });
    CHECK(known.known() == !wrong);
    return wrong;
  };
  CHECK(!learn(0, 300, 300, 0));
  CHECK(!learn(300, 0, 300, 0));
  fw::error wrong = learn(0, 299, 300, 0);  // the last element of a is overwritten
  CHECK(wrong.message() == "C5 a: goes nowhere; element: got 299, expected 300");
  wrong = learn(0, 300, 299, 0);
  CHECK(wrong.broken == condition::c5_geometry);
  CHECK(wrong.code == errc::missing);
  wrong = learn(0, 300, 300, 1);  // values change: elements are not where they seem
  CHECK(wrong.code != errc::ok);

  fw::routes known;
  std::vector<std::byte> wide(4 * 600);
  const std::vector<fw::route_target> words = {{{"ab", dtype::f32, {600}}, wide.data()}};
  wrong = known.learn(sources, words, [&](const fw::tensor_spec& spec, auto bytes) {
    for (std::size_t i = 0; i < 300; ++i) {
      const float value = static_cast<float>(static_cast<int>(bytes[i]));
      std::memcpy(wide.data() + 4 * (i + (spec.name == "a" ? 0 : 300)), &value, 4);
    }
    return fw::error{};
  });
  CHECK(wrong.code == errc::wrong_dtype);
  CHECK(wrong.tensor == "ab");
}

TEST_CASE("recorded routes are proven before they are used") {
  const std::vector<fw::tensor_spec> sources = {{"w", dtype::f8_e4m3, {4, 8}}};
  std::vector<std::byte> memory(32);
  const std::vector<fw::route_target> targets = {{{"left", dtype::f8_e4m3, {4, 4}}, memory.data()},
                                                 {{"right", dtype::f8_e4m3, {4, 4}}, memory.data() + 16}};
  const fw::route_slice left{0, 0, 0, 4, 4, 4, 8, 1}, right{1, 0, 4, 4, 4, 4, 8, 1};
  fw::routes known;
  REQUIRE(!known.begin(sources, targets));
  CHECK(!known.record("w", left));
  CHECK(!known.record("w", right));
  REQUIRE(!known.close());
  const auto bytes = noise(32, 3);
  REQUIRE(!known.replay("w", bytes));
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(std::memcmp(memory.data() + 4 * r, bytes.data() + 8 * r, 4) == 0);
    CHECK(std::memcmp(memory.data() + 16 + 4 * r, bytes.data() + 8 * r + 4, 4) == 0);
  }
  CHECK(known.replay("w", std::span(bytes).first(31)).code == errc::wrong_size);
  CHECK(known.replay("x", bytes).code == errc::unexpected);

  REQUIRE(!known.begin(sources, targets));
  CHECK(!known.record("w", left));
  CHECK(known.close().message() == "C5 w: goes nowhere; element: got 4, expected 32");
  CHECK(!known.record("w", right));
  CHECK(!known.record("w", right));
  CHECK(known.close().message() == "C5 right: is written twice, the second time by w; element: got 0, expected 16");
  for (const fw::route_slice& one :
       {fw::route_slice{0, 1, 0, 4, 4, 4, 8, 1}, fw::route_slice{0, 0, 5, 4, 4, 4, 8, 1},
        fw::route_slice{0, 0, 0, 4, 4, i64{1} << 62, 8, 1}, fw::route_slice{0, 0, 31, 1, 32, 0, 0, -2},
        fw::route_slice{2, 0, 0, 1, 1, 0, 0, 1}})
    CHECK(known.record("w", one).broken == condition::c5_geometry);
  CHECK(known.record("x", left).code == errc::unexpected);
  CHECK(known.begin(std::vector<fw::tensor_spec>{{"a", dtype::uint8, {1}}, {"a", dtype::uint8, {1}}}, targets).code ==
        errc::duplicate);
  CHECK(known.begin(std::vector<fw::tensor_spec>{{"a", dtype::f4, {2}}}, targets).code == errc::wrong_dtype);
  CHECK(known.begin(std::vector<fw::tensor_spec>{{"a", dtype::uint8, {-1}}}, targets).code == errc::wrong_shape);
}
