// SPDX-License-Identifier: Apache-2.0
/// What all programs share: exit codes, one message for each failure, and the check that standard output was written.
#ifndef FP8WIRE_EXAMPLES_PROGRAM_HPP
#define FP8WIRE_EXAMPLES_PROGRAM_HPP
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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
  say(fmt::format("{}: {}{}:{} {}\n", program, colour ? "\033[1;31m" : "", kind, colour ? "\033[0m" : "",
                  plain(text)));
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
      app.parse(count, arguments);
    } catch (const CLI::CallForHelp&) {
      print(app.help());
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
  } catch (const std::bad_alloc&) {
    complain(name, "error", "out of memory");
  } catch (const std::exception& problem) {
    complain(name, "error", problem.what());
  }
  return refused;
}

}  // namespace programs
#endif
