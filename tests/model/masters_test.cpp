// SPDX-License-Identifier: Apache-2.0
// Masters that start exactly, and what a learner loses whose masters come from dequantized FP8.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include <fp8wire/model/masters.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

using namespace fp8wire;

namespace {

template <class Value> std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<bf16> checkpoint(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<bf16> made(count);
  for (bf16& weight : made) weight = to_bf16(normal(random));
  return made;
}

}  // namespace

TEST_CASE("masters and host copies are the checkpoint's values of this rank's range, for every dtype and address") {
  const std::vector<bf16> halves = checkpoint(100, 1);
  std::vector<fp16> other;
  std::vector<float> full;
  for (const bf16 one : halves) {
    other.push_back(to_fp16(to_float(one)));
    full.push_back(to_float(one) * 1.0000001f);
  }
  std::vector<std::byte> odd(1 + 200);  // BF16 at an odd address, as a mapped file may hold it
  std::memcpy(odd.data() + 1, halves.data(), 200);
  std::vector<float> a(30), a_host(30), a_second(30), b(100), c(1), d;
  exact_start start({{"a", 100, {50, 30}, a, {a_host, a_second}, 113},
                     {"b", 100, {0, 100}, b, {}, 113},
                     {"c", 100, {99, 1}, c, {}, 113},
                     {"d", 100, {40, 0}, d, {}, 113}});
  CHECK_FALSE(start.copy("c", dtype::f32, bytes_of(full)));
  CHECK_FALSE(start.copy("a", dtype::bf16, std::span(odd).subspan(1)));
  CHECK_FALSE(start.finished());
  CHECK(start.finish().message() == "masters: missing keys (2): b, d");
  CHECK_FALSE(start.copy("b", dtype::f16, bytes_of(other)));
  CHECK_FALSE(start.copy("d", dtype::bf16, bytes_of(halves)));
  CHECK_FALSE(start.finish());
  CHECK(start.finished());
  for (std::size_t i = 0; i < 30; ++i) CHECK(bits_of(a[i]) == bits_of(to_float(halves[50 + i])));
  CHECK(a_host == a);
  CHECK(a_second == a);
  for (std::size_t i = 0; i < 100; ++i) CHECK(bits_of(b[i]) == bits_of(to_float(other[i])));
  CHECK(bits_of(c[0]) == bits_of(full[99]));

  const start_report& cost = start.report();
  CHECK(cost.parameters == 4);
  CHECK(cost.masters == 131);
  CHECK(cost.copies == 2);
  CHECK(cost.unquantized_bytes == 200 + 200 + 400 + 200);
  CHECK(cost.fp8_bytes == 4 * 113);
  CHECK(cost.saved_bytes() == 1000 - 452);
  CHECK(cost.master_bytes == 4 * (30 * 3 + 100 + 1));
  // c: 4 + 113 + 400; a: 364 + 226 + 200; b: 764 + 339 + 200; d: 764 + 452 + 200.
  CHECK(cost.peak_bytes == 764 + 452 + 200);
}

