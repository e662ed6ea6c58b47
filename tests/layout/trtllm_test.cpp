// SPDX-License-Identifier: Apache-2.0
#include "packed.hpp"

#include <doctest/doctest.h>

#include <fp8wire/layout/trtllm.hpp>

using namespace fp8wire;

namespace {

// index[new] = old, as the library's layout of one column stores row numbers.
template <class... Maps> std::vector<long> order_of(i64 rows) {
  std::vector<u16> numbers(static_cast<std::size_t>(rows)), out(numbers.size());
  std::iota(numbers.begin(), numbers.end(), u16{0});
  using stored = mapped_rows<row_major, Maps...>;
  relayout(laid_out<row_major, u16>{numbers.data(), 1, rows, 1}, laid_out<stored, u16>{out.data(), 1, rows, 1});
  return {out.begin(), out.end()};
}

// [K/128, M, 128] from rows.
oracle::bytes block_major(const oracle::bytes& in, long rows, long cols) {
  return oracle::permute(in, {rows, cols / 128, 128}, {1, 0, 2});
}

}  // namespace

TEST_CASE("vector 06: the shuffle of blocks of 32 rows") {
  const std::vector<long> expected = {0,  4,  8,  12, 16, 20, 24, 28, 1,  5,  9,  13, 17, 21, 25, 29,
                                      2,  6,  10, 14, 18, 22, 26, 30, 3,  7,  11, 15, 19, 23, 27, 31,
                                      32, 36, 40, 44, 48, 52, 56, 60, 33, 37, 41, 45, 49, 53, 57, 61,
                                      34, 38, 42, 46, 50, 54, 58, 62, 35, 39, 43, 47, 51, 55, 59, 63};
  CHECK(order_of<shuffle_rows<32>>(64) == expected);
  CHECK(oracle::shuffle(64, 128) == expected);
}

TEST_CASE("vector 07: the shuffle of blocks of 16 rows") {
  const std::vector<long> expected = {0,  2,  4,  6,  8,  10, 12, 14, 1,  3,  5,  7,  9,  11, 13, 15,
                                      16, 18, 20, 22, 24, 26, 28, 30, 17, 19, 21, 23, 25, 27, 29, 31};
  CHECK(order_of<shuffle_rows<16>>(32) == expected);
  CHECK(oracle::shuffle(32, 64) == expected);
}

TEST_CASE("vector 08: gate and up rows alternate") {
  CHECK(order_of<interleave_halves>(8) == std::vector<long>{0, 4, 1, 5, 2, 6, 3, 7});
}

TEST_CASE("vector 09: interleaved first, then shuffled") {
  const std::vector<long> expected = {0,  2,  4,  6,  8,  10, 12, 14, 32, 34, 36, 38, 40, 42, 44, 46,
                                      1,  3,  5,  7,  9,  11, 13, 15, 33, 35, 37, 39, 41, 43, 45, 47,
                                      16, 18, 20, 22, 24, 26, 28, 30, 48, 50, 52, 54, 56, 58, 60, 62,
                                      17, 19, 21, 23, 25, 27, 29, 31, 49, 51, 53, 55, 57, 59, 61, 63};
  CHECK(order_of<interleave_halves, shuffle_rows<32>>(64) == expected);
  CHECK(oracle::after(oracle::interleave(64), oracle::shuffle(64, 128)) == expected);
}

TEST_CASE("vector 10: w13 scales are interleaved and shuffled by row, then swizzled") {
  oracle::bytes in;
  for (int m = 0; m < 128; ++m)
    for (int k = 0; k < 4; ++k) in.push_back(static_cast<u8>(4 * m + k));
  using layout = mapped_rows<swizzle_128x4, interleave_halves, shuffle_rows<32>>;
  const oracle::bytes out = packed<layout>(in, 128, 4);
  CHECK(oracle::bytes(out.begin(), out.begin() + 32) ==
        oracle::bytes{0x00, 0x01, 0x02, 0x03, 0x40, 0x41, 0x42, 0x43, 0x80, 0x81, 0x82, 0x83, 0xc0, 0xc1, 0xc2, 0xc3,
                      0x08, 0x09, 0x0a, 0x0b, 0x48, 0x49, 0x4a, 0x4b, 0x88, 0x89, 0x8a, 0x8b, 0xc8, 0xc9, 0xca, 0xcb});
  CHECK(oracle::sha256(out).substr(0, 16) == "205c70209262d25f");
  CHECK(layout::mapping{1, 128, 4}.offset({0, 64, 0}) == 128);
  CHECK(layout::mapping{1, 128, 4}.offset({0, 1, 2}) == 258);
}

