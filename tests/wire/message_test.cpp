// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fp8wire/wire/message.hpp>

namespace fw = fp8wire;

namespace {
std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> made;
  for (const int value : values) made.push_back(static_cast<std::byte>(value));
  return made;
}
}  // namespace

TEST_CASE("a frame has one byte form") {
  const fw::frame one{0x04030201u, 0x08070605u, 0x100F0E0D0C0B0A09u, 0x1817161514131211u, 0x201F1E1D1C1B1A19u};
  const fw::message sent = fw::encode(one);
  std::vector<std::byte> expected;
  for (int i = 1; i <= 32; ++i) expected.push_back(static_cast<std::byte>(i));
  CHECK(sent.kind == fw::message_kind::data);
  CHECK(sent.payload == expected);
  const auto back = fw::decode_frame(sent);
  REQUIRE(back);
  CHECK(*back == one);
}

TEST_CASE("a release has one byte form") {
  const fw::message sent = fw::encode_release(0x80FF0102u);
  CHECK(sent.kind == fw::message_kind::release);
  CHECK(sent.payload == bytes({0x02, 0x01, 0xFF, 0x80}));
  const auto back = fw::decode_release(sent);
  REQUIRE(back);
  CHECK(*back == 0x80FF0102u);
}

TEST_CASE("another kind or size is refused with both numbers") {
  fw::message wrong = fw::encode(fw::frame{});
  wrong.payload.resize(31);
  CHECK(fw::decode_frame(wrong).error().code == fw::errc::wrong_size);
  CHECK(fw::decode_frame(wrong).error().got == 31);
  wrong.payload.resize(32);
  wrong.kind = fw::message_kind::begin;
  CHECK(fw::decode_frame(wrong).error().code == fw::errc::unexpected);
  CHECK(fw::decode_release(wrong).error().code == fw::errc::unexpected);
  CHECK(fw::decode_release({fw::message_kind::release, bytes({1, 2, 3})}).error().got == 3);
}
