// SPDX-License-Identifier: Apache-2.0
/// A progress bar on standard error, for terminals and for work that is long.
#ifndef FP8WIRE_EXAMPLES_PROGRESS_HPP
#define FP8WIRE_EXAMPLES_PROGRESS_HPP
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <fp8wire/core/bits.hpp>

#include "program.hpp"

namespace programs {

/// Draws at most ten times a second, nothing in the first second, and removes what it drew.
/// Threads: one at a time.
class progress {
 public:
  progress(std::string label, fp8wire::u64 total_bytes)
      : label_(std::move(label)), total_((std::max)(total_bytes, fp8wire::u64{1})) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() {
    if (drawn_) say("\r\033[K");
  }

  void add(fp8wire::u64 bytes) {
    done_ += bytes;
    const auto now = clock::now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double part = (std::min)(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const auto filled = static_cast<std::size_t>(part * width);
    say(fmt::format("\r\033[K{} [{:=<{}}{: <{}}] {:3.0f} % {:.2f} GB/s", label_, "", filled, "", width - filled,
                     part * 100, static_cast<double>(done_) / seconds / 1e9));
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t width = 40;
  std::string label_;
  fp8wire::u64 total_, done_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) == 1, drawn_ = false;
  clock::time_point start_ = clock::now(), next_ = start_ + std::chrono::seconds(1);
};

}  // namespace programs
#endif
