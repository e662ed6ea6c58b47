// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <fstream>
#include <random>
#include <sstream>

#include <fp8wire/io/error_json.hpp>
#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/layout/block_major_k.hpp>
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/quant/presets/all.hpp>

#include "../wire/fake_transport.hpp"

namespace fw = fp8wire;
using block_wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm>;
using te_wire = fw::wire_format<fw::presets::te_block::recipe, fw::namings::vllm>;
using mx_wire = fw::wire_format<fw::presets::te_mxfp8::recipe, fw::namings::modelopt>;

namespace {

template <class Wire> fw::manifest manifest_of(std::string_view label) {
  fw::manifest made;
  REQUIRE(!made.keep("embed.weight", fw::dtype::bf16, {8, 16}));
  REQUIRE(!made.add<Wire>("a.gate.weight", {128, 64}, Wire::recipe::num.amax_floor, "a.gate_up"));
  REQUIRE(!made.add<Wire>("a.up.weight", {128, 64}, Wire::recipe::num.amax_floor, "a.gate_up"));
  REQUIRE(!made.add_part<Wire>("a.down.weight", {256, 512}, {128, 256, 128, 256}));
  REQUIRE(!made.add<Wire>("experts.weight", {2, 32, 32}));
  REQUIRE(!made.keep("quote\"\\\n\xC3\xA9", fw::dtype::f32, {}));
  REQUIRE(!made.tie("lm_head.weight", "embed.weight"));
  made.label(Wire::id(), label);
  return made;
}

// A handshake between one learner and some engines; engines answer when the learner waits.
struct table {
  explicit table(int engines) : net(engines, 1, 1) {
    for (int e = 0; e < engines; ++e) links.push_back(net.engine(e));
  }
  fake::network net;
  std::vector<fake::network::subscriber> links;
};

}  // namespace

TEST_CASE("a manifest survives JSON, names with quotes and parts and labels included") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block");
  const std::string text = fw::to_json(one);
  const auto back = fw::manifest_from_json(text);
  INFO(back.error().message());
  REQUIRE(back);
  CHECK(*back == one);
  CHECK(back->hash() == one.hash());
  CHECK(back->encodings()[0].label == "vllm-block");
  CHECK(fw::to_json(*back) == text);
  const fw::plan wire = fw::make_plan(one, {4096, 256, 2, true, false}).value();
  const auto from_plan = fw::manifest_from_json(fw::plan_json(one, wire));
  REQUIRE(from_plan);
  CHECK(*from_plan == one);
  CHECK(*fw::manifest_from_json(fw::to_json(fw::manifest{})) == fw::manifest{});
}

TEST_CASE("a weight in an engine's layout shows what is stored, and its own extents beside it") {
  using wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm,
                               fw::pair_layout<fw::block_major_k<128>, fw::deepgemm_fp32>>;
  fw::manifest one;
  REQUIRE(!one.add<wire>("a.weight", {100, 200}));
  REQUIRE(!one.add<wire>("experts.weight", {3, 100, 128}));
  CHECK(one.entries()[0].shape == std::vector<fw::i64>{2, 100, 128});
  CHECK(one.entries()[0].bytes == 2 * 100 * 128);
  CHECK(one.entries()[1].shape == std::vector<fw::i64>{2, 4});
  CHECK(one.entries()[2].shape == std::vector<fw::i64>{3, 1, 100, 128});
  const std::string text = fw::to_json(one);
  CHECK(text.find("\"extents\": [1, 100, 200]") != std::string::npos);
  const auto back = fw::manifest_from_json(text);
  INFO(back.error().message());
  REQUIRE(back);
  CHECK(*back == one);
  CHECK(back->hash() == one.hash());
  fw::manifest wider;
  REQUIRE(!wider.add<wire>("a.weight", {100, 201}));
  REQUIRE(!wider.add<wire>("experts.weight", {3, 100, 128}));
  CHECK(wider.hash() != one.hash());
  REQUIRE(fw::differences(wider, one).size() == 1);
  CHECK(fw::differences(wider, one)[0].broken == fw::condition::c5_geometry);
}

