// SPDX-License-Identifier: Apache-2.0
/// What a transport is: slots for the learner, leased bytes for each engine, and an ordered control channel.
///
/// Every data call is ordered on a stream, so that copies may land late: a CPU transport has an empty stream type, CUDA
/// IPC and NCCL have theirs. No call blocks longer than the transport's timeout; a peer that dies is named. A message
/// is received into memory that the caller keeps, so that an update allocates nothing once the first one has passed.
#ifndef FP8WIRE_WIRE_TRANSPORT_HPP
#define FP8WIRE_WIRE_TRANSPORT_HPP
#include <concepts>
#include <span>

#include <fp8wire/wire/message.hpp>

FP8WIRE_ABI_BEGIN

/// The stream of whoever works on the calling thread: a call is done when it returns.
struct host_stream {};

/// The learner's half.
/// acquire: memory of the slot of plan buffer `buffer` (slot = buffer % slots), at least the plan's slot_bytes, once
/// every engine released what was published there before; a slot that was acquired and never published may be acquired
/// again.
/// publish: the work on `stream` that wrote it comes first, then all engines may read it. Buffers are published in the
/// order of the plan. broadcast: one message to all engines, in order with published frames.
/// receive: the next message of any engine and which one sent it; `into.payload` keeps its capacity.
template <class Transport>
concept publisher = requires(Transport& t, u32 buffer, const frame& f, const message& m, message& into, int& engine,
                             typename Transport::stream s) {
  { t.engines() } -> std::same_as<int>;
  { t.acquire(buffer, s) } -> std::same_as<result<std::span<std::byte>>>;
  { t.publish(f, s) } -> std::same_as<error>;
  { t.broadcast(m) } -> std::same_as<error>;
  { t.receive(into, engine) } -> std::same_as<error>;
};

/// An engine's half.
/// receive: the next message, frames among them (kind data). bytes: what a frame announced, valid until its release;
/// work that `stream` is given after the call sees them. release: after the work on `stream` that read them; every
/// frame is released once, used or not. reply: one message to the learner.
template <class Transport>
concept subscriber =
    requires(Transport& t, const frame& f, const message& m, message& into, typename Transport::stream s) {
      { t.receive(into) } -> std::same_as<error>;
      { t.bytes(f, s) } -> std::same_as<result<std::span<const std::byte>>>;
      { t.release(f, s) } -> std::same_as<error>;
      { t.reply(m) } -> std::same_as<error>;
    };

FP8WIRE_ABI_END
#endif
