// SPDX-License-Identifier: Apache-2.0
// Oracles of the layout tests, written apart from the library: array views and permutations as the engines' Python
// writes them, and SHA-256 for the recorded digests.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace oracle {

using bytes = std::vector<std::uint8_t>;

inline long ceil_to(long n, long m) { return (n + m - 1) / m * m; }

// x[rows, cols] inside zeros[padded_rows, padded_cols].
template <class T>
std::vector<T> pad(const std::vector<T>& x, long rows, long cols, long padded_rows, long padded_cols, T with = T{}) {
  std::vector<T> out(static_cast<std::size_t>(padded_rows * padded_cols), with);
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < cols; ++c)
      out[static_cast<std::size_t>(r * padded_cols + c)] = x[static_cast<std::size_t>(r * cols + c)];
  return out;
}

// x.view(shape).permute(order).contiguous().
template <class T> std::vector<T> permute(const std::vector<T>& x, std::vector<long> shape, std::vector<int> order) {
  std::vector<long> stride(shape.size(), 1);
  for (std::size_t i = shape.size() - 1; i > 0; --i) stride[i - 1] = stride[i] * shape[i];
  std::vector<T> out;
  out.reserve(x.size());
  std::vector<long> at(shape.size(), 0);
  for (std::size_t n = 0; n < x.size(); ++n) {
    long from = 0;
    for (std::size_t d = 0; d < order.size(); ++d) from += at[d] * stride[static_cast<std::size_t>(order[d])];
    out.push_back(x[static_cast<std::size_t>(from)]);
    for (std::size_t d = order.size(); d-- > 0;) {
      if (++at[d] < shape[static_cast<std::size_t>(order[d])]) break;
      at[d] = 0;
    }
  }
  return out;
}

// x[index, :].
template <class T> std::vector<T> take_rows(const std::vector<T>& x, long cols, const std::vector<long>& index) {
  std::vector<T> out;
  for (const long row : index) out.insert(out.end(), x.begin() + row * cols, x.begin() + (row + 1) * cols);
  return out;
}

// Pad to whole tiles, view [M/128, 4, 32, K/4, 4], permute (0, 3, 2, 1, 4).
inline bytes swizzle_128x4(const bytes& x, long rows, long cols) {
  const long r = ceil_to(rows, 128), c = ceil_to(cols, 4);
  if (r * c == 0) return {};
  return permute(pad(x, rows, cols, r, c), {r / 128, 4, 32, c / 4, 4}, {0, 3, 2, 1, 4});
}
// View [M/8, 8, K/4, 4], permute (0, 2, 1, 3).
inline bytes swizzle_8x4(const bytes& x, long rows, long cols) {
  const long r = ceil_to(rows, 8), c = ceil_to(cols, 4);
  if (r * c == 0) return {};
  return permute(pad(x, rows, cols, r, c), {r / 8, 8, c / 4, 4}, {0, 2, 1, 3});
}

// index[new] = old of the row shuffle, from the tables that FlashInfer keeps: new place of old row i inside a block.
inline std::vector<long> shuffle(long rows, long tile) {
  static constexpr std::array<int, 16> place16 = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  static constexpr std::array<int, 32> place32 = {0, 8,  16, 24, 1, 9,  17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
                                                  4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31};
  const long block = tile % 128 == 0 ? 32 : 16;
  std::vector<long> index(static_cast<std::size_t>(rows));
  for (long old = 0; old < rows; ++old) {
    const auto inside = static_cast<std::size_t>(old % block);
    const int place = block == 32 ? place32[inside] : place16[inside % 16];
    index[static_cast<std::size_t>(old - old % block + place)] = old;
  }
  return index;
}
// stack((first half, second half), 1).reshape(rows).
inline std::vector<long> interleave(long rows) {
  std::vector<long> index;
  for (long i = 0; i < rows / 2; ++i) index.insert(index.end(), {i, rows / 2 + i});
  return index;
}
inline std::vector<long> swap(long rows) {
  std::vector<long> index(static_cast<std::size_t>(rows));
  std::iota(index.begin(), index.begin() + rows / 2, rows / 2);
  std::iota(index.begin() + rows / 2, index.end(), 0);
  return index;
}
// first[then[.]]: rows by `first`, and those by `then`.
inline std::vector<long> after(const std::vector<long>& first, const std::vector<long>& then) {
  std::vector<long> index;
  for (const long i : then) index.push_back(first[static_cast<std::size_t>(i)]);
  return index;
}

// Deterministic bytes without a pattern of small period.
inline bytes noise(std::size_t count, std::uint32_t state = 1) {
  bytes out(count);
  for (auto& byte : out) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return out;
}

// SHA-256 (FIPS 180-4), hexadecimal.
inline std::string sha256(const bytes& message) {
  const auto rotate = [](std::uint32_t x, int n) { return x >> n | x << (32 - n); };
  std::array<std::uint32_t, 64> k{};
  std::array<std::uint32_t, 8> h{};
  // The first 32 fraction bits of the square and cube roots of the first primes.
  const auto fraction = [](long double root) {
    return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
  };
  std::size_t found = 0;
  for (std::uint64_t n = 2; found < 64; ++n) {
    bool prime = true;
    for (std::uint64_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    if (found < 8) h[found] = fraction(std::sqrt(static_cast<long double>(n)));
    k[found++] = fraction(std::cbrt(static_cast<long double>(n)));
  }
  bytes data = message;
  data.push_back(0x80);
  while (data.size() % 64 != 56) data.push_back(0);
  for (int byte = 7; byte >= 0; --byte) data.push_back(static_cast<std::uint8_t>(message.size() * 8 >> (8 * byte)));
  for (std::size_t block = 0; block < data.size(); block += 64) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | data[block + 4 * i + j];
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto v = h;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
      const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const std::uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
      const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) h[i] += v[i];
  }
  std::string text;
  for (const std::uint32_t word : h) {
    std::array<char, 9> hex{};
    std::snprintf(hex.data(), hex.size(), "%08x", word);
    text += hex.data();
  }
  return text;
}

}  // namespace oracle
