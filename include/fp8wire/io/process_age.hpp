// SPDX-License-Identifier: Apache-2.0
/// Whether the process that left a file behind is gone, from the number in the file's name.
#ifndef FP8WIRE_IO_PROCESS_AGE_HPP
#define FP8WIRE_IO_PROCESS_AGE_HPP
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// What /proc says of a process: state letter, and start in nanoseconds of the wall clock. False where there is no
/// /proc.
inline bool look_at_process(pid_t process, char& state, i64& started) noexcept {
  char path[64] = "/proc/", text[1024];
  std::to_chars_result end = std::to_chars(path + 6, path + 32, process);
  for (const char c : std::string_view("/stat")) *end.ptr++ = c;
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t size = ::read(file, text, sizeof(text));
  ::close(file);
  // "PID (any name) S 1 ...": the start is the 20th word behind the name, in ticks since the machine started.
  std::string_view rest(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t name_end = rest.rfind(") ");
  if (name_end == std::string_view::npos) return false;
  rest.remove_prefix(name_end + 2);
  if (rest.empty()) return false;
  state = rest.front();
  for (int word = 1; word < 20; ++word) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) return false;
    rest.remove_prefix(space + 1);
  }
  i64 ticks = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), ticks).ec != std::errc{}) return false;
  timespec wall{}, running{};
  const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
  if (ticks_per_second <= 0 || ::clock_gettime(CLOCK_REALTIME, &wall) != 0 ||
      ::clock_gettime(CLOCK_BOOTTIME, &running) != 0)
    return false;
  constexpr i64 second = 1'000'000'000;
  started =
      (wall.tv_sec - running.tv_sec) * second + (wall.tv_nsec - running.tv_nsec) + ticks * (second / ticks_per_second);
  return true;
}

/// Whether `path`, named after process `digits`, belongs to nobody: that process is gone, or has its number from later
/// than the last change of `path`. Numbers come back quickly in containers, where a program is process 1 or 7 every
/// time.
inline bool is_left_over(const std::string& path, std::string_view digits) noexcept {
  pid_t process = 0;
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  if (bad != std::errc{} || end != digits.data() + digits.size() || process <= 0 || digits.front() == '0') return false;
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  char state = '?';
  i64 started = 0;
  struct stat status{};
  if (!look_at_process(process, state, started) || ::lstat(path.c_str(), &status) != 0) return false;
  if (state == 'Z' || state == 'X') return true;
  constexpr i64 second = 1'000'000'000;
  const i64 changed = i64{status.st_mtim.tv_sec} * second + status.st_mtim.tv_nsec;
  return started > changed + second;  // a second for clocks that differ
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