TEST_CASE("unknown keys of any type are skipped, wherever they stand") {
  std::string text = fw::to_json(manifest_of<mx_wire>("te-mxfp8"));
  const auto before = fw::manifest_from_json(text).value();
  for (const std::string_view where : {"{\n  \"fp8wire_manifest\"", "{\"wire_id\"", "{\"name\""}) {
    const std::size_t at = text.find(where);
    REQUIRE(at != std::string::npos);
    text.insert(at + 1, "\"later\": {\"x\": [1, {\"name\": 2, \"shape\": [\"a\"]}], \"y\": null}, \"sooner\": 1.5e3, ");
  }
  const auto after = fw::manifest_from_json(text);
  INFO(after.error().message());
  REQUIRE(after);
  CHECK(*after == before);
}

TEST_CASE("every prefix of a manifest and every damaged member is refused, never misread") {
  const std::string text = fw::to_json(manifest_of<block_wire>("vllm-block"));
  for (std::size_t size = 0; size + 2 < text.size(); ++size) CHECK(!fw::manifest_from_json(text.substr(0, size)));
  const auto damaged = [&](std::string_view from, std::string_view to) {
    std::string copy = text;
    const std::size_t at = copy.find(from);
    REQUIRE(at != std::string::npos);
    copy.replace(at, from.size(), to);
    const auto made = fw::manifest_from_json(copy);
    REQUIRE(!made);
    return made.error();
  };
  CHECK(damaged("\"fp8wire_manifest\": 1", "\"fp8wire_manifest\": 2").code == fw::errc::protocol_mismatch);
  CHECK(damaged("\"fp8wire_manifest\": 1", "\"other\": 1").code == fw::errc::protocol_mismatch);
  CHECK(damaged("\"F8_E4M3\"", "\"F9\"").code == fw::errc::wrong_dtype);
  CHECK(damaged("\"F8_E4M3\"", "\"BF16\"").code == fw::errc::wrong_dtype);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": [128, 64.5]").code == fw::errc::bad_header);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": [128, -64]").code == fw::errc::wrong_shape);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": [9223372036854775807, 9223372036854775807]").code ==
        fw::errc::overflow);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": [18446744073709551615]").code == fw::errc::bad_header);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": [128]").code == fw::errc::wrong_shape);
  CHECK(damaged("\"shape\": [128, 64]", "\"shape\": \"x\"").code == fw::errc::bad_header);
  CHECK(damaged("\"shape\": [128, 64], ", "").code == fw::errc::bad_header);
  CHECK(damaged("\"encoding\": 0", "\"encoding\": 1").code == fw::errc::bad_header);
  CHECK(damaged("\"encoding\": 0", "\"encoding\": -1").code == fw::errc::bad_header);
  CHECK(damaged("\"split_rows\": 128", "\"split_rows\": -5").code == fw::errc::bad_argument);
  CHECK(damaged("\"role\": \"codes\"", "\"role\": \"kept\"").code == fw::errc::unexpected);
  CHECK(damaged("\"role\": \"scales\"", "\"role\": \"kept\"").code == fw::errc::missing);
  CHECK(damaged("\"role\": \"codes\"", "\"role\": \"spare\"").code == fw::errc::bad_header);
  CHECK(damaged("\"of\": \"a.gate.weight\"", "\"of\": \"a.up.weight\"").code == fw::errc::unexpected);
  CHECK(damaged("\"name\": \"a.up.weight_scale_inv\"", "\"name\": \"a.gate.weight_scale_inv\"").code ==
        fw::errc::duplicate);
  CHECK(damaged("\"name\": \"a.gate.weight\"", "\"name\": \"a.gate.weight\", \"name\": \"b\"").code ==
        fw::errc::duplicate);
  CHECK(damaged("\"of\": \"embed.weight\"", "\"of\": \"nowhere\"").code == fw::errc::missing);
  CHECK(damaged("rule=", "role=").code == fw::errc::format_mismatch);
  CHECK(damaged("\"wire_id\": \"0x", "\"wire_id\": \"").code == fw::errc::bad_header);
  CHECK(damaged("\"part\": [128, ", "\"part\": [").code == fw::errc::bad_header);
  CHECK(damaged("\"tensors\": [", "\"tensors\": [1, ").code == fw::errc::bad_header);
  CHECK(damaged("\"tensors\": [", "\"tensors\": [[], ").code == fw::errc::bad_header);
  CHECK(!fw::manifest_from_json("[]"));
  CHECK(!fw::manifest_from_json("1"));
  CHECK(!fw::manifest_from_json(text + "x"));
  CHECK(!fw::manifest_from_json(std::string(100000, '[')));
}

