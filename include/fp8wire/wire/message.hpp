// SPDX-License-Identifier: Apache-2.0
/// What travels on the control channel: frames, the handshake, the vote.
///
/// Data buffers are pure data. Everything said about them is a message, so that a GPU buffer never needs a header. The
/// bytes of frame and release are here, those of the other payloads in message_codec.hpp, all in docs/wire.md.
#ifndef FP8WIRE_WIRE_MESSAGE_HPP
#define FP8WIRE_WIRE_MESSAGE_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/detail/little_endian.hpp>

FP8WIRE_ABI_BEGIN

inline constexpr u32 protocol_version = 1;

/// Learner to engines unless said otherwise. Numbers are part of the protocol.
enum class message_kind : u16 {
  hello = 1,       // text: the learner's offer, JSON (io/hello_json.hpp)
  accept = 2,      // engine: text, its answer: what it can take, maybe less than the offer
  refuse = 3,      // engine: every reason at once, a list of errors
  begin = 4,       // weight_version
  data = 5,        // frame
  release = 6,     // engine: buffer; this reader is done with the buffer's slot
  finish = 7,      // weight_version, one checksum each piece of the plan, one status each item of the manifest
  vote = 8,        // engine: weight_version, error or none
  commit = 9,      // weight_version
  committed = 10,  // engine: weight_version, error or none
  abort = 11,      // weight_version, error
  bye = 12         // nothing more will come
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

/// The message that announces a published buffer: u32 protocol, u32 buffer, u64 plan hash, u64 version, u64 used bytes.
/// The payload's memory is used again.
inline void encode(const frame& announced, message& into) {
  into.kind = message_kind::data;
  into.payload.resize(32);
  std::byte* at = into.payload.data();
  detail::store_le(at, announced.protocol);
  detail::store_le(at + 4, announced.buffer);
  detail::store_le(at + 8, announced.plan_hash);
  detail::store_le(at + 16, announced.weight_version);
  detail::store_le(at + 24, announced.used_bytes);
}
inline message encode(const frame& announced) {
  message made;
  encode(announced, made);
  return made;
}

/// The frame of a data message; its numbers are still to be judged. Errors: unexpected for another kind, wrong_size.
inline result<frame> decode_frame(const message& received) {
  if (received.kind != message_kind::data)
    return make_error(errc::unexpected, "", "a frame was expected; the kind of the message",
                      static_cast<i64>(received.kind), static_cast<i64>(message_kind::data), condition::c7_transport);
  if (received.payload.size() != 32)
    return make_error(errc::wrong_size, "", "a frame has another size", static_cast<i64>(received.payload.size()), 32,
                      condition::c7_transport);
  const std::byte* at = received.payload.data();
  return frame{detail::load_le<u32>(at), detail::load_le<u32>(at + 4), detail::load_le<u64>(at + 8),
               detail::load_le<u64>(at + 16), detail::load_le<u64>(at + 24)};
}

/// The message by which a reader gives the slot of plan buffer `buffer` back.
inline message encode_release(u32 buffer) {
  message made{message_kind::release, std::vector<std::byte>(4)};
  detail::store_le(made.payload.data(), buffer);
  return made;
}

/// The buffer of a release message. Errors: unexpected for another kind, wrong_size.
inline result<u32> decode_release(const message& received) {
  if (received.kind != message_kind::release)
    return make_error(errc::unexpected, "", "a release was expected; the kind of the message",
                      static_cast<i64>(received.kind), static_cast<i64>(message_kind::release),
                      condition::c7_transport);
  if (received.payload.size() != 4)
    return make_error(errc::wrong_size, "", "a release has another size", static_cast<i64>(received.payload.size()), 4,
                      condition::c7_transport);
  return detail::load_le<u32>(received.payload.data());
}

FP8WIRE_ABI_END
#endif
