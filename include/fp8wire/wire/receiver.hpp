// SPDX-License-Identifier: Apache-2.0
/// An engine's half of an update: every frame judged, nothing served before the whole of it is proven.
#ifndef FP8WIRE_WIRE_RECEIVER_HPP
#define FP8WIRE_WIRE_RECEIVER_HPP
#include <fp8wire/wire/message.hpp>
#include <fp8wire/wire/plan.hpp>
#include <fp8wire/wire/sink.hpp>

FP8WIRE_ABI_BEGIN

/// begin, accept for every frame, finish, then commit or abort. The first error of an update sticks: what follows it is
/// refused with it, and finish answers it, so that the learner hears about it once and in time.
///
/// Checked: versions rise (C8), a frame belongs to this update (C4) and plan, buffers come once and in order with the
/// bytes that the plan says (C3, C7), everything arrived, bytes are those the learner summed (C7), scales and codes are
/// sane (C9).
/// Staged: the old version serves until commit. In place: from the first byte of an update that fails until the next
/// full one serving() is 0. Memory: all of it is taken at construction; an update that succeeds allocates nothing.
/// Threads: one at a time, but serving() may be asked while another thread receives only if the caller orders the two.
template <sink Sink> class receiver {
 public:
  using stream = typename Sink::stream;

  /// Expects: the plan was made from the manifest; both and the sink outlive the receiver. `last`: the version last
  /// begun before a new agreement, above which versions go on rising.
  receiver(const manifest& tensors, const plan& wire, Sink& target, u64 last = 0)
      : tensors_(tensors), plan_(wire), sink_(target), received_(tensors.entries().size()), version_(last) {}

  /// The version that requests are answered with; 0: none, refuse them.
  u64 serving() const noexcept { return serving_; }
  bool updating() const noexcept { return updating_; }
  /// The version last begun.
  u64 begun() const noexcept { return version_; }
  /// What ended or will end the update last begun; empty if nothing did.
  const error& failure() const noexcept { return failure_; }

  /// Errors: stale_version (C8) unless the version is above every one begun before; out_of_order (C8) within an update.
  error begin(u64 weight_version) {
    if (updating_)
      return fail(make_error(errc::out_of_order, "weight_version",
                             "an update begins before the last one ended; the version",
                             static_cast<i64>(weight_version), static_cast<i64>(version_), condition::c8_commit));
    updating_ = true;
    prepared_ = false;
    failure_ = {};
    next_ = 0;
    for (u64& bytes : received_) bytes = 0;
    const u64 last = version_;
    if (weight_version <= last)
      return fail(make_error(errc::stale_version, "weight_version", "versions must rise",
                             static_cast<i64>(weight_version), static_cast<i64>(last + 1), condition::c8_commit));
    version_ = weight_version;
    return {};
  }

  /// Writes one buffer into the sink. `bytes`: what the transport says the frame announced, at least its used bytes.
  /// Enqueues; the caller releases the frame after it on the same stream, whatever this returns.
  error accept(const frame& announced, std::span<const std::byte> bytes, stream s) {
    if (!updating_)
      return make_error(errc::out_of_order, subject(announced), "came outside an update", condition::c8_commit);
    if (failure_) return failure_;
    if (error wrong = judge(announced, bytes)) return fail(std::move(wrong));
    const plan_buffer& buffer = plan_.buffers()[announced.buffer];
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
      const plan_piece& piece = plan_.pieces()[i];
      // The bytes of an in-place engine are mixed from here on.
      if (sink_.mode() == commit_mode::in_place) serving_ = 0;
      if (error wrong = sink_.write(
              i, bytes.subspan(static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.bytes)), s))
        return fail(std::move(wrong));
      received_[piece.entry] += piece.bytes;
    }
    ++next_;
    return {};
  }

  /// Judges the whole update and finalizes it: the engine's vote. `sums`: one of each piece of the plan; `statuses`:
  /// one of each item, the first NaN or Inf that the learner saw and lets pass, or -1. The update's only sync.
  error finish(u64 weight_version, std::span<const u64> sums, std::span<const i64> statuses, stream s) {
    if (!updating_)
      return make_error(errc::out_of_order, "weight_version", "an update ends that never began; the version",
                        static_cast<i64>(weight_version), 0, condition::c8_commit);
    if (failure_) return failure_;
    if (prepared_) return fail(make_error(errc::duplicate, "finish", "came twice", condition::c8_commit));
    if (error wrong = complete(weight_version, sums, statuses)) return fail(std::move(wrong));
    const auto reports = sink_.reports(s);
    if (!reports) return fail(reports.error());
    if (error wrong = compare(*reports, sums, statuses)) return fail(std::move(wrong));
    if (error wrong = sink_.finalize(s)) return fail(std::move(wrong));
    prepared_ = true;
    return {};
  }

  /// Serves the version from here on. Errors: out_of_order (C8) unless finish has just said yes to that version.
  error commit(u64 weight_version) {
    if (updating_ && failure_) return failure_;
    if (!prepared_ || weight_version != version_) {
      error wrong = make_error(
          errc::out_of_order, "weight_version", "only a version that was proven whole can be committed",
          static_cast<i64>(weight_version), static_cast<i64>(prepared_ ? version_ : 0), condition::c8_commit);
      return updating_ ? fail(std::move(wrong)) : wrong;
    }
    sink_.publish(version_);
    serving_ = version_;
    updating_ = prepared_ = false;
    return {};
  }

  /// Makes the update fail without ending it: finish will answer `why`. Does nothing outside an update.
  void refuse(const error& why) {
    if (updating_) fail(why);
  }

  /// Ends the update; staged engines serve the old version on. Does nothing outside an update.
  void abort(const error& why) noexcept {
    if (!updating_) return;
    if (!failure_) failure_ = why;
    sink_.discard();
    updating_ = prepared_ = false;
  }

 private:
  error fail(error why) {
    if (!failure_) failure_ = std::move(why);
    prepared_ = false;
    return failure_;
  }

  /// What an error about a buffer names: its first tensor.
  std::string subject(const frame& announced) const {
    std::string text = "buffer " + std::to_string(announced.buffer);
    if (announced.buffer >= plan_.buffers().size()) return text;
    const plan_buffer& buffer = plan_.buffers()[announced.buffer];
    if (buffer.count == 0) return text;
    return text + " (" + tensors_.entries()[plan_.pieces()[buffer.first].entry].name +
           (buffer.count > 1 ? ", ...)" : ")");
  }

  error judge(const frame& announced, std::span<const std::byte> bytes) const {
    const auto wrong = [&](errc code, const char* what, u64 got, u64 expected, condition broken) {
      return make_error(code, subject(announced), what, static_cast<i64>(got), static_cast<i64>(expected), broken);
    };
    if (announced.protocol != protocol_version)
      return wrong(errc::protocol_mismatch, "speaks another protocol", announced.protocol, protocol_version,
                   condition::c7_transport);
    if (announced.plan_hash != plan_.hash())
      return wrong(errc::plan_mismatch, "follows another plan; its hash", announced.plan_hash, plan_.hash(),
                   condition::c7_transport);
    if (announced.weight_version != version_)
      return wrong(errc::stale_version, "belongs to another version", announced.weight_version, version_,
                   condition::c4_atomic_pairs);
    if (prepared_)
      return wrong(errc::unexpected, "came after the end of the update", announced.buffer, next_, condition::c8_commit);
    if (announced.buffer >= plan_.buffers().size())
      return wrong(errc::unexpected, "is not in the plan", announced.buffer, plan_.buffers().size(),
                   condition::c3_complete_pairs);
    if (announced.buffer < next_)
      return wrong(errc::duplicate, "came twice; the next one", announced.buffer, next_, condition::c3_complete_pairs);
    if (announced.buffer > next_)
      return make_error(errc::out_of_order, subject(announced), missing_before(announced.buffer) + "; the buffer",
                        announced.buffer, next_, condition::c3_complete_pairs);
    const u64 used = plan_.buffers()[announced.buffer].used_bytes;
    if (announced.used_bytes != used)
      return wrong(errc::wrong_size, "has another size", announced.used_bytes, used, condition::c7_transport);
    if (bytes.size() < used)
      return wrong(errc::wrong_size, "is truncated", bytes.size(), used, condition::c7_transport);
    return {};
  }

  std::string missing_before(u32 buffer) const {
    return detail::missing_keys([&](const auto& see) {
      for (u32 b = next_; b < buffer; ++b)
        for (u32 i = 0; i < plan_.buffers()[b].count; ++i)
          see(tensors_.entries()[plan_.pieces()[plan_.buffers()[b].first + i].entry].name);
    });
  }

  error complete(u64 weight_version, std::span<const u64> sums, std::span<const i64> statuses) const {
    if (weight_version != version_)
      return make_error(errc::stale_version, "finish", "belongs to another version", static_cast<i64>(weight_version),
                        static_cast<i64>(version_), condition::c4_atomic_pairs);
    bool whole_update = next_ == plan_.buffers().size();
    for (std::size_t e = 0; e < received_.size(); ++e)
      whole_update = whole_update && received_[e] == tensors_.entries()[e].bytes;
    if (!whole_update) {
      std::string first;
      const std::string keys = detail::missing_keys([&](const auto& see) {
        std::vector<bool> arrived(received_.size());
        for (u32 b = 0; b < next_; ++b)
          for (u32 i = 0; i < plan_.buffers()[b].count; ++i)
            arrived[plan_.pieces()[plan_.buffers()[b].first + i].entry] = true;
        for (std::size_t e = 0; e < received_.size(); ++e) {
          if (arrived[e] && received_[e] == tensors_.entries()[e].bytes) continue;
          if (first.empty()) first = tensors_.entries()[e].name;
          see(tensors_.entries()[e].name);
        }
      });
      return make_error(errc::missing, first, keys, next_, static_cast<i64>(plan_.buffers().size()),
                        condition::c3_complete_pairs);
    }
    if (sums.size() != plan_.pieces().size())
      return make_error(errc::wrong_size, "finish", "the number of its checksums is wrong",
                        static_cast<i64>(sums.size()), static_cast<i64>(plan_.pieces().size()),
                        condition::c7_transport);
    if (statuses.size() != tensors_.items().size())
      return make_error(errc::wrong_size, "finish", "the number of its statuses is wrong",
                        static_cast<i64>(statuses.size()), static_cast<i64>(tensors_.items().size()),
                        condition::c7_transport);
    return {};
  }

  static std::string different_sums(u64 got, u64 expected) {
    detail::short_text text;
    text << "its bytes are not those that were sent; the checksum: got 0x";
    text.hex(got, 16) << ", expected 0x";
    return std::string(text.hex(expected, 16).view());
  }

  error compare(std::span<const piece_report> reports, std::span<const u64> sums, std::span<const i64> statuses) const {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const manifest_entry& entry = tensors_.entries()[plan_.pieces()[i].entry];
      if (reports[i].sum != sums[i])
        return make_error(errc::checksum, entry.name, different_sums(reports[i].sum, sums[i]), condition::c7_transport);
      if (reports[i].first_bad < 0 || statuses[entry.item] >= 0)
        continue;  // the learner has said that it is not finite
      const i64 element = static_cast<i64>(plan_.pieces()[i].from) * 8 / bit_width(entry.dtype) + reports[i].first_bad;
      return make_error(
          entry.what == role::scales ? errc::bad_scale : errc::nonfinite, entry.name,
          std::string(entry.what == role::scales ? "a scale is zero, negative or not finite" : "a code is not finite") +
              "; element " + std::to_string(element),
          condition::c9_scale_sanity);
    }
    return {};
  }

  const manifest& tensors_;
  const plan& plan_;
  Sink& sink_;
  std::vector<u64> received_;  // bytes of each entry: the record that replaces a fill with NaN
  error failure_;
  u64 version_ = 0, serving_ = 0;
  u32 next_ = 0;
  bool updating_ = false, prepared_ = false;
};

FP8WIRE_ABI_END
#endif
