// SPDX-License-Identifier: Apache-2.0
// A small model, a learner and some engines over the fake transport, and what the engines must end up with.
#ifndef FP8WIRE_TESTS_WIRE_UPDATE_FIXTURE_HPP
#define FP8WIRE_TESTS_WIRE_UPDATE_FIXTURE_HPP
#include <fp8wire/format/bf16.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/sender.hpp>

#include "fake_transport.hpp"

namespace test {

namespace fw = fp8wire;
using fw::i64;
using fw::u64;

using block_wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm>;
using mx_wire = fw::wire_format<fw::presets::te_mxfp8::recipe, fw::namings::modelopt>;

// One tensor of the model: a weight that is quantized, or one that is kept.
struct tensor {
  std::string name, unit;
  std::vector<i64> shape;
  bool quantized = true;
  std::vector<fw::bf16> values;
};

inline i64 count(const std::vector<i64>& shape) {
  i64 n = 1;
  for (const i64 extent : shape) n *= extent;
  return n;
}

// Values that differ between tensors and versions, with zeros and outliers.
inline std::vector<fw::bf16> values_of(i64 n, unsigned seed) {
  std::vector<fw::bf16> made(static_cast<std::size_t>(n));
  std::mt19937 random(seed);
  for (auto& one : made) {
    const float value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1024.0f;
    one = fw::to_bf16(random() % 97 == 0 ? 64.0f * value : value);
  }
  return made;
}

using model = std::vector<tensor>;

inline model small_model(unsigned version = 1) {
  model made = {
      {"embed.weight", "embed.weight", {7, 16}, false, {}},
      {"l0.gate.weight", "l0.gate_up", {40, 64}, true, {}},
      {"l0.up.weight", "l0.gate_up", {40, 64}, true, {}},
      {"l0.norm.weight", "l0.norm.weight", {33}, false, {}},
      {"l0.experts.weight", "l0.experts.weight", {3, 130, 32}, true, {}},
      {"l0.down.weight", "l0.down.weight", {129, 160}, true, {}},
      {"empty.weight", "empty.weight", {0, 64}, true, {}},
      {"l1.q.weight", "l1.q.weight", {1, 32}, true, {}},
      {"l1.kv_scale", "l1.kv_scale", {}, false, {}},
  };
  unsigned seed = 1000 * version;
  for (tensor& one : made) one.values = values_of(count(one.shape), ++seed);
  return made;
}

template <class Wire> fw::manifest manifest_of(const model& from) {
  fw::manifest made;
  for (const tensor& one : from) {
    const fw::error wrong = one.quantized ? made.add<Wire>(one.name, one.shape, Wire::recipe::num.amax_floor, one.unit)
                                          : made.keep(one.name, fw::dtype::bf16, one.shape, one.unit);
    if (wrong) throw std::runtime_error(wrong.message());
  }
  return made;
}

inline fw::matrix_view<const fw::bf16> view_of(const tensor& one) {
  return one.shape.size() == 3 ? fw::dense(one.values.data(), one.shape[1], one.shape[2], one.shape[0])
                               : fw::dense(one.values.data(), one.shape[0], one.shape[1]);
}

// Each entry's bytes, made by the scalar reference over whole tensors.
template <class Wire> std::map<std::string, std::vector<std::byte>> expected_bytes(const fw::manifest& tensors,
                                                                                   const model& from) {
  using recipe = typename Wire::recipe;
  std::map<std::string, std::vector<std::byte>> made;
  for (const tensor& one : from) {
    const std::size_t at = static_cast<std::size_t>(tensors.find(one.name));
    std::vector<std::byte>& codes = made[one.name];
    codes.resize(static_cast<std::size_t>(tensors.entries()[at].bytes));
    if (!one.quantized) {
      if (!codes.empty()) std::memcpy(codes.data(), one.values.data(), codes.size());
      continue;
    }
    std::vector<std::byte>& scales = made[tensors.entries()[at + 1].name];
    scales.resize(static_cast<std::size_t>(tensors.entries()[at + 1].bytes));
    const auto in = view_of(one);
    const i64 rows = fw::scale_rows<typename recipe::block>(in.rows),
              cols = fw::scale_cols<typename recipe::block>(in.cols);
    const fw::pair_view<recipe> out{
        fw::dense(reinterpret_cast<fw::u8*>(codes.data()), in.rows, in.cols, in.batch),
        fw::dense(reinterpret_cast<fw::stored_t<recipe>*>(scales.data()), rows, cols, in.batch)};
    for (i64 b = 0; b < in.batch; ++b)
      for (i64 row = 0; row < rows; ++row)
        fw::reference::quantize_block_row<recipe, fw::bf16>(in.slice_of(b), row, out.codes.slice_of(b),
                                                            out.scales.slice_of(b), recipe::num.amax_floor);
  }
  return made;
}

template <class Wire, class Backend = fw::serial_backend> struct world {
  using sender_type = fw::sender<Wire, fake::network::publisher, Backend>;
  struct engine_side {
    engine_side(fake::network& net, int index, const fw::manifest& tensors, const fw::plan& wire, fw::commit_mode mode)
        : link(net.engine(index)), store(tensors, wire, mode), receiver(tensors, wire, store), loop(link, receiver) {}
    fake::network::subscriber link;
    fake::late_store store;
    fw::receiver<fake::late_store> receiver;
    fw::engine<fake::network::subscriber, fw::receiver<fake::late_store>> loop;
    fake::work_queue work;
    std::vector<fw::engine_event> events;
    std::vector<fw::error> refusals;
    bool dead = false;
  };

  world(const model& from, fw::plan_options options, fw::commit_mode mode, int engines = 2, unsigned seed = 1)
      : tensors(manifest_of<Wire>(from)),
        wire(fw::make_plan(tensors, options).value()),
        net(engines, options.slots, static_cast<std::size_t>(wire.slot_bytes()), seed),
        link(net.learner()),
        learner(tensors, wire, link) {
    for (int e = 0; e < engines; ++e) sides.push_back(std::make_unique<engine_side>(net, e, tensors, wire, mode));
    net.pump = [this] { return pump(); };
  }

  fake::stream stream() { return {&work}; }
  // Every engine handles one message.
  bool pump() {
    bool busy = false;
    for (auto& side : sides) {
      if (side->dead || (net.waiting(side->link.engine) == 0 && !net.learner_dead)) continue;
      fw::engine_event event{};
      if (fw::error wrong = side->loop.step({&side->work}, event)) side->refusals.push_back(wrong);
      side->events.push_back(event);
      side->dead = event == fw::engine_event::lost || event == fw::engine_event::closed;
      busy = true;
    }
    return busy;
  }
  void drain() {
    while (pump()) {
    }
  }
  fw::error send(const tensor& one) {
    if (one.quantized) return learner.put(one.name, view_of(one), stream());
    return learner.keep(one.name, one.values.data(), one.values.size() * 2, stream());
  }
  fw::error update(u64 version, const model& from) {
    fw::error wrong = learner.begin(version);
    for (std::size_t i = 0; i < from.size() && !wrong; ++i) wrong = send(from[i]);
    if (!wrong) wrong = learner.finish(stream());
    else learner.abort(wrong);
    drain();
    return wrong;
  }
  // Whether an engine serves exactly these bytes.
  bool serves(std::size_t side, const model& from) const {
    const auto expected = expected_bytes<Wire>(tensors, from);
    for (std::size_t e = 0; e < tensors.entries().size(); ++e) {
      const auto got = sides[side]->store.inner.bytes(e);
      const auto& wanted = expected.at(tensors.entries()[e].name);
      if (got.size() != wanted.size() || !std::equal(got.begin(), got.end(), wanted.begin())) return false;
    }
    return true;
  }

  fw::manifest tensors;
  fw::plan wire;
  fake::network net;
  fake::network::publisher link;
  fake::work_queue work;
  sender_type learner;
  std::vector<std::unique_ptr<engine_side>> sides;
};

}  // namespace test
#endif
