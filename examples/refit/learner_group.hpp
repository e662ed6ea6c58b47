// SPDX-License-Identifier: Apache-2.0
/// `--learners`: several processes train, each its range of every tensor, and one update goes out.
///
/// The leader (rank 0) has the sockets of the engines. The others step their FP32 masters, leave what they export in
/// memory that all share, and say so tensor by tensor; every round ends with one verdict that all of them return.
#ifndef FP8WIRE_EXAMPLES_REFIT_LEARNER_GROUP_HPP
#define FP8WIRE_EXAMPLES_REFIT_LEARNER_GROUP_HPP
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include <fp8wire/wire/message_codec.hpp>

#include "shared_pages.hpp"
#include "update_source.hpp"

namespace programs {

/// One end of a line between two learners; datagrams of a message kind and its payload. Closed by whoever dies.
class learner_line {
 public:
  learner_line() = default;
  explicit learner_line(int descriptor) : descriptor_(descriptor) {}
  learner_line(learner_line&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  learner_line& operator=(learner_line&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~learner_line() { close(); }
  void close() noexcept {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  fp8wire::error send(const fp8wire::message& m, const std::string& peer) {
    bytes_.resize(2);
    fp8wire::detail::store_le(bytes_.data(), static_cast<fp8wire::u16>(m.kind));
    bytes_.insert(bytes_.end(), m.payload.begin(), m.payload.end());
    if (::send(descriptor_, bytes_.data(), bytes_.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes_.size()))
      return {};
    return gone(peer);
  }
  /// Waits without end where `timeout` is negative.
  fp8wire::error receive(fp8wire::message& into, const std::string& peer, std::chrono::milliseconds timeout) {
    pollfd wait{descriptor_, POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&wait, 1, timeout.count() < 0 ? -1 : static_cast<int>(timeout.count()));
    while (ready < 0 && errno == EINTR);
    if (ready == 0)
      return fp8wire::make_error(fp8wire::errc::timeout, peer,
                                 "nothing came within " + std::to_string(timeout.count()) + " ms",
                                 fp8wire::condition::c7_transport);
    bytes_.resize(65536);
    const ssize_t got = ::recv(descriptor_, bytes_.data(), bytes_.size(), 0);
    if (got < 2) return gone(peer);
    into.kind = static_cast<fp8wire::message_kind>(fp8wire::detail::load_le<fp8wire::u16>(bytes_.data()));
    into.payload.assign(bytes_.begin() + 2, bytes_.begin() + got);
    return {};
  }

 private:
  static fp8wire::error gone(const std::string& peer) {
    return fp8wire::make_error(fp8wire::errc::peer_lost, peer, "is gone", fp8wire::condition::c7_transport);
  }
  int descriptor_ = -1;
  std::vector<std::byte> bytes_;
};

/// Made before the learners are forked; each of them keeps its own ends by `become`.
class learner_group {
 public:
  learner_group() = default;
  learner_group(const std::vector<source_tensor>& source, int learners, std::chrono::milliseconds timeout)
      : learners_(learners), timeout_(timeout) {
    if (learners == 1) return;
    std::size_t total = 0;
    for (const source_tensor& one : source) {
      offsets_.push_back(total);
      total += (one.bytes.size() + 63) / 64 * 64;
    }
    exports_ = shared_pages(total);
    for (int p = 1; p < learners; ++p) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        refuse("no line to learner {}: {}", p, std::strerror(errno));
      leading_.emplace_back(ends[0]);
      following_.emplace_back(ends[1]);
    }
    exported_.assign(leading_.size(), 0);
  }

  int learners() const noexcept { return learners_; }
  int rank() const noexcept { return rank_; }
  /// Where a tensor's export lies; null where there is one learner, who needs no such place.
  std::byte* exported(std::size_t tensor) const noexcept {
    return exports_.empty() ? nullptr : exports_.data() + offsets_[tensor];
  }
  /// To be called first in the process of learner `rank`; with -1 by everybody who is none.
  void become(int rank) noexcept {
    rank_ = rank;
    if (rank != 0) leading_.clear();
    for (std::size_t p = 0; p < following_.size(); ++p)
      if (static_cast<int>(p) + 1 != rank) following_[p].close();
  }

  /// The leader: everybody exports `version` now. Errors: peer_lost.
  fp8wire::error begin(fp8wire::u64 version) {
    for (std::size_t p = 0; p < leading_.size(); ++p) {
      exported_[p] = 0;
      fp8wire::encode_version(fp8wire::message_kind::begin, version, message_);
      if (fp8wire::error wrong = leading_[p].send(message_, name(p))) return wrong;
    }
    return {};
  }
  /// The leader: waits until all parts of a tensor are exported. Errors: peer_lost, timeout, and a follower's own; of
  /// several the one of the lowest rank.
  fp8wire::error await(std::size_t tensor) {
    for (std::size_t p = 0; p < leading_.size(); ++p)
      while (exported_[p] <= tensor) {
        if (fp8wire::error wrong = leading_[p].receive(message_, name(p), timeout_)) return wrong;
        fp8wire::u64 number = 0;
        fp8wire::error why;
        if (fp8wire::error wrong = fp8wire::decode_verdict(message_, number, why)) return wrong;
        if (why) return why;
        ++exported_[p];
      }
    return {};
  }
  /// The leader: how the round ended, empty for well. All followers hear the same.
  void end(fp8wire::u64 version, const fp8wire::error& verdict) {
    fp8wire::encode_verdict(fp8wire::message_kind::committed, version, verdict, message_);
    // Who cannot hear it is gone.
    for (std::size_t p = 0; p < leading_.size(); ++p) static_cast<void>(leading_[p].send(message_, name(p)));
  }

  /// A follower: waits for a round to begin, as long as it takes; version 0: there will be none.
  fp8wire::error next(fp8wire::u64& version) {
    fp8wire::message& m = message_;
    if (fp8wire::error wrong = mine().receive(m, leader(), std::chrono::milliseconds(-1))) return wrong;
    if (m.kind != fp8wire::message_kind::begin) return verdict();
    return fp8wire::decode_version(m, version);
  }
  /// A follower: its part of a tensor is exported, or why it is not.
  fp8wire::error export_done(std::size_t tensor, const fp8wire::error& why = {}) {
    fp8wire::encode_verdict(fp8wire::message_kind::vote, tensor, why, message_);
    return mine().send(message_, leader());
  }
  /// A follower: how the round ended for all.
  fp8wire::error await_end() {
    if (fp8wire::error wrong = mine().receive(message_, leader(), std::chrono::milliseconds(-1))) return wrong;
    return verdict();
  }

 private:
  static std::string leader() { return "learner 0"; }
  static std::string name(std::size_t follower) { return "learner " + std::to_string(follower + 1); }
  learner_line& mine() noexcept { return following_[static_cast<std::size_t>(rank_ - 1)]; }
  fp8wire::error verdict() const {
    fp8wire::u64 version = 0;
    fp8wire::error why;
    if (fp8wire::error wrong = fp8wire::decode_verdict(message_, version, why)) return wrong;
    return why;
  }

  int learners_ = 1, rank_ = 0;
  std::chrono::milliseconds timeout_{10000};
  std::vector<std::size_t> offsets_;
  shared_pages exports_;
  std::vector<learner_line> leading_, following_;  // ends of the leader and of the others, in order of rank
  std::vector<std::size_t> exported_;  // tensors of this round, by follower
  fp8wire::message message_;
};

}  // namespace programs
#endif
