// SPDX-License-Identifier: Apache-2.0
/// What the operating system refused, as an error that names the file and the reason.
#ifndef FP8WIRE_IO_SYSTEM_ERROR_HPP
#define FP8WIRE_IO_SYSTEM_ERROR_HPP
#include <string>
#include <string_view>
#include <system_error>

#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// "out.safetensors: cannot create: No space left on device". `number` is an errno.
inline error system_error(std::string_view path, std::string_view what, int number) {
  // Not strerror: it shares one buffer between threads.
  return make_error(errc::bad_file, std::string(path),
                    std::string(what).append(": ").append(std::generic_category().message(number)));
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
