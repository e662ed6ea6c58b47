// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <fp8wire/detail/name_order.hpp>

using fp8wire::detail::name_order;

TEST_CASE("names are found by their bytes, and a name that stands twice is known") {
  const std::vector<std::string> names = {"b", "a", "", "\xC3\xA9", "B", "ab", "b"};
  const auto at = [&](std::size_t i) -> const std::string& { return names[i]; };
  const name_order order(names.size(), at);
  CHECK(order.positions() == std::vector<std::size_t>{2, 4, 1, 5, 0, 6, 3});
  CHECK(order.find("b", at) == 0);
  CHECK(order.find("\xC3\xA9", at) == 3);
  CHECK(order.find("", at) == 2);
  CHECK(order.find("c", at) == -1);
  CHECK(order.find("zz", at) == -1);
  CHECK(order.duplicate(at) == 6);
  CHECK(name_order(6, at).duplicate(at) == -1);
  CHECK(name_order().find("b", at) == -1);
  CHECK(name_order(0, at).duplicate(at) == -1);
}
