// SPDX-License-Identifier: Apache-2.0
/// What travels on the control channel: frames, the handshake, the vote.
///
/// Data buffers are pure data. Everything said about them is a message, so that a GPU buffer never needs a header. The
/// bytes of each payload are in message_codec.hpp and docs/wire.md.
#ifndef FP8WIRE_WIRE_MESSAGE_HPP
#define FP8WIRE_WIRE_MESSAGE_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN

inline constexpr u32 protocol_version = 1;

/// Learner to engines unless said otherwise. Numbers are part of the protocol.
enum class message_kind : u16 {
  hello = 1,       // text: the learner's offer, JSON (io/hello_json.hpp)
  accept = 2,      // engine: text, its answer
  refuse = 3,      // engine: every reason at once, a list of errors
  begin = 4,       // weight_version
  data = 5,        // frame
  release = 6,     // engine: buffer; this reader is done with the buffer's slot
  finish = 7,      // weight_version, one checksum each piece of the plan, one status each item of the manifest
  vote = 8,        // engine: weight_version, error or none
  commit = 9,      // weight_version
  committed = 10,  // engine: weight_version, error or none
  abort = 11,      // weight_version, error
  bye = 12,        // nothing more will come
  counter = 13     // engine: text, an answer that asks for a smaller capacity or other encodings
};

/// A published buffer: its number in the plan, the version it belongs to, the bytes that are valid.
struct frame {
  u32 protocol = protocol_version, buffer = 0;
  u64 plan_hash = 0, weight_version = 0, used_bytes = 0;
  bool operator==(const frame&) const = default;
};

/// One message; `payload` as the kind says.
struct message {
  message_kind kind{};
  std::vector<std::byte> payload;
};

FP8WIRE_ABI_END
#endif