TEST_CASE("a damaged manifest is refused, or is a manifest like any other") {
  const std::string text = fw::to_json(manifest_of<block_wire>("vllm-block"));
  std::mt19937 random(11);
  int taken = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string copy = text;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      const std::size_t at = random() % copy.size();
      switch (random() % 4) {
        case 0: copy[at] = static_cast<char>(random()); break;
        case 1: copy[at] = "0123456789-\"{}[],:"[random() % 18]; break;
        case 2: copy.erase(at, random() % 9); break;
        default: copy.insert(at, copy.substr(random() % copy.size(), random() % 12)); break;
      }
    }
    const auto made = fw::manifest_from_json(copy);
    if (!made) continue;
    ++taken;
    const auto again = fw::manifest_from_json(fw::to_json(*made));
    REQUIRE(again);
    CHECK(*again == *made);
    for (const bool cut : {false, true}) {
      const auto wire = fw::make_plan(*made, {600, 8, 2, cut, false});
      if (wire) CHECK(wire->pieces().size() >= made->entries().size());
    }
  }
  CHECK(taken > 20);
}

TEST_CASE("an error survives JSON, and a code of a later version is still an error") {
  fw::error one = fw::make_error(fw::errc::checksum, "a \"b\"", "differs", -3, 4, fw::condition::c7_transport);
  one.rank = 3;
  fw::error back;
  REQUIRE(!fw::error_from_json(fw::json::parse(fw::json::write(fw::error_to_json(one)), "test").value(), back));
  CHECK(back == one);
  one = fw::make_error(fw::errc::missing, "", "");
  REQUIRE(!fw::error_from_json(fw::error_to_json(one), back));
  CHECK(back == one);
  REQUIRE(!fw::error_from_json(
      fw::json::parse("{\"code\": \"melted\", \"condition\": \"C99\", \"more\": []}", "test").value(), back));
  CHECK(back.code == fw::errc::aborted);
  CHECK(fw::error_from_json(fw::json::parse("{\"code\": \"ok\"}", "test").value(), back).code == fw::errc::bad_header);
  CHECK(fw::error_from_json(fw::json::parse("[]", "test").value(), back).code == fw::errc::bad_header);
}

