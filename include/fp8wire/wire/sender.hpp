// SPDX-License-Identifier: Apache-2.0
/// The learner's half of an update: weights in as training exports them, pairs out whole, all engines or none commit.
#ifndef FP8WIRE_WIRE_SENDER_HPP
#define FP8WIRE_WIRE_SENDER_HPP
#include <fp8wire/wire/backend.hpp>
#include <fp8wire/wire/message_codec.hpp>
#include <fp8wire/wire/plan.hpp>
#include <fp8wire/wire/slot_window.hpp>
#include <fp8wire/wire/transport.hpp>

FP8WIRE_ABI_BEGIN

/// begin; put, forward or keep for every item of the manifest; finish. Or abort.
///
/// Items come in any order inside the window: their buffers lie within `slots` of the first one that is not complete. A
/// buffer is published when all of it came. A call that refuses an item leaves the update as it was; a call that the
/// transport fails ends it, and every later one answers the same error.
/// Memory: all of it is taken at construction and in the first update; later updates that succeed allocate nothing.
/// Threads: one at a time.
template <any_wire_format Wire, publisher Publisher, class Backend = serial_backend> class sender {
 public:
  using recipe = typename Wire::recipe;
  using stored = stored_t<recipe>;
  using stream = typename Publisher::stream;
  static_assert(sender_backend<Backend, recipe, stream>, "Backend lacks a member: see fp8wire/wire/backend.hpp");
  static constexpr bool canonical = std::same_as<typename Wire::layout, canonical_layout>;

  /// Expects: the plan was made from the manifest; manifest, plan and transport outlive the sender.
  sender(const manifest& tensors, const plan& wire, Publisher& transport, float amax_floor = recipe::num.amax_floor,
         Backend backend = Backend{})
      : tensors_(tensors),
        plan_(wire),
        transport_(transport),
        backend_(std::move(backend)),
        window_(tensors, wire),
        floor_(amax_floor),
        wire_id_(Wire::id(amax_floor)),
        answered_(static_cast<std::size_t>(transport.engines())) {
    backend_.prepare(wire.pieces().size(), tensors.items().size());
  }
  sender(const sender&) = delete;
  sender& operator=(const sender&) = delete;
  /// An update that is still open is aborted.
  ~sender() {
    if (updating_)
      abort(make_error(errc::aborted, "weight_version", "the learner gave the update up", condition::c8_commit));
  }

  /// The version that all engines said they serve; 0: none yet.
  u64 committed() const noexcept { return committed_; }
  bool updating() const noexcept { return updating_; }
  /// Items that have not come yet.
  std::size_t missing() const noexcept { return window_.missing(); }

  /// Errors: stale_version (C8) unless the version is above every one begun before; out_of_order within an update.
  error begin(u64 weight_version) {
    if (updating_)
      return make_error(errc::out_of_order, "weight_version", "an update begins before the last one ended; the version",
                        static_cast<i64>(weight_version), static_cast<i64>(version_), condition::c8_commit);
    if (weight_version <= version_)
      return make_error(errc::stale_version, "weight_version", "versions must rise", static_cast<i64>(weight_version),
                        static_cast<i64>(version_ + 1), condition::c8_commit);
    version_ = weight_version;
    updating_ = true;
    failure_ = {};
    window_.reset();
    backend_.begin();
    encode_version(message_kind::begin, version_, message_);
    return broken(transport_.broadcast(message_));
  }

  /// Quantizes a weight straight into its slot. in: batch x rows x cols as the manifest has them, any strides, float,
  /// bf16 or fp16; it may change once the work on the stream is done.
  /// Errors: unexpected, duplicate, missing (C3); wrong_shape (C5); grid_mismatch (C2) where the manifest promised
  /// another encoding; the transport's. NaN and Inf: found by finish.
  template <class In> error put(std::string_view weight, matrix_view<const In> in, stream s) {
    u32 item = 0;
    if (error wrong = admit_pair(weight, {in.batch, in.rows, in.cols}, item)) return wrong;
    if constexpr (!canonical) {
      return fill_laid(weight, item, s, [&]<class Pair>(const quantize_job& job, u8* codes, std::byte* scales) {
        return backend_.template quantize_into<recipe, Pair>(job, in, codes, scales, floor_, s);
      });
    } else {
      return fill_pair(item, s, [&](const pair_cut& cut, pair_view<recipe> out) {
        return backend_.template quantize<recipe>(quantize_job{item, cut.piece, cut.piece + 1, cut.index_base},
                                                  cut.of(in), out, floor_, s);
      });
    }
  }
  template <class In> error put(std::string_view weight, matrix_view<In> in, stream s) {
    return put(weight, matrix_view<const In>(in), s);
  }

  /// Sends canonical codes and scales that are already on this grid (persistent FP8 parameters): bytes are copied, or
  /// moved to where the wire's layout wants them, never made again.
  /// Errors: as put; bad_scale (C9) where a packed layout cannot hold a scale; wrong_shape (C5) for scales that do not
  /// fit the codes. A backend that only enqueues has finish say bad_scale.
  error forward(std::string_view weight, const_pair_view<recipe> pair, stream s) {
    u32 item = 0;
    if (error wrong = admit_pair(weight, {pair.codes.batch, pair.codes.rows, pair.codes.cols}, item)) return wrong;
    const i64 rows = scale_rows<typename recipe::block>(pair.codes.rows),
              cols = scale_cols<typename recipe::block>(pair.codes.cols);
    if (pair.scales.batch != pair.codes.batch || pair.scales.rows != rows)
      return make_error(errc::wrong_shape, std::string(weight), "scale rows differ from the block grid",
                        pair.scales.rows, rows, condition::c5_geometry);
    if (pair.scales.cols != cols)
      return make_error(errc::wrong_shape, std::string(weight), "scale columns differ from the block grid",
                        pair.scales.cols, cols, condition::c5_geometry);
    if constexpr (!canonical) {
      return fill_laid(weight, item, s, [&]<class Pair>(const quantize_job& job, u8* codes, std::byte* scales) {
        return backend_.template forward_into<recipe, Pair>(job, pair, codes, scales, s);
      });
    } else {
      return fill_pair(item, s, [&](const pair_cut& cut, pair_view<recipe> out) {
        if (error wrong = backend_.copy(cut.piece, out.codes.data, cut.of(pair.codes), s)) return wrong;
        return backend_.copy(cut.piece + 1, out.scales.data, cut.of_scales(pair.scales), s);
      });
    }
  }

  /// Sends a kept tensor as it is, dense. Errors: as put; wrong_size (C7) unless `bytes` is the manifest's.
  error keep(std::string_view name, const void* data, std::size_t bytes, stream s) {
    u32 item = 0;
    if (error wrong = admit(name, item)) return wrong;
    const manifest_entry& entry = tensors_.entries()[tensors_.items()[item].first_entry];
    if (entry.what != role::kept)
      return make_error(errc::wrong_dtype, entry.name, "travels as codes and scales: put or forward it",
                        condition::c3_complete_pairs);
    if (bytes != entry.bytes)
      return make_error(errc::wrong_size, entry.name, "its bytes differ from the manifest", static_cast<i64>(bytes),
                        static_cast<i64>(entry.bytes), condition::c7_transport);
    const u32 piece = plan_.of_item(item).first;
    std::byte* to = nullptr;
    if (error wrong = slot(piece, s, to)) return wrong;
    const matrix_view<const u8> from = dense(static_cast<const u8*>(data), 1, static_cast<i64>(bytes));
    if (error wrong = broken(backend_.copy(piece, reinterpret_cast<u8*>(to), from, s))) return wrong;
    window_.arrived(item);
    window_.filled(plan_.pieces()[piece].buffer, 1);
    return publish_ready(s);
  }

  /// Ends the update on all engines: status words and checksums in one sync, the vote, then commit or abort everywhere.
  /// Errors: missing (C3) with the names; nonfinite with tensor and index where the recipe refuses it; the error of the
  /// engine with the lowest rank. Whatever it is, all engines hear it and none commits.
  error finish(stream s) {
    if (!updating_)
      return make_error(errc::out_of_order, "weight_version", "an update ends that never began", condition::c8_commit);
    if (error wrong = prove_and_vote(s)) {
      abort(wrong);
      return wrong;
    }
    encode_version(message_kind::commit, version_, message_);
    error wrong = transport_.broadcast(message_);
    updating_ = false;
    if (!wrong) wrong = gather(message_kind::committed);
    if (!wrong) committed_ = version_;
    return wrong;
  }

  /// Tells all engines to drop the update. Does nothing outside an update.
  void abort(const error& why) noexcept {
    if (!updating_) return;
    updating_ = false;
    encode_verdict(message_kind::abort, version_, why, message_);
    // An engine that cannot hear this notices that its peer is gone.
    static_cast<void>(transport_.broadcast(message_));
  }

 private:
  error broken(error why) {
    if (why) failure_ = why;
    return why;
  }

  error admit(std::string_view name, u32& item) {
    if (!updating_)
      return make_error(errc::out_of_order, std::string(name), "came outside an update", condition::c8_commit);
    if (failure_) return failure_;
    return window_.admit(name, item);
  }

  error admit_pair(std::string_view weight, matrix_extents in, u32& item) {
    if (error wrong = admit(weight, item)) return wrong;
    const manifest_item& found = tensors_.items()[item];
    if (found.encoding < 0)
      return make_error(errc::wrong_dtype, std::string(weight), "travels as it is: keep it",
                        condition::c3_complete_pairs);
    const encoding_entry& encoding = tensors_.encodings()[static_cast<std::size_t>(found.encoding)];
    if (encoding.wire_id != wire_id_)
      return make_error(errc::grid_mismatch, std::string(weight),
                        "the manifest promised " + encoding.described() + ", this sender makes " +
                            std::string(Wire::encoding(floor_).view()),
                        condition::c2_grid);
    const matrix_extents& planned = found.facts.extents;
    const auto differs = [&](const char* what, i64 got, i64 expected) {
      return make_error(errc::wrong_shape, std::string(weight), what, got, expected, condition::c5_geometry);
    };
    if (in.batch != planned.batch) return differs("its batch differs from the manifest", in.batch, planned.batch);
    if (in.rows != planned.rows) return differs("its rows differ from the manifest", in.rows, planned.rows);
    if (in.cols != planned.cols) return differs("its columns differ from the manifest", in.cols, planned.cols);
    return {};
  }

  /// The part of a pair that lies in one buffer: whole matrices [batch, batch + matrices), or rows of one of them.
  struct pair_cut {
    u32 piece = 0;
    i64 batch = 0, matrices = 0, row = 0, rows = 0, scale_row = 0, scale_rows = 0, index_base = 0;
    template <class Value> static matrix_view<Value> cut(matrix_view<Value> all, i64 b, i64 count, i64 first,
                                                         i64 height) noexcept {
      all.data += b * all.batch_stride + first * all.row_stride;
      all.batch = count;
      all.rows = height;
      return all;
    }
    template <class Value> matrix_view<Value> of(matrix_view<Value> all) const noexcept {
      return all.size() == 0 ? all : cut(all, batch, matrices, row, rows);
    }
    template <class Value> matrix_view<Value> of_scales(matrix_view<Value> all) const noexcept {
      return all.size() == 0 ? all : cut(all, batch, matrices, scale_row, scale_rows);
    }
  };

  pair_cut cut_of(u32 piece, const matrix_extents& m) const noexcept {
    using block = typename recipe::block;
    const plan_piece& codes = plan_.pieces()[piece];
    const i64 all_scale_rows = scale_rows<block>(m.rows);
    if (codes.bytes == 0 || codes.bytes == tensors_.entries()[codes.entry].bytes)
      return {piece, 0, m.batch, 0, m.rows, 0, all_scale_rows, 0};
    const i64 first = static_cast<i64>(codes.from) / m.cols, count = static_cast<i64>(codes.bytes) / m.cols;
    const i64 b = first / m.rows, row = first % m.rows;
    const bool matrices = count >= m.rows;  // a piece holds whole matrices or lies in one
    const i64 rows = matrices ? m.rows : count;
    return {piece,
            b,
            matrices ? count / m.rows : 1,
            row,
            rows,
            row / detail::block_extent(block::rows, m.rows),
            scale_rows<block>(rows),
            first * m.cols};
  }

  template <class Fill> error fill_pair(u32 item, stream s, const Fill& fill) {
    const matrix_extents& m = tensors_.items()[item].facts.extents;
    const piece_range range = plan_.of_item(item);
    window_.arrived(item);
    for (u32 piece = range.first; piece < range.first + range.count; piece += 2) {
      const pair_cut cut = cut_of(piece, m);
      std::byte *codes = nullptr, *scales = nullptr;
      error wrong = slot(piece, s, codes);
      if (!wrong) wrong = slot(piece + 1, s, scales);
      if (!wrong) {
        const i64 scale_width = scale_cols<typename recipe::block>(m.cols);
        wrong = broken(fill(cut, pair_view<recipe>{dense(reinterpret_cast<u8*>(codes), cut.rows, m.cols, cut.matrices),
                                                   dense(reinterpret_cast<stored*>(scales), cut.scale_rows, scale_width,
                                                         cut.matrices)}));
      }
      if (wrong) return wrong;
      window_.filled(plan_.pieces()[piece].buffer, 2);
      if (error lost = publish_ready(s)) return lost;
    }
    return {};
  }

  /// A pair in another layout than the canonical one is never cut: its two pieces lie in one slot.
  template <class Fill> error fill_laid(std::string_view weight, u32 item, stream s, const Fill& fill) {
    const u32 piece = plan_.of_item(item).first;
    std::byte *codes = nullptr, *scales = nullptr;
    window_.arrived(item);
    error wrong = slot(piece, s, codes);
    if (!wrong) wrong = slot(piece + 1, s, scales);
    if (!wrong)
      wrong = broken(Wire::with_layout(weight, [&]<class Pair>() {
        return fill.template operator()<Pair>(quantize_job{item, piece, piece + 1, 0, tensors_.item_name(item)},
                                              reinterpret_cast<u8*>(codes), scales);
      }));
    if (wrong && wrong.tensor.empty()) failure_.tensor = wrong.tensor = weight;
    if (wrong) return wrong;
    window_.filled(plan_.pieces()[piece].buffer, 2);
    return publish_ready(s);
  }

  /// Memory of a piece, its slot taken from the transport when its buffer is first touched.
  error slot(u32 piece, stream s, std::byte*& to) {
    const plan_piece& where = plan_.pieces()[piece];
    std::span<std::byte>& memory = window_.memory(where.buffer);
    if (memory.empty() && plan_.buffers()[where.buffer].used_bytes != 0) {
      auto taken = transport_.acquire(where.buffer, s);
      if (!taken) return broken(taken.error());
      if (taken->size() < plan_.buffers()[where.buffer].used_bytes)
        return broken(make_error(errc::capacity, "buffer " + std::to_string(where.buffer),
                                 "its slot is smaller than the plan", static_cast<i64>(taken->size()),
                                 static_cast<i64>(plan_.slot_bytes()), condition::c7_transport));
      memory = *taken;
    }
    to = memory.data() + where.offset;
    return {};
  }

  error publish_ready(stream s) {
    while (window_.ready()) {
      if (error wrong = broken(backend_.seal(s))) return wrong;
      const u32 buffer = window_.first();
      // A buffer of empty tensors has no bytes, but its frame says that they came.
      if (window_.memory(buffer).empty())
        if (auto taken = transport_.acquire(buffer, s); !taken) return broken(taken.error());
      const frame made{protocol_version, buffer, plan_.hash(), version_, plan_.buffers()[buffer].used_bytes};
      if (error wrong = broken(transport_.publish(made, s))) return wrong;
      window_.advance();
    }
    return {};
  }

  error prove_and_vote(stream s) {
    if (failure_) return failure_;
    if (window_.missing() > 0) return window_.missing_error();
    if (error wrong = backend_.collect(s)) return wrong;
    if constexpr (recipe::num.bad == nonfinite::refuse) {
      const auto statuses = backend_.statuses();
      for (std::size_t item = 0; item < statuses.size(); ++item)
        if (statuses[item] >= 0)
          return make_error(errc::nonfinite, std::string(tensors_.item_name(item)),
                            "holds NaN or Inf, first at element " + std::to_string(statuses[item]),
                            condition::c9_scale_sanity);
    }
    encode_finish(version_, backend_.sums(), backend_.statuses(), message_);
    if (error wrong = transport_.broadcast(message_)) return wrong;
    return gather(message_kind::vote);
  }

  /// One answer of every engine to this version. The error of the lowest rank wins, so that all raise the same one.
  error gather(message_kind wanted) {
    for (u8& answered : answered_) answered = 0;
    std::size_t left = answered_.size();
    error lowest;
    while (left > 0) {
      int engine = -1;
      if (error wrong = transport_.receive(incoming_, engine)) return lowest ? lowest : wrong;
      if (engine < 0 || static_cast<std::size_t>(engine) >= answered_.size()) continue;
      u64 version = 0;
      error verdict;
      // A late answer to an update that was given up before is no answer to this one.
      if (incoming_.kind != message_kind::vote && incoming_.kind != message_kind::committed) continue;
      if (error wrong = decode_verdict(incoming_, version, verdict)) verdict = wrong;
      else if (version < version_ || incoming_.kind != wanted) continue;
      if (std::exchange(answered_[static_cast<std::size_t>(engine)], u8{1}) != 0) continue;
      --left;
      if (!verdict) continue;
      if (verdict.rank < 0) verdict.rank = engine;
      if (!lowest || verdict.rank < lowest.rank) lowest = std::move(verdict);
    }
    return lowest;
  }

  const manifest& tensors_;
  const plan& plan_;
  Publisher& transport_;
  Backend backend_;
  detail::slot_window window_;
  float floor_;
  u64 wire_id_;
  std::vector<u8> answered_;  // engines of the vote being gathered
  message message_, incoming_;
  error failure_;
  u64 version_ = 0, committed_ = 0;
  bool updating_ = false;
};

FP8WIRE_ABI_END
#endif
