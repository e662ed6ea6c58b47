// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "update_fixture.hpp"

namespace fw = fp8wire;
using fw::commit_mode;
using fw::condition;
using fw::errc;
using fw::message_kind;
using test::block_wire;

namespace {

using world = test::world<block_wire, fake::late_backend>;
constexpr fw::plan_options small{1, 256, 2, false, false};  // every unit has a buffer of its own

// One update whose messages to engine 1 a fault bends; afterwards both engines must be in the promised state.
template <class Fault> fw::error with_fault(commit_mode mode, const Fault& bend, bool written = true) {
  const test::model first = test::small_model(1), second = test::small_model(2), third = test::small_model(3);
  world w(first, small, mode);
  REQUIRE(!w.update(1, first));
  bend(w);
  const fw::error wrong = w.update(2, second);
  REQUIRE(wrong);
  INFO(wrong.message());
  CHECK(w.net.leases_out == 0);  // every lease came back, whatever the frame was worth
  for (std::size_t side = 0; side < 2; ++side) {
    CHECK(w.sides[side]->store.finalized <= 2);
    CHECK(w.sides[side]->store.published == std::vector<fw::u64>{1});
    if (mode == commit_mode::staged) {
      CHECK(w.sides[side]->receiver.serving() == 1);
      CHECK(w.serves(side, first));
    } else {
      CHECK(w.sides[side]->receiver.serving() == (written || side == 0 ? 0u : 1u));
    }
  }
  w.net.to_engine = [](int, fw::message&) { return true; };
  w.net.landed = [](int, const fw::frame&, std::span<std::byte>) {};
  const fw::error later = w.update(3, third);
  INFO(later.message());
  REQUIRE(!later);
  for (std::size_t side = 0; side < 2; ++side) {
    CHECK(w.sides[side]->receiver.serving() == 3);
    CHECK(w.serves(side, third));
  }
  return wrong;
}

// Changes every data frame to engine 1 with that number.
auto frame_fault(fw::u32 buffer, void (*bend)(fw::frame&)) {
  return [=](world& w) {
    w.net.to_engine = [=](int engine, fw::message& m) {
      if (engine != 1 || m.kind != message_kind::data) return true;
      fw::frame f = fw::decode_frame(m).value();
      if (f.buffer == buffer) bend(f);
      fw::encode(f, m);
      return true;
    };
  };
}

}  // namespace

TEST_CASE("a lost frame is refused with the tensors it carried") {
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    const auto lose = [](fw::u32 buffer) {
      return [=](world& w) {
        w.net.to_engine = [=](int engine, fw::message& m) {
          return engine != 1 || m.kind != message_kind::data || fw::decode_frame(m)->buffer != buffer;
        };
      };
    };
    fw::error wrong = with_fault(mode, lose(1));
    CHECK(wrong.code == errc::out_of_order);
    CHECK(wrong.broken == condition::c3_complete_pairs);
    CHECK(wrong.rank == 1);
    CHECK(wrong.what.find(
              "missing keys (4): [l0.gate.weight, l0.gate.weight_scale_inv, l0.up.weight, l0.up.weight_scale_inv]") !=
          std::string::npos);
    wrong = with_fault(mode, lose(7));  // the last buffer
    CHECK(wrong.code == errc::missing);
    CHECK(wrong.tensor == "l1.kv_scale");
    CHECK(wrong.what == "missing keys (1): [l1.kv_scale]");
  }
}

TEST_CASE("a frame of another protocol, plan, version, buffer or size is refused by name") {
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    fw::error wrong = with_fault(mode, frame_fault(2, [](fw::frame& f) { f.protocol = 2; }));
    CHECK(wrong.code == errc::protocol_mismatch);
    CHECK(wrong.tensor == "buffer 2 (l0.norm.weight)");
    wrong = with_fault(mode, frame_fault(2, [](fw::frame& f) { f.plan_hash ^= 1; }));
    CHECK(wrong.code == errc::plan_mismatch);
    wrong = with_fault(mode, frame_fault(2, [](fw::frame& f) { --f.weight_version; }));
    CHECK(wrong.code == errc::stale_version);
    CHECK(wrong.broken == condition::c4_atomic_pairs);
    CHECK(wrong.got == 1);
    CHECK(wrong.expected == 2);
    wrong = with_fault(mode, frame_fault(2, [](fw::frame& f) { --f.used_bytes; }));
    CHECK(wrong.code == errc::wrong_size);
    CHECK(wrong.broken == condition::c7_transport);
  }
}

