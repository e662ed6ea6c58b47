// SPDX-License-Identifier: Apache-2.0
/// Runs a fault through an update of the toy model and says what each of the ten conditions found.
///
/// The update goes two ways at once: to a receiver, which refuses it or does not, and to an engine that loads whatever
/// it is sent, whose live state is then judged. So a condition is tried on every fault, also where another one would
/// have stopped the update before.
#ifndef FP8WIRE_TESTING_FAULTS_HPP
#define FP8WIRE_TESTING_FAULTS_HPP
#include <fp8wire/testing/shipment.hpp>
#include <fp8wire/testing/toy_engine.hpp>
#include <fp8wire/wire/compare.hpp>
#include <fp8wire/wire/conditions/arrivals.hpp>
#include <fp8wire/wire/conditions/buffers.hpp>
#include <fp8wire/wire/conditions/grid.hpp>
#include <fp8wire/wire/conditions/layer_set.hpp>
#include <fp8wire/wire/conditions/other_state.hpp>
#include <fp8wire/wire/conditions/scales.hpp>
#include <fp8wire/wire/conditions/served_version.hpp>
#include <fp8wire/wire/host_store.hpp>
#include <fp8wire/wire/receiver.hpp>

FP8WIRE_ABI_BEGIN
namespace testing {

/// What came of one fault.
struct fault_report {
  std::vector<error> found;      // by every check that fired, each with its condition
  u64 receiver_serves = 0;       // the version that the guarded engine serves in the end
  bool receiver_is_whole = true; // its bytes are those of that version, all of them

  bool caught_by(condition one) const noexcept {
    for (const error& each : found)
      if (each.broken == one) return true;
    return false;
  }
};

/// A learner and two engines; version 1 has been committed everywhere, version 2 is the one that goes wrong.
class toy_world {
 public:
  explicit toy_world(commit_mode mode = commit_mode::staged)
      : tensors_(toy_manifest()), first_(toy_export(tensors_, 1)), second_(toy_export(tensors_, 2)), mode_(mode) {
    if (error wrong = planner().make(tensors_, {8192, 256, 2, false, false}, wire_))
      detail::raise("the toy model has no plan", static_cast<i64>(wrong.code), 0);
  }

  const manifest& tensors() const noexcept { return tensors_; }
  const plan& wire() const noexcept { return wire_; }

  /// One update of version 2 with one fault in it; none: a sound one. Cost: some 20 ms.
  fault_report run(fault kind) const {
    fault_report report;
    const auto say = [&](error wrong) {
      if (wrong) report.found.push_back(std::move(wrong));
    };
    const shipment before = pack(tensors_, wire_, 1, first_);
    entry_bytes exported =
        kind == fault::grid_floor || kind == fault::grid_f32_master || kind == fault::grid_edge_padding
            ? toy_export(tensors_, 2, kind)
            : second_;
    damage_one_pair(kind, exported);
    shipment sent = pack(tensors_, wire_, 2, exported);
    damage(kind, sent, before, tensors_, wire_);

    shake_hands(kind, say);
    guard(sent, before, report);
    count_leases(kind, sent, say);

    toy_engine engine(tensors_);
    load(engine, before);
    say(engine.finalize(1));
    engine.capture();
    load(engine, sent);
    // Engines that nobody tells of the end of an update do not finalize it.
    if (sent.end != ending::lost) say(engine.finalize(sent.weight_version, kind));
    judge_stream(sent, say);
    judge_engine(kind, engine, sent, say);
    return report;
  }

 private:
  void damage_one_pair(fault kind, entry_bytes& bytes) const {
    for (const manifest_item& item : tensors_.items()) {
      if (item.encoding < 0) continue;
      std::vector<std::byte>&codes = bytes[item.first_entry], &scales = bytes[item.first_entry + 1];
      if (damage_pair(kind, tensors_.entries()[item.first_entry + 1].dtype, codes, scales)) return;
    }
  }

