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

TEST_CASE("another hello between updates changes the manifest; a refused one changes nothing, and versions go on") {
  using wire_type = test::block_wire;
  const test::model first = test::small_model();
  test::model second = test::small_model(2);
  second.push_back({"l2.late.weight", "l2.late.weight", {70, 32}, true, test::values_of(70 * 32, 77)});
  test::model strange = second;
  strange.back().name = strange.back().unit = "l2.strange.weight";
  const fw::manifest before = test::manifest_of<wire_type>(first), after = test::manifest_of<wire_type>(second);
  const std::string name = fresh_name();

  std::vector<fw::u64> served;
  std::vector<std::string> said;
  bool right = true;
  std::thread engine([&] {
    auto link = fw::shm_subscriber::connect(name, 0).value();
    std::vector<fw::error> reasons;
    auto agreed = std::make_unique<fw::agreement>();
    if (fw::join<fw::json_text>(link, before, {}, *agreed, reasons)) return;
    fw::u64 begun = 0;
    for (bool open = true; open;) {
      const bool late = agreed->tensors.find_item("l2.late.weight") >= 0;
      const auto expected = test::expected_bytes<wire_type>(agreed->tensors, late ? second : first);
      fw::host_store<> store(agreed->tensors, agreed->wire, fw::commit_mode::staged);
      fw::receiver<fw::host_store<>> receiver(agreed->tensors, agreed->wire, store, begun);
      fw::engine<fw::shm_subscriber, fw::receiver<fw::host_store<>>> loop(link, receiver);
      for (bool same = true; same;) {
        fw::engine_event event{};
        if (const fw::error wrong = loop.step({}, event)) said.push_back(wrong.message());
        if (event == fw::engine_event::closed || event == fw::engine_event::lost) open = same = false;
        if (event == fw::engine_event::committed) {
          served.push_back(receiver.serving());
          for (std::size_t e = 0; e < agreed->tensors.entries().size(); ++e) {
            const auto got = store.bytes(e);
            const auto& wanted = expected.at(agreed->tensors.entries()[e].name);
            right = right && std::equal(got.begin(), got.end(), wanted.begin(), wanted.end());
          }
        }
        if (event != fw::engine_event::offered) continue;
        auto next = std::make_unique<fw::agreement>();
        if (const fw::error refused = fw::join<fw::json_text>(link, after, {}, *next, reasons, &loop.offer())) {
          said.push_back(refused.message());
          CHECK(receiver.serving() == 1);
          continue;
        }
        begun = receiver.begun();
        agreed = std::move(next);
        same = false;
      }
    }
  });

  auto link = fw::shm_publisher::listen(name, 1).value();
  REQUIRE(!link.accept());
  std::vector<fw::error> reasons;
  const auto update = [&](const fw::manifest& tensors, const test::model& model, fw::u64 version) -> fw::error {
    fw::agreement agreed;
    if (fw::error wrong = fw::offer<fw::json_text>(link, tensors, {9000, 256, 2, true, false}, "", agreed, reasons))
      return wrong;
    if (fw::error wrong = link.allocate(agreed.wire.options().slots, agreed.wire.slot_bytes())) return wrong;
    fw::sender<wire_type, fw::shm_publisher> learner(agreed.tensors, agreed.wire, link);
    fw::error wrong = learner.begin(version);
    for (const test::tensor& one : model)
      if (!wrong)
        wrong = one.quantized ? learner.put(one.name, test::view_of(one), {})
                              : learner.keep(one.name, one.values.data(), one.values.size() * 2, {});
    return wrong ? wrong : learner.finish({});
  };
  CHECK(!update(before, first, 1));
  CHECK(update(test::manifest_of<wire_type>(strange), strange, 2).code == fw::errc::missing);
  CHECK(update(after, second, 1).code == fw::errc::stale_version);
  CHECK(!update(after, second, 2));
  CHECK(!link.broadcast({fw::message_kind::bye, {}}));
  engine.join();
  CHECK(served == std::vector<fw::u64>{1, 2});
  CHECK(right);
  REQUIRE(!said.empty());
  CHECK(said[0].find("l2.late.weight") != std::string::npos);
}