namespace {

// Runs one offer; engine e answers with expected[e] under terms[e].
struct outcome {
  fw::error learner;
  std::vector<fw::error> reasons, engines;
  fw::agreement agreed;
  std::vector<fw::agreement> joined;
};

// join() waits for the learner and offer() waits for engines: each engine lives on what the learner has sent so far, so
// a scripted link hands it the messages and join() is run again from its start for every new one.
struct scripted {
  using stream = fake::stream;
  std::vector<fw::message> heard;
  std::size_t next = 0;
  fw::message said;
  bool spoke = false;
  fw::error receive(fw::message& into) {
    if (next == heard.size()) return fw::make_error(fw::errc::timeout, "learner", "nothing more yet");
    into = heard[next++];
    return {};
  }
  fw::error reply(const fw::message& m) { return said = m, spoke = true, fw::error{}; }
  fw::result<std::span<const std::byte>> bytes(const fw::frame&, stream) { return std::span<const std::byte>(); }
  fw::error release(const fw::frame&, stream) { return {}; }
};

template <class Reissue = fw::never_reissue>
outcome shake(const fw::manifest& offered, fw::plan_options options, const std::vector<fw::manifest>& expected,
              const std::vector<fw::engine_terms>& terms, Reissue&& reissue = Reissue{}) {
  struct learner_link {
    using stream = fake::stream;
    const std::vector<fw::manifest>& expected;
    const std::vector<fw::engine_terms>& terms;
    outcome& out;
    std::vector<scripted> scripts;
    std::vector<std::pair<int, fw::message>> inbox;
    int engines() const { return static_cast<int>(expected.size()); }
    fw::result<std::span<std::byte>> acquire(fw::u32, stream) { return std::span<std::byte>(); }
    fw::error publish(const fw::frame&, stream) { return {}; }
    fw::error broadcast(const fw::message& m) {
      for (std::size_t e = 0; e < expected.size(); ++e) {
        scripted& script = scripts[e];
        if (out.engines[e].code != fw::errc::timeout && out.engines[e].code != fw::errc::ok) continue;  // has left
        script.heard.push_back(m);
        script.next = 0;
        script.spoke = false;
        std::vector<fw::error> reasons;
        out.engines[e] = fw::join<fw::json_text>(script, expected[e], terms[e], out.joined[e], reasons);
        if (script.spoke) inbox.emplace_back(static_cast<int>(e), script.said);
      }
      return {};
    }
    fw::error receive(fw::message& into, int& engine) {
      if (inbox.empty()) return fw::make_error(fw::errc::timeout, "engine", "nothing came");
      engine = inbox.back().first;  // late ones first
      into = inbox.back().second;
      inbox.pop_back();
      return {};
    }
  };
  outcome out;
  out.engines.resize(expected.size());
  out.joined.resize(expected.size());
  learner_link link{expected, terms, out, std::vector<scripted>(expected.size()), {}};
  out.learner = fw::offer<fw::json_text>(link, offered, options, "GPU-learner", out.agreed, out.reasons, reissue);
  return out;
}

}  // namespace

TEST_CASE("all ends agree on the smallest capacity and slots, and on one plan") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block");
  std::vector<fw::engine_terms> terms(3);
  terms[1].capacity_bytes = 30000;
  terms[2].slots = 3;
  terms[2].device = "GPU-2";
  const outcome out = shake(one, {1 << 20, 512, 4, false, false}, {one, one, one}, terms);
  INFO(out.learner.message());
  REQUIRE(!out.learner);
  CHECK(out.agreed.wire.options().capacity_bytes == 30000);
  CHECK(out.agreed.wire.options().slots == 3);
  CHECK(out.agreed.devices[2] == "GPU-2");
  for (const fw::agreement& engine : out.joined) {
    CHECK(engine.wire.hash() == out.agreed.wire.hash());
    CHECK(engine.tensors == one);
    CHECK(engine.devices[0] == "GPU-learner");
  }
}

TEST_CASE("different recipes refuse each other with both names, and the others hear of it") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block"), other = manifest_of<te_wire>("te-block");
  const outcome out = shake(one, {}, {one, other}, std::vector<fw::engine_terms>(2));
  REQUIRE(out.learner);
  CHECK(out.learner.code == fw::errc::grid_mismatch);
  CHECK(out.learner.broken == fw::condition::c2_grid);
  CHECK(out.learner.rank == 1);
  CHECK(out.learner.what.find("vllm-block") != std::string::npos);
  CHECK(out.learner.what.find("te-block") != std::string::npos);
  CHECK(out.engines[0].what == out.learner.what);
  CHECK(out.engines[1].code == fw::errc::grid_mismatch);
}

