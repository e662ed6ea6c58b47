// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "update_fixture.hpp"

namespace fw = fp8wire;
using fw::commit_mode;
using fw::condition;
using fw::errc;

TEST_CASE_TEMPLATE("updates arrive byte for byte over late copies, in both modes", Wire, test::block_wire,
                   test::mx_wire) {
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    for (const fw::u64 capacity : {1u, 4500u, 9000u, 20900u, 1u << 20}) {
      for (const bool split : {false, true}) {
        CAPTURE(capacity);
        CAPTURE(split);
        test::world<Wire, fake::late_backend> w(test::small_model(), {capacity, 256, 2, split, false}, mode);
        for (unsigned version = 1; version <= 3; ++version) {
          const test::model from = test::small_model(version);
          const fw::error wrong = w.update(version, from);
          INFO(wrong.message());
          REQUIRE(!wrong);
          CHECK(w.learner.committed() == version);
          for (std::size_t side = 0; side < 2; ++side) {
            CHECK(w.sides[side]->receiver.serving() == version);
            CHECK(w.serves(side, from));
            CHECK(w.sides[side]->store.finalized == static_cast<int>(version));
            CHECK(w.sides[side]->store.syncs == static_cast<int>(version));
          }
          CHECK(w.net.leases_out == 0);
        }
      }
    }
  }
}
