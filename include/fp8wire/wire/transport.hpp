// SPDX-License-Identifier: Apache-2.0
/// What a transport is: slots for the learner, leased bytes for each engine, and an ordered control channel.
///
/// Every data call is ordered on a stream, so that copies may land late: a CPU transport has an empty stream type, CUDA
/// IPC and NCCL have theirs. No call blocks longer than the transport's timeout; a peer that dies is named.
#ifndef FP8WIRE_WIRE_TRANSPORT_HPP
#define FP8WIRE_WIRE_TRANSPORT_HPP
#include <concepts>
#include <span>

#include <fp8wire/wire/message.hpp>

FP8WIRE_ABI_BEGIN

/// A message and the engine that sent it.
struct engine_message {
  int engine = -1;
  message content;
};

/// The learner's half.
/// acquire: memory of the slot of plan buffer `buffer` (slot = buffer % slots), once every engine released what was
/// published there before. publish: the work on `stream` that wrote it comes first, then all engines may read it.
/// broadcast: one message to all engines, in order with published frames. receive: the next message of any engine.
template <class T>
concept publisher = requires(T& t, u32 buffer, const frame& f, const message& m, typename T::stream s) {
  { t.engines() } -> std::same_as<int>;
  { t.acquire(buffer, s) } -> std::same_as<result<std::span<std::byte>>>;
  { t.publish(f, s) } -> std::same_as<error>;
  { t.broadcast(m) } -> std::same_as<error>;
  { t.receive() } -> std::same_as<result<engine_message>>;
};

/// An engine's half.
/// receive: the next message, frames among them (kind data). bytes: what a frame announced, valid until its release.
/// release: after the work on `stream` that read it. reply: one message to the learner.
template <class T>
concept subscriber = requires(T& t, const frame& f, const message& m, typename T::stream s) {
  { t.receive() } -> std::same_as<result<message>>;
  { t.bytes(f) } -> std::same_as<result<std::span<const std::byte>>>;
  { t.release(f, s) } -> std::same_as<error>;
  { t.reply(m) } -> std::same_as<error>;
};

FP8WIRE_ABI_END
#endif
