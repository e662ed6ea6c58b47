// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdio>
#include <vector>

std::vector<std::size_t> facts_of_one();
std::vector<std::size_t> facts_of_two();
const void* function_of_one();
const void* function_of_two();

int main() {
  if (facts_of_one() != facts_of_two()) return std::puts("the two translation units disagree about a type's size"), 1;
  if (function_of_one() != function_of_two()) return std::puts("an inline function exists twice"), 1;
}
