// SPDX-License-Identifier: Apache-2.0
// A user's whole program: it sees the headers, and they are of the version that the build system promised.
#include <cstdio>

#include <fp8wire/core/error.hpp>
#include <fp8wire/version.hpp>

int main() {
  const fp8wire::error failure = fp8wire::make_error(fp8wire::errc::missing, "a.weight", "has no scale");
  std::printf("%.*s: %s\n", static_cast<int>(fp8wire::version.size()), fp8wire::version.data(), failure.message().c_str());
}
