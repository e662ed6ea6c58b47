// SPDX-License-Identifier: Apache-2.0
// doctest's own code and main(), compiled once for all test programs.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