TEST_CASE("duplicates, strangers and truncated buffers are refused by name") {
  // Straight at a receiver: a transport would already have refused to lease some of these.
  const test::model from = test::small_model();
  const fw::manifest tensors = test::manifest_of<block_wire>(from);
  const fw::plan wire = fw::make_plan(tensors, small).value();
  const std::vector<std::byte> bytes(static_cast<std::size_t>(wire.slot_bytes()));
  fake::work_queue work;
  const auto frame = [&](fw::u32 buffer) {
    return fw::frame{1, buffer, wire.hash(), 1, buffer < wire.buffers().size() ? wire.buffers()[buffer].used_bytes : 0};
  };
  struct row {
    std::vector<fw::u32> buffers;
    std::size_t short_by;
    errc code;
    std::string tensor;
  };
  const row rows[] = {
      {{0, 0}, 0, errc::duplicate, "buffer 0 (embed.weight)"},
      {{0, 1, 0}, 0, errc::duplicate, "buffer 0 (embed.weight)"},
      {{0, 2}, 0, errc::out_of_order, "buffer 2 (l0.norm.weight)"},
      {{1}, 0, errc::out_of_order, "buffer 1 (l0.gate.weight, ...)"},
      {{0, 8}, 0, errc::unexpected, "buffer 8"},
      {{0xFFFFFFFF}, 0, errc::unexpected, "buffer 4294967295"},
      {{0}, 1, errc::wrong_size, "buffer 0 (embed.weight)"},
  };
  for (const row& one : rows) {
    fake::late_store store(tensors, wire, commit_mode::in_place);
    fw::receiver<fake::late_store> engine(tensors, wire, store);
    CHECK(engine.accept(frame(0), bytes, {&work}).code == errc::out_of_order);  // no update yet
    REQUIRE(!engine.begin(1));
    fw::error wrong;
    for (const fw::u32 buffer : one.buffers) {
      CHECK(!wrong);
      const std::size_t size = static_cast<std::size_t>(frame(buffer).used_bytes);
      wrong = engine.accept(frame(buffer), std::span(bytes).first(size - (size == 0 ? 0 : one.short_by)), {&work});
    }
    CHECK(wrong.code == one.code);
    CHECK(wrong.tensor == one.tensor);
    CHECK(engine.accept(frame(1), bytes, {&work}) == wrong);  // it sticks
    const std::vector<fw::u64> sums(wire.pieces().size());
    const std::vector<fw::i64> statuses(tensors.items().size(), -1);
    CHECK(engine.finish(1, sums, statuses, {&work}) == wrong);
    CHECK(engine.commit(1) == wrong);
    CHECK(store.published.empty());
    CHECK(engine.serving() == 0);
  }
}

TEST_CASE("one flipped bit anywhere names its tensor") {
  const test::model from = test::small_model();
  const fw::manifest tensors = test::manifest_of<block_wire>(from);
  const fw::plan wire = fw::make_plan(tensors, small).value();
  for (std::size_t i = 0; i < wire.pieces().size(); ++i) {
    const fw::plan_piece piece = wire.pieces()[i];
    if (piece.bytes == 0) continue;
    const fw::error wrong = with_fault(commit_mode::staged, [&](world& w) {
      w.net.landed = [piece](int engine, const fw::frame& f, std::span<std::byte> memory) {
        if (engine == 1 && f.buffer == piece.buffer)
          memory[static_cast<std::size_t>(piece.offset + piece.bytes - 1)] ^= std::byte{0x80};
      };
    });
    CHECK(wrong.code == errc::checksum);
    CHECK(wrong.broken == condition::c7_transport);
    CHECK(wrong.tensor == tensors.entries()[piece.entry].name);
  }
}

