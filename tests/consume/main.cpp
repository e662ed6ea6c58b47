// SPDX-License-Identifier: Apache-2.0
// A user's whole program: it sees the headers, and they are of the version that the build system promised.
#include <cstdio>
#include <string>

#include <fp8wire/fp8wire.hpp>

int main() {
  const fp8wire::error failure = fp8wire::make_error(fp8wire::errc::missing, "a.weight", "has no scale");
  std::puts((std::string(fp8wire::version_string) + ": " + failure.message()).c_str());
}