TEST_CASE("a grid that an engine accepts as well is no difference") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block"), other = manifest_of<te_wire>("te-block");
  std::vector<fw::engine_terms> terms(1);
  terms[0].also_accepted_grids = {fw::grid_id<fw::presets::vllm_block::recipe>()};
  const outcome out = shake(one, {}, {other}, terms);
  INFO(out.learner.message());
  REQUIRE(!out.learner);
  CHECK(out.joined[0].tensors == one);
}

TEST_CASE("every violation is reported at once") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block");
  fw::manifest other;
  REQUIRE(!other.keep("embed.weight", fw::dtype::f32, {8, 17}));
  REQUIRE(!other.add<te_wire>("a.gate.weight", {128, 64}, 0.0f, "a.gate"));
  REQUIRE(!other.add<te_wire>("a.up.weight", {128, 32}));
  REQUIRE(!other.add_part<te_wire>("a.down.weight", {256, 512}, {0, 256, 128, 256}));
  REQUIRE(!other.keep("experts.weight", fw::dtype::bf16, {2, 32, 32}));
  REQUIRE(!other.keep("new.bias", fw::dtype::bf16, {8}));
  const std::vector<fw::error> all = fw::differences(one, other);
  const auto said = [&](std::string_view tensor, fw::errc code, fw::condition broken) {
    for (const fw::error& wrong : all)
      if (wrong.tensor == tensor && wrong.code == code && wrong.broken == broken) return true;
    return false;
  };
  CHECK(said("new.bias", fw::errc::missing, fw::condition::c10_other_state));
  CHECK(said("experts.weight_scale_inv", fw::errc::unexpected, fw::condition::c1_layer_set));
  CHECK(said("embed.weight", fw::errc::wrong_dtype, fw::condition::c10_other_state));
  CHECK(said("embed.weight", fw::errc::wrong_shape, fw::condition::c5_geometry));
  CHECK(said("a.gate.weight", fw::errc::grid_mismatch, fw::condition::c2_grid));
  CHECK(said("a.up.weight", fw::errc::wrong_shape, fw::condition::c5_geometry));
  CHECK(said("a.down.weight", fw::errc::wrong_shape, fw::condition::c5_geometry));
  CHECK(said("experts.weight", fw::errc::wrong_dtype, fw::condition::c1_layer_set));
  CHECK(fw::differences(one, one).empty());
  fw::manifest apart;
  REQUIRE(!apart.add<block_wire>("a.gate.weight", {128, 64}));
  REQUIRE(!apart.add<block_wire>("a.up.weight", {128, 64}));
  fw::manifest fused;
  REQUIRE(!fused.add<block_wire>("a.gate.weight", {128, 64}, 1e-10f, "a"));
  REQUIRE(!fused.add<block_wire>("a.up.weight", {128, 64}, 1e-10f, "a"));
  REQUIRE(fw::differences(apart, fused).size() == 1);
  CHECK(fw::differences(apart, fused)[0].broken == fw::condition::c4_atomic_pairs);
  CHECK(fw::differences(fused, apart).empty());
}

TEST_CASE("an engine may ask for other encodings, and the learner issues them when all ask for the same") {
  fw::manifest plain;
  REQUIRE(!plain.keep("a.weight", fw::dtype::bf16, {64, 64}));
  fw::manifest wanted;
  REQUIRE(!wanted.add<mx_wire>("a.weight", {64, 64}));
  std::vector<fw::engine_terms> terms(2);
  terms[0].negotiate = terms[1].negotiate = true;
  int asked = 0;
  const auto reissue = [&](const fw::manifest& want, fw::manifest& mine) { return ++asked, mine = want, fw::error{}; };
  outcome out = shake(plain, {}, {wanted, wanted}, terms, reissue);
  INFO(out.learner.message());
  REQUIRE(!out.learner);
  CHECK(asked == 1);
  CHECK(out.agreed.tensors == wanted);
  CHECK(out.joined[1].tensors == wanted);

  out = shake(plain, {}, {wanted, plain}, terms, reissue);  // the second engine has not asked and refuses what comes
  CHECK(out.learner);
  out = shake(plain, {}, {wanted, wanted}, terms);  // a learner that has nothing else to offer
  CHECK(out.learner.code == fw::errc::grid_mismatch);
  terms[0].negotiate = false;
  out = shake(plain, {}, {wanted, wanted}, terms, reissue);
  CHECK(out.learner.rank == 0);
}