TEST_CASE("padding is not summed: nobody promised anything about it") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged);
  w.net.landed = [](int, const fw::frame&, std::span<std::byte> memory) {
    memory[224] ^= std::byte{1};
  };  // behind embed.weight
  CHECK(w.wire.pieces()[0].bytes == 224);
  w.net.landed = [](int, const fw::frame& f, std::span<std::byte> memory) {
    if (f.buffer == 0) memory[224] ^= std::byte{1};
  };
  REQUIRE(!w.update(1, from));
  CHECK(w.serves(1, from));
}

TEST_CASE("scales and codes that no quantizer stores are refused by name, unless the learner has said so") {
  const test::model from = test::small_model();
  const fw::manifest tensors = test::manifest_of<block_wire>(from);
  const auto forward = [&](float scale, fw::u8 code, fw::error& wrong) {
    world w(from, small, commit_mode::staged, 1);
    REQUIRE(!w.learner.begin(1));
    std::vector<fw::u8> codes(40 * 64, 0x30);
    codes[77] = code;
    const float scales[1] = {scale};
    for (const test::tensor& one : from) {
      if (one.name == "l0.up.weight")
        REQUIRE(!w.learner.forward(
            one.name, {fw::dense<const fw::u8>(codes.data(), 40, 64), fw::dense<const float>(scales, 1, 1)},
            w.stream()));
      else REQUIRE(!w.send(one));
    }
    wrong = w.learner.finish(w.stream());
  };
  fw::error wrong;
  forward(1.0f, 0xFE, wrong);
  CHECK(!wrong);
  for (const fw::u32 bits :
       {0x00000000u, 0x80000000u, 0xBF800000u, 0x7F800000u, 0x7FC00000u, 0xFFC00000u, 0xFF800000u}) {
    forward(fw::float_of(bits), 0x30, wrong);
    CHECK(wrong.code == errc::bad_scale);
    CHECK(wrong.broken == condition::c9_scale_sanity);
    CHECK(wrong.tensor == "l0.up.weight_scale_inv");
  }
  for (const float scale : {fw::float_of(1), fw::float_of(0x7F7FFFFF)}) {
    forward(scale, 0x30, wrong);
    CHECK(!wrong);
  }
  for (const fw::u8 code : {fw::u8{0x7F}, fw::u8{0xFF}}) {
    forward(1.0f, code, wrong);
    CHECK(wrong.code == errc::nonfinite);
    CHECK(wrong.tensor == "l0.up.weight");
    CHECK(wrong.what.find("element 77") != std::string::npos);
  }
  // A recipe that lets the tool's own rule decide sends NaN codes, and the finish message says of which tensor.
  using tool = fw::with_numerics<fw::presets::vllm_block::recipe,
                                 fw::numerics{.amax_floor = 1e-10f, .bad = fw::nonfinite::as_tool}>;
  using tool_wire = fw::wire_format<tool, fw::namings::vllm>;
  test::model nan = from;
  nan[2].values[5].bits = 0x7FC0;
  test::world<tool_wire, fake::late_backend> w(nan, small, commit_mode::staged, 1);
  REQUIRE(!w.update(1, nan));
  CHECK(w.serves(0, nan));
}