  /// What both ends compare before the first byte: manifests and plans.
  template <class Say> void shake_hands(fault kind, const Say& say) const {
    for (error& one : differences(tensors_, toy_manifest())) say(std::move(one));
    plan_options options = wire_.options();
    if (kind == fault::capacity_off_by_one) --options.capacity_bytes;
    const result<plan> theirs = make_plan(tensors_, options);
    if (theirs) say(check_plans(wire_.hash(), theirs->hash()));
    placement placed = placement_of(wire_);
    if (kind == fault::split_pair) {
      // Closed behind the tensor that crosses the threshold, as packed broadcasts are.
      u64 used = 0;
      placed = {{}, {0}};
      for (u32 e = 0; e < tensors_.entries().size(); ++e) {
        const u64 bytes = tensors_.entries()[e].bytes;
        placed.tensors.push_back(
            {e, static_cast<u32>(placed.buffer_bytes.size() - 1), (used + 255) / 256 * 256, bytes});
        used = placed.buffer_bytes.back() = placed.tensors.back().offset + bytes;
        if (used > 40000) placed.buffer_bytes.push_back(0), used = 0;
      }
    }
    say(check_placement(tensors_, placed));
    say(check_units(tensors_, placed));
  }

  /// The library's own receiver, which is given version 1 in good order before.
  void guard(const shipment& sent, const shipment& before, fault_report& report) const {
    host_store<> store(tensors_, wire_, mode_);
    receiver<host_store<>> one(tensors_, wire_, store);
    const auto deliver = [&](const shipment& update) -> error {
      error first = one.begin(update.weight_version);
      for (const parcel& each : update.parcels) {
        error wrong = one.accept(each.announced, each.bytes, {});
        if (wrong && !first) first = std::move(wrong);
      }
      if (update.end == ending::lost) {
        if (!first) first = make_error(errc::peer_lost, "learner", "is gone", condition::c8_commit);
        one.abort(first);
        return first;
      }
      if (update.end == ending::aborted)
        one.abort(make_error(errc::aborted, "weight_version", "the learner gave the update up", condition::c8_commit));
      else if (error wrong = one.finish(update.weight_version, update.sums, update.statuses, {}); wrong && !first)
        first = std::move(wrong);
      error wrong = one.commit(update.weight_version);
      return first ? first : wrong;
    };
    if (error wrong = deliver(before)) report.found.push_back(std::move(wrong));
    if (error wrong = deliver(sent)) report.found.push_back(std::move(wrong));
    report.receiver_serves = one.serving();
    if (one.serving() == 0) return;
    const shipment& served = one.serving() == before.weight_version ? before : sent;
    for (std::size_t i = 0; i < wire_.pieces().size(); ++i) {
      const auto bytes = store.bytes(wire_.pieces()[i].entry);
      report.receiver_is_whole =
          report.receiver_is_whole && !check_bytes("",
                                                   bytes.subspan(static_cast<std::size_t>(wire_.pieces()[i].from),
                                                                 static_cast<std::size_t>(wire_.pieces()[i].bytes)),
                                                   served.sums[i]);
    }
  }

  /// A learner that lends its slots, and an engine that gives them back, by the book.
  template <class Say> void count_leases(fault kind, const shipment& sent, const Say& say) const {
    lease_book book(wire_.options().slots, 1);
    const u32 middle = static_cast<u32>(wire_.buffers().size() / 2);
    for (u32 b = 0; b < sent.parcels.size(); ++b) {
      if (kind == fault::unanswered_frame && b >= middle + wire_.options().slots) break;  // the learner waits for ever
      say(book.acquire(b));
      book.publish(b);
      const bool early = kind == fault::early_ack && b == middle,
                 never = kind == fault::unanswered_frame && b == middle;
      if (early) say(book.release(b, 0));
      say(book.check_read(b, 0));
      if (!early && !never) say(book.release(b, 0));
    }
    say(book.settled());
  }

