// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <fp8wire/core/checksum.hpp>
#include <random>
#include <vector>

namespace fw = fp8wire;
using fw::u64;

namespace {

// docs/wire.md word for word, one byte at a time where it can be.
u64 mix(u64 v) {
  v = (v ^ v >> 33) * 0xFF51AFD7ED558CCDu;
  v = (v ^ v >> 33) * 0xC4CEB9FE1A85EC53u;
  return v ^ v >> 33;
}
u64 oracle(const std::vector<unsigned char>& bytes) {
  u64 total = mix(bytes.size());
  for (std::size_t piece = 0; piece * 65536 < bytes.size(); ++piece) {
    const std::size_t size = std::min<std::size_t>(65536, bytes.size() - piece * 65536);
    u64 lane[8];
    for (u64 k = 0; k < 8; ++k) lane[k] = mix(8 * piece + k + 1);
    for (std::size_t at = 0; at < size; at += 8) {
      u64 word = 0;
      for (std::size_t i = 0; i < 8 && at + i < size; ++i) word |= u64{bytes[piece * 65536 + at + i]} << (8 * i);
      const u64 product = (lane[at / 8 % 8] ^ word) * 0x9E3779B185EBCA87u;
      lane[at / 8 % 8] = product << 29 | product >> 35;
    }
    for (std::size_t at = (size + 7) / 8 * 8; at % 64 != 0; at += 8) {
      const u64 product = lane[at / 8 % 8] * 0x9E3779B185EBCA87u;
      lane[at / 8 % 8] = product << 29 | product >> 35;
    }
    u64 d = size;
    for (u64 k = 0; k < 8; ++k) d = mix(d ^ lane[k]) + k;
    total += d;
  }
  return total;
}

std::vector<unsigned char> random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> made(size);
  for (auto& one : made) one = static_cast<unsigned char>(random());
  return made;
}

}  // namespace

TEST_CASE("the checksum is the one of docs/wire.md, at every length around a stripe and a piece") {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size < 200; ++size) sizes.push_back(size);
  for (const std::size_t around : {65536u, 131072u, 262144u, 300000u})
    for (std::size_t size = around - 66; size < around + 67; size += 11) sizes.push_back(size);
  for (const std::size_t size : sizes) {
    CAPTURE(size);
    const auto bytes = random_bytes(size, static_cast<unsigned>(size));
    const u64 expected = oracle(bytes);
    CHECK(fw::checksum(bytes.data(), size) == expected);
    // Copies to any alignment, by either way of storing, write the bytes and nothing else.
    for (const std::size_t shift : {0u, 1u, 16u}) {
      std::vector<unsigned char> room(size + 64, 0xA5);
      unsigned char* to = room.data() + shift;
      REQUIRE(fw::copy_and_checksum(to, bytes.data(), size) == expected);
      CHECK((size == 0 || std::memcmp(to, bytes.data(), size) == 0));
      for (std::size_t i = 0; i < room.size(); ++i)
        if (i < shift || i >= shift + size) REQUIRE(room[i] == 0xA5);
    }
  }
}

TEST_CASE("pinned values") {
  CHECK(fw::checksum(nullptr, 0) == 0);
  CHECK(fw::checksum("abc", 3) == 12875457731677046895u);
  std::vector<unsigned char> counting(100000);
  for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<unsigned char>(i % 251);
  CHECK(fw::checksum(counting.data(), counting.size()) == 11138714878669966601u);
}

TEST_CASE("any flipped bit, two exchanged words, pieces or stripes, and a byte moved over the end change it") {
  auto bytes = random_bytes(200000, 5);
  const u64 whole = fw::checksum(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < bytes.size() * 8; bit += 1009) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    CHECK(fw::checksum(bytes.data(), bytes.size()) != whole);
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  const auto exchanged = [&](std::size_t a, std::size_t b, std::size_t size) {
    auto copy = bytes;
    std::memcpy(copy.data() + a, bytes.data() + b, size);
    std::memcpy(copy.data() + b, bytes.data() + a, size);
    return fw::checksum(copy.data(), copy.size());
  };
  CHECK(exchanged(0, 8, 8) != whole);
  CHECK(exchanged(0, 64, 64) != whole);
  CHECK(exchanged(0, 65536, 65536) != whole);
  CHECK(exchanged(7, 8, 1) != whole);
  CHECK(fw::checksum(bytes.data(), bytes.size() - 1) != whole);
  bytes.push_back(0);
  CHECK(fw::checksum(bytes.data(), bytes.size()) != whole);
  const std::vector<unsigned char> zeros(300);
  for (std::size_t size = 0; size < 300; ++size)
    CHECK(fw::checksum(zeros.data(), size) != fw::checksum(zeros.data(), size + 1));
}