TEST_CASE("what does not fit is refused with both numbers, and writes nothing") {
  const std::vector<bf16> weights = checkpoint(100, 2);
  std::vector<float> masters(30, -1.0f), host(29, -1.0f);
  const auto start_with = [&](master_shard shard, dtype type, std::size_t bytes) {
    shard.name = "w";
    exact_start start({shard});
    const error wrong = start.copy("w", type, bytes_of(weights).first(bytes));
    CHECK(start.report() == start_report{});
    return wrong;
  };
  const auto says = [](const error& wrong, errc code, const char* text) {
    CAPTURE(wrong.message());
    CHECK(wrong.code == code);
    CHECK(wrong.message().find(text) != std::string::npos);
  };
  says(start_with({"", 100, {0, 30}, masters, {}, 0}, dtype::bf16, 198), errc::wrong_size, "got 198, expected 200");
  says(start_with({"", 99, {0, 30}, masters, {}, 0}, dtype::bf16, 200), errc::wrong_size, "got 200, expected 198");
  says(start_with({"", 100, {0, 31}, masters, {}, 0}, dtype::bf16, 200), errc::wrong_size, "got 30, expected 31");
  says(start_with({"", 100, {0, 30}, masters, {host}, 0}, dtype::bf16, 200), errc::wrong_size, "got 29, expected 30");
  says(start_with({"", 100, {71, 30}, masters, {}, 0}, dtype::bf16, 200), errc::wrong_offset, "got 71, expected 70");
  says(start_with({"", 100, {-1, 30}, masters, {}, 0}, dtype::bf16, 200), errc::wrong_offset, "got -1");
  says(start_with({"", 200, {0, 30}, masters, {}, 0}, dtype::f8_e4m3, 200), errc::wrong_dtype, "F8_E4M3");
  says(start_with({"", i64{1} << 62, {0, 30}, masters, {}, 0}, dtype::f32, 200), errc::overflow, "63 bits");
  for (const float one : masters) CHECK(one == -1.0f);

  exact_start start({{"w", 100, {0, 30}, masters, {}, 0}});
  CHECK(start.copy("v", dtype::bf16, bytes_of(weights)).code == errc::unexpected);
  CHECK_FALSE(start.copy("w", dtype::bf16, bytes_of(weights)));
  CHECK(start.copy("w", dtype::bf16, bytes_of(weights)).code == errc::duplicate);
  CHECK_FALSE(start.finish());
  CHECK(start.copy("w", dtype::bf16, bytes_of(weights)).code == errc::out_of_order);
  CHECK(exact_start({}).finish().code == errc::bad_argument);
}

TEST_CASE("masters from dequantized FP8 have lost the checkpoint, by more than thousands of steps move them") {
  using recipe = presets::te_block::recipe;
  constexpr matrix_extents of{1, 256, 256};
  constexpr std::size_t count = 256 * 256;
  const std::vector<bf16> weights = checkpoint(count, 3);
  std::vector<float> exact(count), lossy(count);
  exact_start start({{"w", 256 * 256, {0, 256 * 256}, exact, {}, 0}});
  REQUIRE_FALSE(start.copy("w", dtype::bf16, bytes_of(weights)));
  REQUIRE_FALSE(start.finish());

  std::vector<u8> codes(count);
  std::vector<float> scales(4), operands(4);
  std::vector<u32> amaxes(4);
  const persistent_parameter<recipe> parameter{of, codes.data(), scales.data(), amaxes.data(), operands.data()};
  const flat_range everything{0, 256 * 256};
  alone with;
  refresh<recipe>(parameter, {&everything, 1}, exact.data(), nullptr, with);
  for (std::size_t i = 0; i < count; ++i)
    lossy[i] = reference::decode<recipe>(codes[i], scales[i / 256 / 128 * 2 + i % 256 / 128]);

  // One step of at most 1e-6 relative, the largest that the learner makes.
  i64 different = 0, beyond_a_thousand_steps = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double gap = static_cast<double>(lossy[i]) - static_cast<double>(exact[i]);
    const double step = 1e-6 * static_cast<double>(exact[i]);
    different += bits_of(lossy[i]) != bits_of(exact[i]) ? 1 : 0;
    beyond_a_thousand_steps += gap * gap > 1e6 * step * step ? 1 : 0;
  }
  CHECK(different > static_cast<i64>(count) * 95 / 100);
  CHECK(beyond_a_thousand_steps > static_cast<i64>(count) * 90 / 100);

  // The codes do not show it: a lossy start looks right to every engine and trains other weights.
  std::vector<u8> again = codes;
  const persistent_parameter<recipe> second{of, again.data(), scales.data(), amaxes.data(), operands.data()};
  const refresh_counts counts = refresh<recipe>(second, {&everything, 1}, lossy.data(), exact.data(), with);
  CHECK(counts.codes_changed == 0);
  CHECK(counts.masters_changed == different);
}
