// SPDX-License-Identifier: Apache-2.0
/// An engine between transport and receiver: answers every message, gives every lease back, notices a lost learner.
#ifndef FP8WIRE_WIRE_ENGINE_HPP
#define FP8WIRE_WIRE_ENGINE_HPP
#include <fp8wire/wire/message_codec.hpp>
#include <fp8wire/wire/receiver.hpp>
#include <fp8wire/wire/transport.hpp>

FP8WIRE_ABI_BEGIN

/// What a step of an engine saw.
enum class engine_event : u8 {
  none,  // a frame, a vote: nothing that its server needs to know
  idle,  // the transport's timeout passed without a message
  begun,  // an update began
  committed,  // receiver.serving() is a new version from here on
  aborted,  // the update was given up; receiver.failure() says why
  offered,  // the learner offers another manifest: join() with offer(), then receive with a new receiver
  closed,  // the learner said bye
  lost  // the transport failed; an open update was given up
};

/// step() in a loop, until closed or lost. Expects: transport and receiver outlive the engine.
/// Threads: one at a time.
template <subscriber Subscriber, class Receiver> class engine {
 public:
  using stream = typename Subscriber::stream;
  static_assert(std::same_as<stream, typename Receiver::stream>, "transport and sink work on one type of stream");

  engine(Subscriber& transport, Receiver& target) : transport_(transport), receiver_(target) {}

  /// The hello of event offered.
  const message& offer() const noexcept { return incoming_; }

  /// Handles one message. The error is why the transport failed (event lost), or what this message was refused with:
  /// such an error has been told to the learner or will be with the vote, and the next step may follow.
  error step(stream s, engine_event& event) {
    event = engine_event::none;
    if (error wrong = transport_.receive(incoming_)) {
      if (wrong.code != errc::timeout) return lose(std::move(wrong), event);
      event = engine_event::idle;
      receiver_.refuse(wrong);
      return {};
    }
    switch (incoming_.kind) {
      case message_kind::hello:
        if (receiver_.updating()) return stray();
        event = engine_event::offered;
        return {};
      case message_kind::begin: return begin(event);
      case message_kind::data: return take(s, event);
      case message_kind::finish: return vote(s, event);
      case message_kind::commit: return commit(event);
      case message_kind::abort: return abort(event);
      case message_kind::bye:
        receiver_.abort(make_error(errc::aborted, "weight_version", "the learner left", condition::c8_commit));
        event = engine_event::closed;
        return {};
      default: return stray();
    }
  }

 private:
  error stray() {
    error wrong = make_error(errc::unexpected, "", "a message that an engine is not sent here; its kind",
                             static_cast<i64>(incoming_.kind), 0, condition::c7_transport);
    receiver_.refuse(wrong);
    return wrong;
  }

  error lose(error why, engine_event& event) {
    receiver_.abort(why);
    event = engine_event::lost;
    return why;
  }

  error reply(message_kind kind, u64 version, const error& verdict, engine_event& event) {
    encode_verdict(kind, version, verdict, outgoing_);
    if (error wrong = transport_.reply(outgoing_)) return lose(std::move(wrong), event);
    return verdict;
  }

  error begin(engine_event& event) {
    u64 version = 0;
    event = engine_event::begun;
    error wrong = decode_version(incoming_, version);
    // Zero is no version: the receiver opens an update that is refused, and the vote says why.
    return wrong ? static_cast<void>(receiver_.begin(0)), receiver_.refuse(wrong), wrong : receiver_.begin(version);
  }

  error take(stream s, engine_event& event) {
    const auto announced = decode_frame(incoming_);
    if (!announced) return receiver_.refuse(announced.error()), announced.error();
    error refused;
    auto bytes = transport_.bytes(*announced, s);
    if (bytes) refused = receiver_.accept(*announced, *bytes, s);
    else receiver_.refuse(refused = bytes.error());
    if (error wrong = transport_.release(*announced, s)) {
      if (wrong.code == errc::peer_lost) return lose(std::move(wrong), event);
      receiver_.refuse(wrong);
      if (!refused) refused = std::move(wrong);
    }
    return refused;
  }

  error vote(stream s, engine_event& event) {
    u64 version = 0;
    error wrong = decode_finish(incoming_, version, sums_, statuses_);
    if (!wrong) wrong = receiver_.finish(version, sums_, statuses_, s);
    else receiver_.refuse(wrong), version = receiver_.begun();
    return reply(message_kind::vote, version, wrong, event);
  }

  error commit(engine_event& event) {
    u64 version = 0;
    error wrong = decode_version(incoming_, version);
    if (!wrong) wrong = receiver_.commit(version);
    else receiver_.refuse(wrong), version = receiver_.begun();
    if (!wrong) event = engine_event::committed;
    return reply(message_kind::committed, version, wrong, event);
  }

  error abort(engine_event& event) {
    u64 version = 0;
    error why;
    if (error wrong = decode_verdict(incoming_, version, why)) why = std::move(wrong);
    receiver_.abort(why);
    event = engine_event::aborted;
    return {};
  }

  Subscriber& transport_;
  Receiver& receiver_;
  message incoming_, outgoing_;
  std::vector<u64> sums_;
  std::vector<i64> statuses_;
};

FP8WIRE_ABI_END
#endif
