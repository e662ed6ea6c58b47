// SPDX-License-Identifier: Apache-2.0
/// Where the faults of --fault happen: in the learner, on the way into an engine, and in an engine's live state.
///
/// Engine 0 alone is hit by faults of the way and of engines, so that the others show that nobody commits.
#ifndef FP8WIRE_EXAMPLES_REFIT_FAULTS_HPP
#define FP8WIRE_EXAMPLES_REFIT_FAULTS_HPP
#include <deque>
#include <memory>

#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/plan.hpp>

#include "any_sender.hpp"
#include "injected_fault.hpp"

namespace programs {

/// What the learner offers and what engine 0 expects, where the fault is in one of them.
fp8wire::manifest offered_with(const injected_fault& fault, const fp8wire::manifest& tensors);
fp8wire::manifest expected_with(const injected_fault& fault, int engine, const fp8wire::manifest& tensors);

/// The learner's own mistakes, asked for before tensor `i` of `count` goes out.
class learner_faults {
 public:
  learner_faults(const injected_fault& fault, const fp8wire::manifest& tensors);
  fp8wire::u64 version_to_begin(fp8wire::u64 version) const noexcept;
  /// The name it goes by; empty: it is not sent.
  std::string_view name_of(fp8wire::u64 version, std::size_t i, std::size_t count, std::string_view name);
  /// Dies, or gives the update up and commits it.
  fp8wire::error half_way(fp8wire::u64 version, std::size_t i, std::size_t count, any_sender& sender,
                          fp8wire::shm_publisher& transport) const;

 private:
  injected_fault fault_;
  bool experts_ = false;  // each in a tensor of its own
  std::string last_;      // tensor, of experts where there are any
  std::string renamed_;
};

/// What subscriber and checks of one engine share.
struct fault_session {
  injected_fault fault;
  int engine = 0;
  fp8wire::u64 version = 0;  // of the update that runs
  bool injected = false;
  bool due(fp8wire::testing::fault kind) const noexcept {
    return engine == 0 && fault.kind == kind && fault.due(version);
  }
};

/// A subscriber through which frames get lost, repeated, reordered, damaged and kept.
class faulty_subscriber {
 public:
  using stream = fp8wire::host_stream;
  faulty_subscriber(fp8wire::shm_subscriber& base, fault_session& session) : base_(base), session_(session) {}
  /// From here on frames can be looked into. Both outlive the subscriber.
  void arm(const fp8wire::manifest& tensors, const fp8wire::plan& wire) noexcept {
    tensors_ = &tensors;
    wire_ = &wire;
  }

  fp8wire::error receive(fp8wire::message& into);
  fp8wire::result<std::span<const std::byte>> bytes(const fp8wire::frame& announced, stream s);
  fp8wire::error release(const fp8wire::frame& announced, stream s);
  fp8wire::error reply(const fp8wire::message& m) { return base_.reply(m); }

 private:
  bool is_target(const fp8wire::frame& announced) const noexcept;
  bool bend(fp8wire::message& into);
  fp8wire::error damage(const fp8wire::frame& announced);

  fp8wire::shm_subscriber& base_;
  fault_session& session_;
  const fp8wire::manifest* tensors_ = nullptr;
  const fp8wire::plan* wire_ = nullptr;
  std::deque<fp8wire::message> waiting_;
  std::vector<std::byte> copy_;  // what the engine is shown instead of the slot
  std::vector<std::pair<fp8wire::u32, fp8wire::u64>> sums_;  // of pieces that were changed before they were summed
  fp8wire::i64 given_back_ = -1, repeated_ = -1, kept_ = -1;  // buffers
};

/// An engine's kernels in small: a canonical copy of what came, shuffled codes and transposed scales derived from it,
/// and the checks of C5, C6 and C10 on them.
class engine_checks {
 public:
  /// Expects: all three outlive this.
  engine_checks(const fp8wire::manifest& tensors, const fp8wire::plan& wire, fault_session& session);
  ~engine_checks();
  void take(fp8wire::u32 piece, std::span<const std::byte> bytes);
  /// Derives everything from what came and judges it.
  fp8wire::error judge();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// A store whose finalize asks the checks, where there are any.
template <class Store> class checked_store : public Store {
 public:
  template <class... Arguments>
  explicit checked_store(engine_checks* checks, Arguments&&... arguments)
      : Store(std::forward<Arguments>(arguments)...), checks_(checks) {}
  fp8wire::error write(fp8wire::u32 piece, std::span<const std::byte> from, fp8wire::host_stream s) {
    fp8wire::error wrong = Store::write(piece, from, s);
    if (checks_ != nullptr) checks_->take(piece, from);
    return wrong;
  }
  fp8wire::error finalize(fp8wire::host_stream s) {
    fp8wire::error wrong = Store::finalize(s);
    return wrong || checks_ == nullptr ? wrong : checks_->judge();
  }

 private:
  engine_checks* checks_;
};

}  // namespace programs
#endif
