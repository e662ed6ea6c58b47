// SPDX-License-Identifier: Apache-2.0
// A build without C++20 is told so in one sentence.
// FLAGS: -std=c++17
// EXPECT: fp8wire needs C\+\+20: compile with -std=c\+\+20
#include <fp8wire/config.hpp>
