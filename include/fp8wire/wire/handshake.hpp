// SPDX-License-Identifier: Apache-2.0
/// Two phases before the first byte: what each engine can take, then one manifest and one plan that all have accepted.
///
/// The words of hello and accept are a text that io/hello_json.hpp writes and reads; the handshake only carries it, so
/// `Text` is a type with static write(const hello&), write(const answer&), read_hello(text) and read_answer(text).
#ifndef FP8WIRE_WIRE_HANDSHAKE_HPP
#define FP8WIRE_WIRE_HANDSHAKE_HPP
#include <fp8wire/wire/compare.hpp>
#include <fp8wire/wire/message_codec.hpp>
#include <fp8wire/wire/plan.hpp>
#include <fp8wire/wire/sink.hpp>
#include <fp8wire/wire/transport.hpp>

FP8WIRE_ABI_BEGIN

/// The learner's offer. A proposal asks what engines can take; a final offer is the one that updates will follow.
struct hello {
  u32 protocol = protocol_version;
  bool final = false;
  manifest tensors;
  plan_options options;
  u64 plan_hash = 0;
  std::string device;  // UUID of the learner's GPU; empty on a CPU
};

/// An engine's answer to an offer that it does not refuse.
struct answer {
  u32 protocol = protocol_version;
  u64 plan_hash = 0;  // of the plan that it made of the offer by itself
  u64 capacity_bytes = 0;
  u32 slots = 0;
  std::string device;
  bool wants_other = false;  // to a proposal only: `wanted` is what it would rather be offered
  manifest wanted;
};

/// What both ends have agreed on.
struct agreement {
  manifest tensors;
  plan wire;
  std::vector<std::string> devices;  // the learner's view: one an engine; an engine's: the learner's
};

/// What an engine can take.
struct engine_terms {
  u64 capacity_bytes = u64{1} << 62;  // of a buffer, at most
  u32 slots = 1024;                   // at most
  u64 budget_bytes = u64{1} << 62;    // for slots and, staged, the second copy
  commit_mode mode = commit_mode::staged;
  std::vector<u64> also_accepted_grids;
  bool negotiate = false;  // other encodings are asked for, not refused
  std::string device;
};

namespace detail {

/// The first reason speaks for all; the others are counted in its words.
inline error first_of(const std::vector<error>& reasons) {
  if (reasons.empty()) return {};
  error first = reasons.front();
  if (reasons.size() > 1) {
    if (first.what.empty()) first.what = name_of(first.code);
    first.what += " (and " + std::to_string(reasons.size() - 1) + " more)";
  }
  return first;
}

/// Whether the only differences are those that another choice of encodings would end.
inline bool negotiable(const std::vector<error>& reasons) {
  for (const error& one : reasons)
    if (one.code != errc::grid_mismatch && one.code != errc::format_mismatch && one.broken != condition::c1_layer_set &&
        one.broken != condition::c3_complete_pairs)
      return false;
  return !reasons.empty();
}

}  // namespace detail

/// An engine's half: answers proposals until a final offer is accepted. `expected`: what it would like to receive.
/// Every reason for a refusal is sent, and returned in `reasons`. `offered`: a hello that was received already, where
/// the learner offers anew between updates (engine_event::offered); the old agreement and its version stand until the
/// caller takes the new one.
/// Errors: the first reason; the learner's, if it gave up; the transport's.
template <class Text, subscriber Subscriber>
error join(Subscriber& transport, const manifest& expected, const engine_terms& terms, agreement& made,
           std::vector<error>& reasons, const message* offered = nullptr) {
  message received, reply;
  const auto refuse = [&] {
    encode_refusal(reasons, reply);
    if (error wrong = transport.reply(reply)) return wrong;
    return detail::first_of(reasons);
  };
  for (;;) {
    reasons.clear();
    if (offered != nullptr) received = *std::exchange(offered, nullptr);
    else if (error wrong = transport.receive(received)) return wrong;
    if (received.kind == message_kind::abort) {
      u64 version = 0;
      error why;
      if (error wrong = decode_verdict(received, version, why)) return wrong;
      return why;
    }
    if (received.kind == message_kind::bye)
      return make_error(errc::aborted, "hello", "the learner left", condition::c8_commit);
    error wrong = detail::expect_kind(received, message_kind::hello);
    result<hello> offer = wrong ? result<hello>(wrong) : Text::read_hello(decode_text(received));
    if (!offer) {
      reasons.push_back(offer.error());
      return refuse();
    }
    if (offer->protocol != protocol_version) {
      reasons.push_back(make_error(errc::protocol_mismatch, "hello", "speaks another protocol", offer->protocol,
                                   protocol_version, condition::c7_transport));
      return refuse();
    }
    reasons = differences(offer->tensors, expected, terms.also_accepted_grids);
    answer mine{protocol_version, 0, offer->options.capacity_bytes, offer->options.slots, terms.device, false, {}};
    if (terms.capacity_bytes < mine.capacity_bytes) mine.capacity_bytes = terms.capacity_bytes;
    if (terms.slots < mine.slots) mine.slots = terms.slots;
    if (terms.negotiate && !offer->final && detail::negotiable(reasons)) {
      mine.wants_other = true;
      mine.wanted = expected;
      reasons.clear();
    }
    plan wire;
    if (error bad = planner().make(offer->tensors, offer->options, wire)) reasons.push_back(std::move(bad));
    else if (offer->final) {
      if (mine.capacity_bytes != offer->options.capacity_bytes || mine.slots != offer->options.slots)
        reasons.push_back(make_error(errc::capacity, "hello",
                                     "the final offer is over this engine's terms; its capacity",
                                     static_cast<i64>(offer->options.capacity_bytes),
                                     static_cast<i64>(mine.capacity_bytes), condition::c7_transport));
      if (wire.hash() != offer->plan_hash)
        reasons.push_back(make_error(errc::plan_mismatch, "hello", "the two ends plan differently; the learner's hash",
                                     static_cast<i64>(offer->plan_hash), static_cast<i64>(wire.hash()),
                                     condition::c7_transport));
      const u64 beside = terms.mode == commit_mode::staged ? offer->tensors.bytes() : 0;
      if (error over = within_budget(wire, beside, terms.budget_bytes)) reasons.push_back(std::move(over));
    }
    if (!reasons.empty()) return refuse();
    mine.plan_hash = wire.hash();
    encode_text(message_kind::accept, Text::write(mine), reply);
    if (error lost = transport.reply(reply)) return lost;
    if (!offer->final) continue;
    made.tensors = std::move(offer->tensors);
    made.wire = std::move(wire);
    made.devices.assign(1, offer->device);
    return {};
  }
}

