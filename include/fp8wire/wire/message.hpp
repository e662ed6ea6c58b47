// SPDX-License-Identifier: Apache-2.0
/// What travels on the control channel: frames, the handshake, the vote. Little-endian, fixed sizes, no alignment.
///
/// Data buffers are pure data. Everything said about them is a message, so that a GPU buffer never needs a header.
#ifndef FP8WIRE_WIRE_MESSAGE_HPP
#define FP8WIRE_WIRE_MESSAGE_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN

inline constexpr u32 protocol_version = 1;

/// Learner to engines unless said otherwise. Numbers are part of the protocol.
enum class message_kind : u16 {
  hello = 1,      // text: JSON {protocol, manifest, plan_hash, capacity, ...}
  accept = 2,     // engine: text, JSON of its own hello
  refuse = 3,     // engine: text, JSON list of errors, all of them
  begin = 4,      // u64 weight_version
  data = 5,       // frame
  release = 6,    // engine: u32 buffer; this reader is done with the buffer's slot
  finish = 7,     // u64 weight_version, u64 sums, one each entry; i64 statuses, one each item
  vote = 8,       // engine: u64 weight_version, empty text for yes, else JSON error
  commit = 9,     // u64 weight_version
  committed = 10, // engine: u64 weight_version, empty text, else JSON error
  abort = 11,     // u64 weight_version, JSON error
  bye = 12        // nothing more will come
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