  /// The arrivals' bytes, wherever the parcels have them.
  void load(toy_engine& engine, const shipment& sent) const {
    for (const parcel& each : sent.parcels) {
      const plan_buffer& buffer = wire_.buffers()[each.announced.buffer];
      for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
        const plan_piece& piece = wire_.pieces()[i];
        if (piece.offset + piece.bytes <= each.bytes.size())
          engine.load(piece.entry,
                      std::span(each.bytes)
                          .subspan(static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.bytes)));
      }
    }
  }

  /// C3, C4 and C5 of a stream of named tensors, as a framework's own loader would ask them.
  template <class Say> void judge_stream(const shipment& sent, const Say& say) const {
    arrivals books(tensors_);
    books.begin(2);
    error first;
    for (const arrival& one : sent.arrivals) {
      if (error wrong = books.arrived(one.name, one.type, one.shape, one.weight_version)) {
        if (!first) say(first = wrong);
      }
      say(check_offset(one.name, one.type, one.offset));
    }
    if (error wrong = books.complete(); wrong && !first) say(std::move(wrong));
  }

  template <class Say>
  void judge_engine(fault kind, const toy_engine& engine, const shipment& sent, const Say& say) const {
    const auto first_of_all = [&](const auto& each_error) {
      error first;
      each_error([&](error wrong) {
        if (wrong && !first) first = std::move(wrong);
      });
      say(std::move(first));
    };
    const std::vector<tensor_spec> state = engine.state(kind);
    std::vector<tensor_spec> weights;
    for (const tensor_spec& one : state)
      if (one.name.ends_with(".weight")) weights.push_back(one);
    for (error& one : audit(layers_of(tensors_, "the learner"), layers_of(tensors_), layers_of(weights)))
      say(std::move(one));
    const entry_bytes& loaded = engine.loaded();
    first_of_all([&](const auto& see) {  // C2
      for (const u32 item : grid_samples(tensors_, 2, tensors_.items().size()))
        for (const u32 e : {tensors_.items()[item].first_entry, tensors_.items()[item].first_entry + 1})
          see(check_grid(tensors_.entries()[e], second_[e], loaded[e]));
    });
    first_of_all([&](const auto& see) {  // C5
      engine.each([&](const auto& one) { see(one.check_places(tensors_, loaded)); });
    });
    first_of_all([&](const auto& see) {  // C6
      engine.each([&](const auto& one) { see(one.check_layouts()); });
    });
    if (sent.end != ending::lost) say(engine.derived().check(sent.weight_version));
    first_of_all([&](const auto& see) {
      for (const u32 item : self_check_items(tensors_, 2))
        engine.each(
            [&](const auto& one) { see(one.check_product(tensors_, loaded, tensors_.items()[item].first_entry)); });
    });
    first_of_all([&](const auto& see) {  // C7
      for (std::size_t i = 0; i < wire_.pieces().size(); ++i) {
        const plan_piece& piece = wire_.pieces()[i];
        see(check_bytes(tensors_.entries()[piece.entry].name,
                        std::span(loaded[piece.entry])
                            .subspan(static_cast<std::size_t>(piece.from), static_cast<std::size_t>(piece.bytes)),
                        sent.sums[i]));
      }
    });
    const u64 serving[] = {engine.serving(), kind == fault::missed_commit ? u64{1} : engine.serving()};
    say(check_serving(serving, 2));  // C8
    first_of_all([&](const auto& see) {  // C9
      for (std::size_t e = 0; e < loaded.size(); ++e) {
        const manifest_entry& entry = tensors_.entries()[e];
        if (entry.what == role::scales) see(check_scales(entry.name, entry.dtype, loaded[e]));
        if (entry.what == role::codes) see(check_codes(entry.name, entry.dtype, loaded[e]));
      }
    });
    // C10
    const state_rule promises[] = {{"**.rotary_emb.inv_freq", state_kind::constant},
                                   {"**.w13_scale_swizzled", state_kind::recomputed}};
    for (error& one : check_state(state, tensors_, promises)) say(std::move(one));
    say(check_constant("model.rotary_emb.inv_freq", engine.rotary(), engine.rotary_sum()));
  }

  manifest tensors_;
  plan wire_;
  entry_bytes first_, second_;
  commit_mode mode_;
};

}  // namespace testing
FP8WIRE_ABI_END
#endif
