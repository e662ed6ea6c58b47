// SPDX-License-Identifier: Apache-2.0
/// The processes that fp8-refit starts, and how each of them ended.
#ifndef FP8WIRE_EXAMPLES_REFIT_FAMILY_HPP
#define FP8WIRE_EXAMPLES_REFIT_FAMILY_HPP
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "../common/program.hpp"

namespace programs {

/// Ranks of engines first, learners behind them, the leader last. Destroyed it ends everybody who is left.
class family {
 public:
  explicit family(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  family(const family&) = delete;
  family& operator=(const family&) = delete;
  ~family() {
    for (const member& one : members_)
      if (!one.ended) ::kill(one.pid, SIGKILL);
    for (const member& one : members_)
      if (!one.ended) ::waitpid(one.pid, nullptr, 0);
  }

  /// Runs `body` in a new process, which dies with this one. `body` returns the exit code.
  template <class Body> void start(std::string name, const Body& body) {
    const pid_t parent = ::getpid(), child = ::fork();
    if (child < 0) refuse("{}: no new process: {}", name, std::strerror(errno));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(refused);  // it died before the line above
      allow_interruption();
      int code = refused;
      try {
        code = body();
      } catch (const std::exception& problem) {
        complain("fp8-refit", name, problem.what());
      }
      ::_exit(code);
    }
    members_.push_back({std::move(name), child, 0, false, {}, {}});
  }
  /// Takes note of everybody who has ended, stopped or gone on. True once all have ended.
  bool all_ended() {
    for (member& one : members_) {
      int status = 0;
      if (one.ended || ::waitpid(one.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != one.pid) continue;
      if (WIFSTOPPED(status)) one.stopped = clock::now();
      else if (WIFCONTINUED(status)) one.stopped.reset();
      else one.ended = true, one.status = status;
    }
    return ended(0, members_.size());
  }
  /// Ends who has been stopped for longer than peers are waited for, and who is still here that long after the learner
  /// or all engines have gone.
  void end_stuck(std::chrono::milliseconds timeout) {
    const auto now = clock::now();
    if (!alone_ && (ended(0, ranks_) || (!members_.empty() && members_.back().ended))) alone_ = now;
    for (member& one : members_) {
      if (one.ended || !one.stuck.empty()) continue;
      // Peers notice first, if they can, and say more.
      if (one.stopped && now - *one.stopped > timeout + std::chrono::milliseconds(500))
        one.stuck = fmt::format("was stopped for longer than {} ms", timeout.count());
      else if (alone_ && now - *alone_ > timeout + std::chrono::seconds(1))
        one.stuck = fmt::format("did not end within {} ms after the others", timeout.count());
      if (!one.stuck.empty()) ::kill(one.pid, SIGKILL);
    }
  }

  /// A process that is gone serves nothing, whatever it last said.
  bool died(std::size_t rank) const { return members_[rank].ended && WIFSIGNALED(members_[rank].status); }
  /// "engine 1 (pid 123) was killed by signal 9", of somebody who did not have to be ended; or nothing.
  std::string killed() const {
    for (const member& one : members_)
      if (one.ended && WIFSIGNALED(one.status) && one.stuck.empty())
        return fmt::format("{} (pid {}) was killed by signal {}", one.name, one.pid, WTERMSIG(one.status));
    return {};
  }
  /// "learner (pid 123) was stopped for longer than 1000 ms", everybody whom end_stuck ended; or nothing.
  std::string stuck() const {
    std::string all;
    for (const member& one : members_)
      if (!one.stuck.empty())
        all += fmt::format("{}{} (pid {}) {}", all.empty() ? "" : ", ", one.name, one.pid, one.stuck);
    return all;
  }

 private:
  using clock = std::chrono::steady_clock;
  struct member {
    std::string name;
    pid_t pid = -1;
    int status = 0;
    bool ended = false;
    std::optional<clock::time_point> stopped;  // since when
    std::string stuck;  // why it was ended
  };
  bool ended(std::size_t first, std::size_t last) const {
    for (std::size_t i = first; i < last; ++i)
      if (i >= members_.size() || !members_[i].ended) return false;
    return true;
  }
  std::size_t ranks_;
  std::vector<member> members_;
  std::optional<clock::time_point> alone_;  // since when one side is gone
};

}  // namespace programs
#endif