TEST_CASE("vector 12: shuffle of tile 64, then BlockMajorK") {
  struct row {
    i64 m, k, byte;
  };
  const trtllm_fp8_block_codes::mapping m{1, 16, 256};
  for (const row& at : {row{0, 0, 0}, row{1, 0, 1024}, row{2, 0, 128}, row{15, 255, 4095}, row{1, 130, 3074}})
    CHECK(m.offset({0, at.m, at.k}) == at.byte);
}

TEST_CASE("vector 26: I = 192 is padded to 256 half by half; the up half starts at row 256") {
  using padded = mapped_rows<row_major, pad_halves<128>>;
  const padded::mapping m{1, 384, 1};
  CHECK(m.size() == 512);
  CHECK(m.offset({0, 0, 0}) == 0);
  CHECK(m.offset({0, 191, 0}) == 191);
  CHECK(m.offset({0, 192, 0}) == 256);
  CHECK(m.offset({0, 383, 0}) == 447);
  CHECK(m.index(192).batch == -1);
  CHECK(m.index(448).batch == -1);
}

TEST_CASE("row by row as FlashInfer writes it: swap, interleave, shuffle, store, for whole experts") {
  for (const i64 rows : {32, 64, 128, 256}) {
    for (const i64 cols : {128, 256}) {
      CAPTURE(rows);
      CAPTURE(cols);
      const oracle::bytes in = oracle::noise(static_cast<std::size_t>(3 * rows * cols));
      const auto per_expert = [&](const std::vector<long>& index, auto store) {
        oracle::bytes all;
        for (i64 e = 0; e < 3; ++e) {
          const oracle::bytes expert(in.begin() + e * rows * cols, in.begin() + (e + 1) * rows * cols);
          const oracle::bytes stored = store(oracle::take_rows(expert, cols, index));
          all.insert(all.end(), stored.begin(), stored.end());
        }
        return all;
      };
      const auto as_is = [](const oracle::bytes& x) { return x; };
      const auto swizzled = [&](const oracle::bytes& x) { return oracle::swizzle_128x4(x, rows, cols); };
      const auto blocked = [&](const oracle::bytes& x) { return block_major(x, rows, cols); };
      using oracle::after;
      const auto swap = oracle::swap(rows), mix = oracle::interleave(rows);
      const auto by32 = oracle::shuffle(rows, 128), by16 = oracle::shuffle(rows, 64);
      CHECK(packed<trtllm_mxfp8_codes>(in, rows, cols, 3) == per_expert(by32, as_is));
      CHECK(packed<trtllm_mxfp8_scales>(in, rows, cols, 3) == per_expert(by32, swizzled));
      CHECK(packed<trtllm_mxfp8_w13_codes>(in, rows, cols, 3) == per_expert(after(after(swap, mix), by32), as_is));
      CHECK(packed<trtllm_mxfp8_w13_scales>(in, rows, cols, 3) == per_expert(after(after(swap, mix), by32), swizzled));
      CHECK(packed<trtllm_fp8_block_codes>(in, rows, cols, 3) == per_expert(by16, blocked));
      CHECK(packed<trtllm_fp8_block_w13_codes>(in, rows, cols, 3) == per_expert(after(swap, by16), blocked));
      CHECK(packed<up_first>(in, rows, cols, 3) == per_expert(swap, as_is));
    }
  }
}