namespace detail {

/// One answer of every engine to one offer.
template <class Text, publisher Publisher>
error ask(Publisher& transport, const hello& offer, std::vector<answer>& answers, std::vector<error>& reasons) {
  message sent, received;
  encode_text(message_kind::hello, Text::write(offer), sent);
  if (error wrong = transport.broadcast(sent)) return wrong;
  const std::size_t engines = static_cast<std::size_t>(transport.engines());
  answers.assign(engines, {});
  std::vector<std::vector<error>> refusals(engines);
  std::vector<bool> heard(engines);
  for (std::size_t left = engines; left > 0;) {
    int engine = -1;
    if (error wrong = transport.receive(received, engine)) return wrong;
    if (engine < 0 || static_cast<std::size_t>(engine) >= engines || heard[static_cast<std::size_t>(engine)]) continue;
    const std::size_t at = static_cast<std::size_t>(engine);
    heard[at] = true;
    --left;
    error wrong;
    if (received.kind == message_kind::refuse) {
      wrong = decode_refusal(received, refusals[at]);
      if (!wrong && refusals[at].empty())
        wrong = make_error(errc::aborted, "hello", "refused without a reason", condition::c8_commit);
    } else if (!(wrong = expect_kind(received, message_kind::accept))) {
      auto one = Text::read_answer(decode_text(received));
      if (!one) wrong = one.error();
      else if (one->protocol != protocol_version)
        wrong = make_error(errc::protocol_mismatch, "accept", "speaks another protocol", one->protocol,
                           protocol_version, condition::c7_transport);
      else answers[at] = std::move(one).value();
    }
    if (wrong) refusals[at].push_back(std::move(wrong));
  }
  for (std::size_t at = 0; at < engines; ++at)
    for (error& one : refusals[at]) {
      if (one.rank < 0) one.rank = static_cast<int>(at);
      reasons.push_back(std::move(one));
    }
  return first_of(reasons);
}

}  // namespace detail

/// The answer of a learner that makes one manifest only.
struct never_reissue {
  error operator()(const manifest&, manifest&) const {
    return make_error(errc::grid_mismatch, "hello",
                      "an engine asks for other encodings, and this learner has none to offer", condition::c2_grid);
  }
};

/// The learner's half. `reissue(wanted, offered)` may replace what is offered by what an engine wants, or refuse;
/// nothing of the learner changes before all engines have accepted. Capacity and slots become the smallest of all ends.
/// Errors: the first reason of the engine with the lowest rank, all of them in `reasons`; the transport's. The engines
/// that would have accepted hear it too.
template <class Text, publisher Publisher, class Reissue = never_reissue>
error offer(Publisher& transport, const manifest& tensors, const plan_options& options, std::string_view device,
            agreement& made, std::vector<error>& reasons, Reissue&& reissue = Reissue{}) {
  std::vector<answer> answers;
  hello mine{protocol_version, false, tensors, options, 0, std::string(device)};
  reasons.clear();
  const auto give_up = [&](error why) {
    message sent;
    encode_verdict(message_kind::abort, 0, why, sent);
    static_cast<void>(transport.broadcast(sent));
    if (reasons.empty()) reasons.push_back(why);
    return why;
  };
  plan wire;
  for (;;) {
    if (error wrong = planner().make(mine.tensors, mine.options, wire)) return give_up(std::move(wrong));
    mine.plan_hash = wire.hash();
    if (error wrong = detail::ask<Text>(transport, mine, answers, reasons)) return give_up(std::move(wrong));
    if (mine.final) break;
    mine.final = true;
    const answer* wanted = nullptr;
    for (std::size_t at = 0; at < answers.size(); ++at) {
      const answer& one = answers[at];
      if (one.capacity_bytes < mine.options.capacity_bytes) mine.options.capacity_bytes = one.capacity_bytes;
      if (one.slots < mine.options.slots) mine.options.slots = one.slots;
      if (!one.wants_other) continue;
      if (wanted != nullptr && !(wanted->wanted == one.wanted))
        return give_up(make_error(errc::format_mismatch, "hello", "engines ask for different encodings; the engine",
                                  static_cast<i64>(at), static_cast<i64>(wanted - answers.data()), condition::c2_grid));
      if (wanted == nullptr) wanted = &one;
    }
    if (wanted != nullptr)
      if (error wrong = reissue(wanted->wanted, mine.tensors)) return give_up(std::move(wrong));
  }
  made.tensors = std::move(mine.tensors);
  made.wire = std::move(wire);
  made.devices.clear();
  for (answer& one : answers) made.devices.push_back(std::move(one.device));
  return {};
}

FP8WIRE_ABI_END
#endif
