// SPDX-License-Identifier: Apache-2.0
/// What learner and engines tell the process that started them, over one pipe.
#ifndef FP8WIRE_EXAMPLES_REFIT_REPORTS_HPP
#define FP8WIRE_EXAMPLES_REFIT_REPORTS_HPP
#include <unistd.h>

#include <cstring>
#include <string>

#include <fp8wire/core/error.hpp>
#include <fp8wire/model/masters.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

namespace programs {

/// A learner is `who` -1, an engine its number. Small enough for one write to be whole however many write at once.
struct report {
  enum class kind : fp8wire::u32 {
    sent,  // learner: `version` is committed on all engines; bytes, buffers, seconds, quantize, transfer, allocations
    serving,  // engine: serves `version` from now on; load seconds
    refused,  // `text` says why an update was refused or a process gave up; an engine says what it serves then
    closed  // engine: left in good order, serving `version`
  };
  kind what{};
  int who = -1;
  fp8wire::u64 version = 0, bytes = 0, buffers = 0, allocations = 0;
  double seconds = 0, quantize_seconds = 0, transfer_seconds = 0, load_seconds = 0;
  fp8wire::refresh_counts refresh;  // of --fp8-param, all learners; no masters: it is off
  fp8wire::start_report start;  // of --fp8-param, the leader's
  bool lost_peer = false;  // the reason is that somebody else is gone
  char text[3072] = {};

  void say(const fp8wire::error& why) {
    lost_peer = why.code == fp8wire::errc::peer_lost || why.code == fp8wire::errc::timeout;
    std::string message = why.message();
    if (why.code == fp8wire::errc::nonfinite && why.what.starts_with("holds NaN or Inf"))
      message.append("; --nonfinite tool lets the preset's own rule decide, --keep '")
          .append(why.tensor)
          .append("' leaves the tensor as it is");
    const std::size_t length = message.size() < sizeof(text) - 1 ? message.size() : sizeof(text) - 1;
    std::memcpy(text, message.data(), length);
    text[length] = '\0';
  }
};
static_assert(sizeof(report) <= 4096, "a pipe keeps writes of up to PIPE_BUF bytes whole");

/// False where the reader is gone.
inline bool send(int pipe, const report& one) noexcept { return ::write(pipe, &one, sizeof(one)) == sizeof(one); }

}  // namespace programs
#endif