TEST_CASE("sanity finds the first bad byte at any place and length") {
  for (std::size_t size = 1; size < 40; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<std::byte> bytes(size, std::byte{0x7E});
      CHECK(fw::first_bad_code(fw::dtype::f8_e4m3, bytes.data(), size) == -1);
      bytes[at] = std::byte{0xFF};
      if (at + 1 < size) bytes[size - 1] = std::byte{0x7F};
      CHECK(fw::first_bad_code(fw::dtype::f8_e4m3, bytes.data(), size) == static_cast<fw::i64>(at));
      CHECK(fw::first_bad_scale(fw::dtype::uint8, bytes.data(), size) == static_cast<fw::i64>(at));
      bytes[at] = std::byte{0x80};
      CHECK(fw::first_bad_code(fw::dtype::f8_e4m3fnuz, bytes.data(), size) == static_cast<fw::i64>(at));
    }
  }
  for (int code = 0; code < 256; ++code) {
    const std::byte one = static_cast<std::byte>(code);
    CHECK((fw::first_bad_code(fw::dtype::f8_e4m3, &one, 1) == 0) == ((code & 0x7F) == 0x7F));
    CHECK((fw::first_bad_code(fw::dtype::f8_e5m2, &one, 1) == 0) == ((code & 0x7F) >= 0x7C));
    CHECK((fw::first_bad_code(fw::dtype::f8_e5m2fnuz, &one, 1) == 0) == (code == 0x80));
    CHECK((fw::first_bad_scale(fw::dtype::f8_e8m0, &one, 1) == 0) == (code == 0xFF));
  }
  // Padding of a layout is zero or one; anything else must be a scale there too.
  const float scales[] = {1.0f, 0.0f, -1.0f};
  const auto* bytes = reinterpret_cast<const std::byte*>(scales);
  CHECK(fw::first_bad_scale(fw::dtype::f32, bytes, 12) == 1);
  CHECK(fw::first_bad_scale(fw::dtype::f32, bytes, 12, true) == 2);
  const fw::u32 words[] = {0x7F7F7F7Fu, 0x7F00FF00u};
  CHECK(fw::first_bad_scale(fw::dtype::int32, reinterpret_cast<const std::byte*>(words), 8) == 1);
}

TEST_CASE("a malformed or wrong finish is refused, and the vote says so") {
  const auto finish_fault = [](void (*bend)(fw::message&)) {
    return [=](world& w) {
      w.net.to_engine = [=](int engine, fw::message& m) {
        if (engine == 1 && m.kind == message_kind::finish) bend(m);
        return true;
      };
    };
  };
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    CHECK(with_fault(mode, finish_fault([](fw::message& m) { m.payload.pop_back(); })).code == errc::wrong_size);
    CHECK(with_fault(mode, finish_fault([](fw::message& m) { m.payload.clear(); })).code == errc::wrong_size);
    CHECK(with_fault(mode, finish_fault([](fw::message& m) {
                       fw::u64 version = 0;
                       std::vector<fw::u64> sums;
                       std::vector<fw::i64> statuses;
                       REQUIRE(!fw::decode_finish(m, version, sums, statuses));
                       sums.pop_back();
                       fw::encode_finish(version, sums, statuses, m);
                     }))
              .code == errc::wrong_size);
    const fw::error wrong = with_fault(mode, finish_fault([](fw::message& m) { m.payload[16] ^= std::byte{1}; }));
    CHECK(wrong.code == errc::checksum);
    CHECK(wrong.tensor == "embed.weight");
  }
}

