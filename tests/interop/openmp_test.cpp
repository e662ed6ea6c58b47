// SPDX-License-Identifier: Apache-2.0
// Work shared among OpenMP threads: each piece once, the bytes of the serial run, and no heap on the way.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fp8wire/interop/openmp.hpp>
#include <fp8wire/quant/delta.hpp>
#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <new>
#include <random>
#include <vector>

using namespace fp8wire;

namespace {
long allocations = 0;  // written by the thread that runs the tests, read by it
}

// Not inlined: g++ would take the pair of malloc and delete for a mistake.
FP8WIRE_NOINLINE void* operator new(std::size_t size) {
  __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
  if (void* const room = std::malloc(size > 0 ? size : 1)) return room;
  std::abort();
}
FP8WIRE_NOINLINE void operator delete(void* room) noexcept { std::free(room); }
FP8WIRE_NOINLINE void operator delete(void* room, std::size_t) noexcept { std::free(room); }

static_assert(executor<openmp>);

TEST_CASE("every piece runs once") {
  for (const int threads : {0, 1, 2, 5}) {
    std::vector<int> runs(1000);
    openmp{threads}.run(1000,
                        [&](i64 i) { __atomic_fetch_add(&runs[static_cast<std::size_t>(i)], 1, __ATOMIC_RELAXED); });
    for (const int count : runs) CHECK(count == 1);
  }
  CHECK(openmp{3}.concurrency() == 3);
  CHECK(openmp{}.concurrency() >= 1);
}

TEST_CASE("threads change no byte, and nothing allocates") {
  using recipe = presets::te_block::recipe;
  constexpr i64 batch = 3, rows = 1300, cols = 1152;
  std::vector<bf16> in(batch * rows * cols);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  for (bf16& element : in) element = to_bf16(normal(random));
  in[5 * cols + 7] = {0x7FC0};
  std::vector<u8> expected(in.size()), codes(in.size()), bits(in.size() / 8);
  std::vector<float> expected_scales(batch * 11 * 9), scales(expected_scales.size());
  std::vector<bf16> back(in.size()), expected_back(in.size());
  const auto view = dense<const bf16>(in.data(), rows, cols, batch);
  const pair_view<recipe> first = {dense(expected.data(), rows, cols, batch),
                                   dense(expected_scales.data(), 11, 9, batch)};
  const pair_view<recipe> second = {dense(codes.data(), rows, cols, batch), dense(scales.data(), 11, 9, batch)};
  CHECK(quantize<recipe, bf16>(view, first).first_nonfinite == 5 * cols + 7);
  dequantize<recipe, bf16>(first, dense(expected_back.data(), rows, cols, batch));
  for (const int threads : {1, 2, 4}) {
    openmp team{threads};
    team.run(threads, [](i64) {});  // the runtime starts its threads on first use
    codes.assign(codes.size(), 0);
    const long before = allocations;
    const status answer = quantize<recipe, bf16>(view, second, 0, team);
    dequantize<recipe, bf16>(second, dense(back.data(), rows, cols, batch), team);
    quantize_delta<recipe, bf16>(view, dense<const u8>(expected.data(), rows, cols, batch), second,
                                 dense(bits.data(), rows, cols / 8, batch), 0, team);
    CHECK(allocations == before);
    CHECK(answer.first_nonfinite == 5 * cols + 7);
    CHECK(codes == expected);
    CHECK(scales == expected_scales);
    CHECK(back == expected_back);
    CHECK(bits == std::vector<u8>(bits.size()));
  }
}

TEST_CASE("thousands of small tensors, not one allocation") {
  using recipe = presets::te_mxfp8::recipe;
  std::vector<bf16> in(64 * 64, to_bf16(0.5f));
  std::vector<u8> codes(in.size());
  std::vector<e8m0> scales(in.size() / 32);
  const long before = allocations;
  for (int i = 0; i < 3000; ++i)
    quantize<recipe, bf16>(dense<const bf16>(in.data(), 64, 64),
                           {dense(codes.data(), 64, 64), dense(scales.data(), 64, 2)});
  CHECK(allocations == before);
  CHECK(codes[0] == 0x78);  // 256: 0.5 / 2^-9
}
