// SPDX-License-Identifier: Apache-2.0
// An update with what breaks other frameworks' buffers: odd sizes before FP32, scalars, one tensor too large.
#ifndef FP8WIRE_TESTS_WIRE_FORMS_FIXTURE_HPP
#define FP8WIRE_TESTS_WIRE_FORMS_FIXTURE_HPP
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/wire/forms/checkpoint_engine.hpp>
#include <fp8wire/wire/forms/flattened_bucket.hpp>
#include <fp8wire/wire/forms/nemo.hpp>

namespace test {

namespace fw = fp8wire;
using block_wire = fw::wire_format<fw::presets::vllm_block::recipe, fw::namings::vllm>;
using mx_wire = fw::wire_format<fw::presets::te_mxfp8::recipe, fw::namings::sglang>;

inline fw::manifest odd_update() {
  fw::manifest made;
  bool wrong = false;
  const auto add = [&](fw::error one) { wrong = wrong || one; };
  add(made.keep("steps", fw::dtype::int64, {1}));
  for (const char* layer : {"l0.", "l1.", "l2."}) {
    const std::string at = layer;
    add(made.add<block_wire>(at + "gate_proj.weight", {5, 7}, 1e-10f, at + "gate_up"));
    add(made.add<block_wire>(at + "up_proj.weight", {5, 7}, 1e-10f, at + "gate_up"));
    add(made.keep(at + "norm.weight", fw::dtype::bf16, {33}));
    add(made.add<mx_wire>(at + "down_proj.weight", {9, 64}));
    add(made.keep(at + "k_scale", fw::dtype::f32, {}));
    add(made.keep(at + "mask", fw::dtype::boolean, {3}));
  }
  add(made.add<block_wire>("head.weight", {300, 61}));
  if (wrong) fw::detail::raise("the update of the test is no update", 0, 1);
  return made;
}

inline std::vector<std::vector<std::byte>> noise_of(const fw::manifest& update) {
  std::vector<std::vector<std::byte>> made;
  unsigned state = 12345;
  for (const fw::manifest_entry& entry : update.entries()) {
    auto& bytes = made.emplace_back(static_cast<std::size_t>(entry.bytes));
    for (std::byte& one : bytes) one = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
  }
  return made;
}

}  // namespace test
#endif