TEST_CASE("a plan over an engine's budget is refused before the first byte") {
  const fw::manifest one = manifest_of<block_wire>("vllm-block");
  std::vector<fw::engine_terms> terms(1);
  const fw::plan_options options{65536, 256, 2, false, false};
  const fw::u64 slots = fw::make_plan(one, options)->peak_bytes();
  terms[0].budget_bytes = slots + one.bytes() - 1;
  CHECK(shake(one, options, {one}, terms).learner.code == fw::errc::capacity);
  terms[0].mode = fw::commit_mode::in_place;
  CHECK(!shake(one, options, {one}, terms).learner);
  terms[0].budget_bytes = slots - 1;
  CHECK(shake(one, options, {one}, terms).learner.code == fw::errc::capacity);
}

TEST_CASE("another protocol is refused with both numbers, whatever else its hello says") {
  scripted script;
  script.heard.resize(1);
  fw::encode_text(fw::message_kind::hello, "{\"protocol\": 2, \"everything\": {\"else\": \"changed\"}}",
                  script.heard[0]);
  fw::agreement made;
  std::vector<fw::error> reasons;
  const fw::error wrong = fw::join<fw::json_text>(script, manifest_of<block_wire>(""), {}, made, reasons);
  CHECK(wrong.code == fw::errc::protocol_mismatch);
  CHECK(wrong.got == 2);
  CHECK(wrong.expected == 1);
  CHECK(script.said.kind == fw::message_kind::refuse);
  fw::encode_text(fw::message_kind::hello, "no JSON", script.heard[0]);
  script.next = 0;
  CHECK(fw::join<fw::json_text>(script, manifest_of<block_wire>(""), {}, made, reasons).code == fw::errc::bad_header);
}

TEST_CASE("the first protocol's hello, as it was recorded, is still answered") {
  std::ifstream file("wire/hello_protocol_1.json", std::ios::binary);
  REQUIRE(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  const auto offered = fw::json_text::read_hello(text.str());
  INFO(offered.error().message());
  REQUIRE(offered);
  CHECK(offered->final);
  CHECK(offered->device == "GPU-1");
  CHECK(offered->options == fw::plan_options{8500, 64, 3, true, false});
  CHECK(offered->tensors.entries().size() == 17);
  CHECK(offered->tensors.encodings()[0].wire_id == block_wire::id());
  scripted script;
  script.heard.resize(1);
  fw::encode_text(fw::message_kind::hello, text.str(), script.heard[0]);
  fw::agreement made;
  std::vector<fw::error> reasons;
  const fw::error wrong = fw::join<fw::json_text>(script, offered->tensors, {}, made, reasons);
  INFO(wrong.message());
  REQUIRE(!wrong);
  CHECK(script.said.kind == fw::message_kind::accept);
  CHECK(made.wire.hash() == offered->plan_hash);
  const auto said = fw::json_text::read_answer(fw::decode_text(script.said));
  REQUIRE(said);
  CHECK(said->plan_hash == offered->plan_hash);
  CHECK(said->capacity_bytes == 8500);
  CHECK(!said->wants_other);
  // What we would send today is what was sent then: another text would need another protocol number.
  CHECK(fw::json_text::write(*offered) == text.str());
}