TEST_CASE("begin twice, finish twice, commit without a vote and replays of an old version are refused") {
  const test::model from = test::small_model();
  const fw::manifest tensors = test::manifest_of<block_wire>(from);
  const fw::plan wire = fw::make_plan(tensors, {1 << 20, 256, 1, false, false}).value();
  fw::host_store<> store(tensors, wire, commit_mode::staged);
  fw::receiver<fw::host_store<>> engine(tensors, wire, store);
  const auto expected = test::expected_bytes<block_wire>(tensors, from);
  std::vector<std::byte> slot(static_cast<std::size_t>(wire.slot_bytes()), std::byte{0xEE});
  std::vector<fw::u64> sums;
  for (const fw::plan_piece& piece : wire.pieces()) {
    const auto& bytes = expected.at(tensors.entries()[piece.entry].name);
    if (!bytes.empty()) std::memcpy(slot.data() + piece.offset, bytes.data(), bytes.size());
    sums.push_back(fw::checksum(bytes.data(), bytes.size()));
  }
  const std::vector<fw::i64> statuses(tensors.items().size(), -1);
  const auto frame = [&](fw::u64 version) {
    return fw::frame{1, 0, wire.hash(), version, wire.buffers()[0].used_bytes};
  };
  CHECK(engine.begin(0).code == errc::stale_version);
  engine.abort(fw::make_error(errc::aborted, "", ""));
  CHECK(engine.commit(1).code == errc::out_of_order);
  REQUIRE(!engine.begin(3));
  CHECK(engine.commit(3).code == errc::out_of_order);
  engine.abort(fw::make_error(errc::aborted, "", ""));
  CHECK(engine.begin(3).code == errc::stale_version);
  engine.abort(fw::make_error(errc::aborted, "", ""));
  REQUIRE(!engine.begin(4));
  CHECK(engine.begin(5).code == errc::out_of_order);
  CHECK(engine.accept(frame(4), slot, {}).code == errc::out_of_order);
  engine.abort(fw::make_error(errc::aborted, "", ""));
  REQUIRE(!engine.begin(6));
  REQUIRE(!engine.accept(frame(6), slot, {}));
  REQUIRE(!engine.finish(6, sums, statuses, {}));
  CHECK(engine.finish(6, sums, statuses, {}).code == errc::duplicate);
  CHECK(engine.commit(6).code == errc::duplicate);
  CHECK(engine.serving() == 0);
  engine.abort(fw::make_error(errc::aborted, "", ""));
  REQUIRE(!engine.begin(7));
  REQUIRE(!engine.accept(frame(7), slot, {}));
  REQUIRE(!engine.finish(7, sums, statuses, {}));
  CHECK(engine.serving() == 0);  // proven is not committed
  CHECK(engine.commit(8).code == errc::out_of_order);
}

TEST_CASE("a learner or an engine that dies at any message leaves the promised state, in both modes") {
  const test::model first = test::small_model(1), second = test::small_model(2);
  for (const commit_mode mode : {commit_mode::staged, commit_mode::in_place}) {
    for (const bool learner_dies : {true, false}) {
      int ran = 0;
      for (int survives = 0;; ++survives) {
        CAPTURE(survives);
        CAPTURE(learner_dies);
        world w(first, small, mode);
        REQUIRE(!w.update(1, first));
        int messages = 0;
        bool died = false;
        w.net.to_engine = [&](int engine, fw::message&) {
          if (engine != 1) return true;
          if (messages++ < survives) return true;
          died = true;
          if (learner_dies) w.net.learner_dead = true;
          else w.net.dead_engine = 1;
          return false;
        };
        const fw::error wrong = w.update(2, second);
        if (!died) {
          CHECK(!wrong);
          break;
        }
        ++ran;
        if (!learner_dies) CHECK(wrong.code == errc::peer_lost);
        bool any_new = false;
        for (std::size_t side = 0; side < 2; ++side) {
          if (!learner_dies && side == 1) continue;
          const fw::u64 serving = w.sides[side]->receiver.serving();
          any_new = any_new || serving == 2;
          // Whole and old, whole and new, or (in place) refusing to serve: never a mixture.
          if (serving == 1) CHECK(w.serves(side, first));
          if (serving == 2) CHECK(w.serves(side, second));
          if (mode == commit_mode::staged) CHECK(serving != 0);
          CHECK(!w.sides[side]->receiver.updating());
        }
        // Nobody commits before the last message, which is the commit itself.
        if (any_new) CHECK(survives == 10);
      }
      CHECK(ran == 11);  // begin, eight buffers, finish, commit
    }
  }
}

TEST_CASE("silence within an update is a failure, and is told with the vote") {
  const test::model from = test::small_model();
  world w(from, small, commit_mode::staged, 1);
  fw::engine_event event{};
  auto& side = *w.sides[0];
  CHECK(!side.loop.step({&side.work}, event));
  CHECK(event == fw::engine_event::idle);
  CHECK(!side.receiver.failure());
  REQUIRE(!w.learner.begin(1));
  w.drain();
  CHECK(!side.loop.step({&side.work}, event));
  CHECK(event == fw::engine_event::idle);
  for (const test::tensor& one : from) REQUIRE(!w.send(one));
  const fw::error wrong = w.learner.finish(w.stream());
  CHECK(wrong.code == errc::timeout);
  CHECK(wrong.rank == 0);
}
