// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>

#include <fp8wire/wire/message_codec.hpp>

namespace fw = fp8wire;
using fw::errc;
using fw::message;
using fw::message_kind;

namespace {

const fw::error sample = [] {
  fw::error made = fw::make_error(errc::checksum, "a.weight", "differs", -2, 5, fw::condition::c7_transport);
  made.rank = 3;
  return made;
}();

std::string hex(const message& m) {
  std::string text;
  for (const std::byte one : m.payload) {
    text += "0123456789abcdef"[static_cast<int>(one) >> 4];
    text += "0123456789abcdef"[static_cast<int>(one) & 15];
  }
  return text;
}

// Every decoder on one message: whatever the bytes are, they give an answer.
void decode_all(const message& m) {
  fw::u64 version = 0;
  fw::error verdict;
  std::vector<fw::u64> sums;
  std::vector<fw::i64> statuses;
  std::vector<fw::error> reasons;
  static_cast<void>(fw::decode_version(m, version));
  if (!fw::decode_verdict(m, version, verdict)) static_cast<void>(verdict.message());
  static_cast<void>(fw::decode_finish(m, version, sums, statuses));
  if (!fw::decode_refusal(m, reasons))
    for (const fw::error& one : reasons) static_cast<void>(one.message());
}

}  // namespace

TEST_CASE("payloads have one byte form, the one of docs/wire.md") {
  message m;
  fw::encode_version(message_kind::commit, 0x0102030405060708u, m);
  CHECK(m.kind == message_kind::commit);
  CHECK(hex(m) == "0807060504030201");
  fw::encode_verdict(message_kind::vote, 2, {}, m);
  CHECK(hex(m) == "020000000000000000");
  fw::encode_verdict(message_kind::vote, 2, sample, m);
  CHECK(hex(m) ==
        "020000000000000001"
        "1400"
        "07"
        "01"
        "03000000"
        "feffffffffffffff"
        "0500000000000000"
        "08000000"
        "612e776569676874"
        "07000000"
        "64696666657273");
  const fw::u64 sums[] = {1, 0xFFFFFFFFFFFFFFFFu};
  const fw::i64 statuses[] = {-1};
  fw::encode_finish(9, sums, statuses, m);
  CHECK(hex(m) ==
        "0900000000000000"
        "02000000"
        "01000000"
        "0100000000000000"
        "ffffffffffffffff"
        "ffffffffffffffff");
  fw::encode_refusal({}, m);
  CHECK(hex(m) == "00000000");
  std::byte header[fw::message_header_bytes];
  fw::encode_text(message_kind::hello, "{}", m);
  fw::encode_header(m, header);
  CHECK(hex({message_kind::hello, {header, header + 16}}) ==
        "46503857"
        "0100"
        "0000"
        "0200000000000000");
}

TEST_CASE("what is written is read back") {
  message m;
  fw::u64 version = 0;
  fw::error verdict;
  fw::encode_verdict(message_kind::abort, 7, sample, m);
  REQUIRE(!fw::decode_verdict(m, version, verdict));
  CHECK(version == 7);
  CHECK(verdict == sample);
  const fw::error two[] = {sample, fw::make_error(errc::missing, "", "")};
  std::vector<fw::error> reasons;
  fw::encode_refusal(two, m);
  REQUIRE(!fw::decode_refusal(m, reasons));
  CHECK(reasons == std::vector<fw::error>(two, two + 2));
  message other;
  fw::u64 bytes = 0;
  std::byte header[fw::message_header_bytes];
  fw::encode_header(m, header);
  REQUIRE(!fw::decode_header(header, other, bytes));
  CHECK(other.kind == message_kind::refuse);
  CHECK(bytes == m.payload.size());
  header[6] = std::byte{1};
  CHECK(fw::decode_header(header, other, bytes).code == errc::protocol_mismatch);
  header[6] = std::byte{0};
  header[0] = std::byte{0};
  CHECK(fw::decode_header(header, other, bytes).code == errc::protocol_mismatch);
}

TEST_CASE("codes and conditions of a later version are still errors, and none is an error that says ok") {
  message m;
  fw::u64 version = 0;
  fw::error verdict;
  fw::encode_verdict(message_kind::vote, 1, sample, m);
  m.payload[9] = std::byte{200};
  m.payload[11] = std::byte{99};
  REQUIRE(!fw::decode_verdict(m, version, verdict));
  CHECK(verdict.code == errc::aborted);
  CHECK(verdict.broken == fw::condition::none);
  CHECK(verdict.what == "differs");
  m.payload[9] = std::byte{0};
  REQUIRE(!fw::decode_verdict(m, version, verdict));
  CHECK(verdict.code == errc::aborted);
}

TEST_CASE("every prefix, every longer form and random bytes get an answer, never a read past the end") {
  const fw::error two[] = {sample, sample};
  const fw::u64 sums[] = {1, 2, 3};
  const fw::i64 statuses[] = {-1, 4};
  message whole[4];
  fw::encode_version(message_kind::begin, 3, whole[0]);
  fw::encode_verdict(message_kind::vote, 3, sample, whole[1]);
  fw::encode_finish(3, sums, statuses, whole[2]);
  fw::encode_refusal(two, whole[3]);
  for (const message& one : whole) {
    for (std::size_t size = 0; size <= one.payload.size() + 1; ++size) {
      // A payload of exactly this size in memory of its own, so that a sanitizer sees one byte too many.
      message cut{one.kind, std::vector<std::byte>(
                                one.payload.begin(),
                                one.payload.begin() + static_cast<std::ptrdiff_t>(std::min(size, one.payload.size())))};
      if (size > one.payload.size()) cut.payload.push_back(std::byte{0});
      cut.payload.shrink_to_fit();
      decode_all(cut);
      if (size == one.payload.size()) continue;
      fw::u64 version = 0;
      fw::error verdict;
      std::vector<fw::u64> s;
      std::vector<fw::i64> t;
      std::vector<fw::error> r;
      if (&one == &whole[0]) CHECK(fw::decode_version(cut, version).code == errc::wrong_size);
      if (&one == &whole[1]) CHECK(fw::decode_verdict(cut, version, verdict).code == errc::wrong_size);
      if (&one == &whole[2]) CHECK(fw::decode_finish(cut, version, s, t).code == errc::wrong_size);
      if (&one == &whole[3]) CHECK(fw::decode_refusal(cut, r).code == errc::wrong_size);
    }
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    message m{message_kind::refuse, std::vector<std::byte>(random() % 80)};
    for (std::byte& one : m.payload) one = static_cast<std::byte>(random() % 4 == 0 ? random() & 255u : random() % 3);
    decode_all(m);
  }
  // Counts that promise more than there is allocate nothing of the kind.
  message greedy{message_kind::finish, std::vector<std::byte>(16, std::byte{0xFF})};
  decode_all(greedy);
}
