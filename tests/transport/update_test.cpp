// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/transport/shm.hpp>

#include "../wire/count_allocations.hpp"
#include "../wire/update_fixture.hpp"

namespace fw = fp8wire;

namespace {

std::string fresh_name() {
  return "@fp8wire-update-test-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}());
}

// One engine of a real update: joins, serves until bye, checks what it serves by checksum.
struct engine_thread {
  int number;
  std::string name;
  fw::manifest expected;
  fw::commit_mode mode;
  std::vector<std::vector<fw::u64>> sums;  // of each version, each entry
  std::vector<fw::u64> served;
  int wrong_bytes = 0;
  fw::error ended;

  void operator()() {
    auto link = fw::shm_subscriber::connect(name, number);
    if (!link) {
      ended = link.error();
      return;
    }
    fw::engine_terms terms;
    terms.mode = mode;
    fw::agreement agreed;
    std::vector<fw::error> reasons;
    ended = fw::join<fw::json_text>(*link, expected, terms, agreed, reasons);
    if (ended) return;
    fw::host_store<> store(agreed.tensors, agreed.wire, mode);
    fw::receiver<fw::host_store<>> receiver(agreed.tensors, agreed.wire, store);
    fw::engine<fw::shm_subscriber, fw::receiver<fw::host_store<>>> loop(*link, receiver);
    for (fw::engine_event event{}; event != fw::engine_event::closed && event != fw::engine_event::lost;) {
      ended = loop.step({}, event);
      if (event != fw::engine_event::committed) continue;
      served.push_back(receiver.serving());
      const auto& wanted = sums[static_cast<std::size_t>(receiver.serving() - 1)];
      for (std::size_t e = 0; e < wanted.size(); ++e)
        wrong_bytes += fw::checksum(store.bytes(e).data(), store.bytes(e).size()) == wanted[e] ? 0 : 1;
    }
  }
};

}  // namespace

TEST_CASE("updates cross processes' memory byte for byte, and after the first one nobody allocates") {
  using wire_type = test::block_wire;
  constexpr unsigned versions = 6;
  for (const fw::commit_mode mode : {fw::commit_mode::staged, fw::commit_mode::in_place}) {
    std::vector<test::model> models;
    const fw::manifest tensors = test::manifest_of<wire_type>(test::small_model());
    std::vector<std::vector<fw::u64>> sums;
    for (unsigned version = 1; version <= versions; ++version) {
      models.push_back(test::small_model(version));
      const auto expected = test::expected_bytes<wire_type>(tensors, models.back());
      sums.emplace_back();
      for (const auto& entry : tensors.entries())
        sums.back().push_back(fw::checksum(expected.at(entry.name).data(), expected.at(entry.name).size()));
    }
    const std::string name = fresh_name();
    auto link = fw::shm_publisher::listen(name, 2);
    REQUIRE(link);
    engine_thread engines[2];
    for (int e = 0; e < 2; ++e) {
      engines[e] = {e, name, tensors, mode, sums, {}, 0, {}};
      engines[e].served.reserve(versions);
    }
    std::thread threads[2] = {std::thread(std::ref(engines[0])), std::thread(std::ref(engines[1]))};
    fw::agreement agreed;
    std::vector<fw::error> reasons;
    fw::error wrong = link->accept();
    if (!wrong) wrong = fw::offer<fw::json_text>(*link, tensors, {9000, 256, 2, true, false}, "", agreed, reasons);
    if (!wrong) wrong = link->allocate(agreed.wire.options().slots, agreed.wire.slot_bytes());
    std::vector<std::size_t> allocated;
    if (!wrong) {
      fw::sender<wire_type, fw::shm_publisher> learner(agreed.tensors, agreed.wire, *link);
      allocated.reserve(versions);
      for (unsigned version = 1; version <= versions && !wrong; ++version) {
        const std::size_t before = allocations;
        wrong = learner.begin(version);
        for (const test::tensor& one : models[version - 1]) {
          if (wrong) break;
          wrong = one.quantized ? learner.put(one.name, test::view_of(one), {})
                                : learner.keep(one.name, one.values.data(), one.values.size() * 2, {});
        }
        if (!wrong) wrong = learner.finish({});
        allocated.push_back(allocations - before);
      }
    }
    if (!wrong) wrong = link->broadcast({fw::message_kind::bye, {}});
    for (std::thread& one : threads) one.join();
    INFO(wrong.message());
    CHECK(!wrong);
    for (const engine_thread& one : engines) {
      INFO(one.ended.message());
      CHECK(!one.ended);
      CHECK(one.served == std::vector<fw::u64>{1, 2, 3, 4, 5, 6});
      CHECK(one.wrong_bytes == 0);
    }
    // Learner and both engines are threads of this process: all of their allocations are counted.
    REQUIRE(allocated.size() == versions);
    CHECK(allocated[0] > 0);
    for (unsigned version = 2; version < versions; ++version) CHECK(allocated[version] == 0);
  }
}
