// SPDX-License-Identifier: Apache-2.0
/// What all programs share: exit codes, one message for each failure, and the check that standard output was written.
#ifndef FP8WIRE_EXAMPLES_PROGRAM_HPP
#define FP8WIRE_EXAMPLES_PROGRAM_HPP
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <fp8wire/core/error.hpp>
#include <fp8wire/version.hpp>

namespace programs {

/// 0: done. 1: the input or the update was refused. 2: wrong usage, or something this build or machine cannot do.
enum exit_code : int { done = 0, refused = 1, wrong_usage = 2 };

/// Ends the program with exit code 1 or 2 and one message; `run` prints it.
struct failure : std::runtime_error {
  failure(exit_code with, const std::string& message) : std::runtime_error(message), code(with) {}
  exit_code code;
};
template <class... Arguments> [[noreturn]] void refuse(fmt::format_string<Arguments...> text,
                                                       Arguments&&... arguments) {
  throw failure(refused, fmt::format(text, std::forward<Arguments>(arguments)...));
}
template <class... Arguments> [[noreturn]] void misuse(fmt::format_string<Arguments...> text,
                                                       Arguments&&... arguments) {
  throw failure(wrong_usage, fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// For unsigned options: CLI11 takes -1 for 2^64 - 1.
inline CLI::Validator whole_number(fp8wire::u64 least, fp8wire::u64 most) {
  return CLI::Validator(
      [=](const std::string& text) {
        fp8wire::u64 value = 0;
        const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = bad == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
        return good ? std::string() : fmt::format("{}: a whole number in {} .. {} is wanted", text, least, most);
      },
      "", "whole number");
}

/// Turns the library's errors into refusals.
inline void must(const fp8wire::error& problem) {
  if (problem) throw failure(refused, problem.message());
}
template <class Value> Value must(fp8wire::result<Value> outcome) {
  must(outcome.error());
  return std::move(outcome).value();
}

/// Whether escape sequences may go to that descriptor.
inline bool colour_on(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') && isatty(descriptor) == 1 &&
         !(terminal != nullptr && std::string_view(terminal) == "dumb");
}

/// Text for people, on standard error. That nobody can read it there is no failure.
inline void say(std::string_view text) noexcept { static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr)); }

/// Text with its control characters as \xNN: a name from a file must not steer a terminal, nor look like more lines.
inline std::string plain(std::string_view text) {
  std::string shown;
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool in_two_bytes = at(i) == 0xC2 && i + 1 < text.size() && at(i + 1) < 0xA0;  // U+0080 to U+009F
    if (in_two_bytes) shown += fmt::format("\\x{:02x}\\x{:02x}", at(i), at(i + 1)), ++i;
    else if (at(i) < 0x20 || at(i) == 0x7F) shown += fmt::format("\\x{:02x}", at(i));
    else shown += text[i];
  }
  return shown;
}

/// A message on standard error: "fp8-convert: error: layers.0...".
inline void complain(std::string_view program, std::string_view kind, std::string_view text) {
  const bool colour = colour_on(STDERR_FILENO);
  say(fmt::format("{}: {}{}:{} {}\n", program, colour ? "\033[1;31m" : "", kind, colour ? "\033[0m" : "", plain(text)));
}

/// Data for standard output, or for the file an option names; "-" is standard output.
inline void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    refuse("standard output cannot be written: {}", std::strerror(errno));
}

/// True where all of it was written. A flush that failed leaves nothing for the next one to fail with.
inline bool finish_output() noexcept { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

/// Standard streams that the caller closed become ones that fail, so that no file opened later gets their number and
/// takes messages for its data.
inline void hold_standard_streams() noexcept {
  for (int stream = 0; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

/// SIGINT, SIGTERM or SIGHUP came: what was begun is cleaned up on the way out, and `run` ends with that signal.
struct interruption {
  int signal = 0;
};

inline sigset_t interrupting_signals() noexcept {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int kind : {SIGINT, SIGTERM, SIGHUP}) {
    // nohup's answer to SIGHUP stands.
    struct sigaction how{};
    if (::sigaction(kind, nullptr, &how) == 0 && how.sa_handler != SIG_IGN) sigaddset(&signals, kind);
  }
  return signals;
}

/// From its first call on, such signals wait for the next one.
inline void expect_no_interruption() {
  const sigset_t signals = interrupting_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const timespec at_once{};
  if (const int came = ::sigtimedwait(&signals, nullptr, &at_once); came > 0) throw interruption{came};
}

/// For a process that was forked since: signals end it at once.
inline void allow_interruption() noexcept {
  const sigset_t signals = interrupting_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

/// Ends this process as that signal would have.
[[noreturn]] inline void end_by(int signal) noexcept {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  static_cast<void>(std::raise(signal));
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::_exit(refused);
}

/// What CLI11 would read as something else: "--dump=" takes the next argument, and "" is nothing.
inline void expect_values(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string_view one = arguments[i];
    if (one == "--") break;
    if (one.empty()) misuse("argument {} is empty", i);
    if (one.starts_with("--") && one.find('=') == one.size() - 1) misuse("{}: a value is wanted behind the =", one);
  }
}

/// Parses the command line, runs `body` and turns every way it can end into an exit code.
/// A failure to write standard output (a full disk, a closed pipe) is a failure of the program.
template <class Body> int run(CLI::App& app, int count, char** arguments, Body&& body) {
  hold_standard_streams();
  // A reader that left and a file over the limit are errors to report, not a death without a clean-up.
  for (const int kind : {SIGPIPE, SIGXFSZ}) std::signal(kind, SIG_IGN);
  const std::string name = app.get_name();
  app.set_version_flag("--version", name + " " + std::string(fp8wire::version_string));
  try {
    try {
      expect_values(count, arguments);
      app.parse(count, arguments);
    } catch (const CLI::CallForHelp&) {
      std::string help = app.help();
      while (help.ends_with('\n')) help.pop_back();
      print(help + "\n");
      return finish_output() ? done : refused;
    } catch (const CLI::CallForVersion& version) {
      print(std::string(version.what()) + "\n");
      return finish_output() ? done : refused;
    } catch (const CLI::ParseError& wrong) {
      misuse("{} (try {} --help)", wrong.what(), name);
    }
    const int code = body();
    if (!finish_output()) refuse("standard output cannot be written: {}", std::strerror(errno));
    return code;
  } catch (const failure& problem) {
    std::fflush(stdout);
    complain(name, "error", problem.what());
    return problem.code;
  } catch (const interruption& by) {
    end_by(by.signal);
  } catch (const std::bad_alloc&) {
    complain(name, "error", "out of memory");
  } catch (const std::exception& problem) {
    complain(name, "error", problem.what());
  }
  return refused;
}

}  // namespace programs
#endif