// As SGLang's loops read, for one expert: stack((gate, up), 1), then rows to where the table of FlashInfer sends them,
// then scales into tiles of 128 x 4 by the offsets that FlashInfer's kernel computes.
TEST_CASE("SGLang's experts: interleaved and shuffled as loaded, scales swizzled afterwards") {
  for (const long half : {64, 128, 192}) {
    CAPTURE(half);
    constexpr long experts = 2, cols = 96, grid = 6;
    const long rows = 2 * half;
    const oracle::bytes codes = oracle::noise(static_cast<std::size_t>(experts * rows * cols), 3),
                        scales = oracle::noise(static_cast<std::size_t>(experts * rows * grid), 4);
    const long tiles = oracle::ceil_to(rows, 128) * oracle::ceil_to(grid, 4);
    oracle::bytes stored_codes(codes.size()), stored_scales(static_cast<std::size_t>(experts * tiles), 0);
    for (long e = 0; e < experts; ++e) {
      for (long row = 0; row < rows; ++row) {
        const long mixed = row < half ? 2 * row : 2 * (row - half) + 1;
        static constexpr long sends_to[4] = {0, 8, 16, 24};
        const long inside = mixed % 32, stored = mixed - inside + sends_to[inside % 4] + inside / 4;
        for (long col = 0; col < cols; ++col)
          stored_codes[static_cast<std::size_t>((e * rows + stored) * cols + col)] =
              codes[static_cast<std::size_t>((e * rows + row) * cols + col)];
        for (long col = 0; col < grid; ++col) {
          const long tile = stored / 128 * ((grid + 3) / 4) + col / 4;
          const long at = tile * 512 + stored % 32 * 16 + stored % 128 / 32 * 4 + col % 4;
          stored_scales[static_cast<std::size_t>(e * tiles + at)] =
              scales[static_cast<std::size_t>((e * rows + row) * grid + col)];
        }
      }
    }
    CHECK(packed<sglang_w13_codes>(codes, rows, cols, experts) == stored_codes);
    CHECK(packed<sglang_w13_scales>(scales, rows, grid, experts) == stored_scales);
    // What swaps first, as vLLM does, is another layout.
    CHECK(packed<trtllm_mxfp8_w13_codes>(codes, rows, cols, experts) != stored_codes);
  }
}

TEST_CASE("padded halves keep their rows together and get the inner layout's padding") {
  const i64 half = 20, cols = 3;  // I = 20, padded to 32: 64 rows
  const oracle::bytes in = oracle::noise(2 * half * cols);
  const oracle::bytes gate(in.begin(), in.begin() + half * cols), up(in.begin() + half * cols, in.end());
  oracle::bytes expected = oracle::pad(up, half, cols, 32, cols);
  const oracle::bytes second = oracle::pad(gate, half, cols, 32, cols);
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(packed<mapped_rows<row_major, pad_halves<32>, swap_halves>>(in, 2 * half, cols) == expected);
  CHECK(packed<mapped_rows<row_major, pad_rows<64>>>(in, 2 * half, cols) == oracle::pad(in, 2 * half, cols, 64, cols));
  const auto index = oracle::after(oracle::interleave(64), oracle::shuffle(64, 128));
  CHECK(packed<mapped_rows<swizzle_128x4, pad_halves<32>, swap_halves, interleave_halves, shuffle_rows<32>>>(
            in, 2 * half, cols) == oracle::swizzle_128x4(oracle::take_rows(expected, cols, index), 64, cols));
}

TEST_CASE("shapes that a map cannot take are refused with both numbers") {
  const shape_check odd = up_first::accepts(1, 7, 4);
  CHECK(!odd.ok());
  CHECK(odd.got == 7);
  const shape_check block = trtllm_mxfp8_codes::accepts(1, 40, 4);
  CHECK(!block.ok());
  CHECK(block.got == 40);
  CHECK(block.expected == 64);
  CHECK(trtllm_fp8_block_codes::accepts(1, 48, 4).ok());
  CHECK(!trtllm_fp8_block_codes::accepts(1, 40, 4).ok());
}
