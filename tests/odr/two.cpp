// SPDX-License-Identifier: Apache-2.0
// The other one: built as -std=c++2b and, where the machine has it, with AVX2.
#include "facts.hpp"

std::vector<std::size_t> facts_of_two() { return facts(); }
const void* function_of_two() { return raise_address(); }
