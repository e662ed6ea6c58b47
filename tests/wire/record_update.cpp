// SPDX-License-Identifier: Apache-2.0
// Writes what a learner says over a byte stream, and what an engine must then hold: record_update FOLDER
#include <cstdio>
#include <fstream>
#include <iostream>

#include <fp8wire/io/hello_json.hpp>

#include "update_fixture.hpp"

namespace {

namespace fw = fp8wire;

// A publisher without engines: everything it is given goes into one string, as docs/wire.md has it.
struct recorder {
  using stream = fw::host_stream;
  std::string out;
  std::vector<std::vector<std::byte>> slots;
  int engines() const { return 0; }
  fw::result<std::span<std::byte>> acquire(fw::u32 buffer, stream) { return std::span(slots[buffer % slots.size()]); }
  void write(const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); }
  fw::error broadcast(const fw::message& m) {
    std::byte header[fw::message_header_bytes];
    fw::encode_header(m, header);
    write(header, sizeof(header));
    write(m.payload.data(), m.payload.size());
    return {};
  }
  fw::error publish(const fw::frame& f, stream) {
    if (fw::error wrong = broadcast(fw::encode(f))) return wrong;
    write(slots[f.buffer % slots.size()].data(), static_cast<std::size_t>(f.used_bytes));
    return {};
  }
  fw::error receive(fw::message&, int&) { return fw::make_error(fw::errc::timeout, "", "nobody is there"); }
};
static_assert(fw::publisher<recorder>);

int fail(const std::string& why) { return std::cerr << why << "\n", 1; }

template <class Wire> int record(const std::string& folder, const std::string& name, fw::plan_options options) {
  fw::manifest tensors = test::manifest_of<Wire>(test::small_model());
  if (tensors.tie("lm_head.weight", "embed.weight")) return fail("tie");
  // A shard: rows 128 to 160 of a weight of 160 x 320, columns 128 to 256.
  test::tensor shard{"shard.weight", "shard.weight", {32, 128}, true, {}};
  if (fw::error wrong = tensors.template add_part<Wire>(shard.name, {160, 320}, {128, 128, 32, 128}))
    return fail(wrong.message());
  tensors.label(Wire::id(), name);
  const fw::plan wire = fw::make_plan(tensors, options).value();
  recorder link{
      {},
      std::vector<std::vector<std::byte>>(
          options.slots, std::vector<std::byte>(static_cast<std::size_t>(wire.slot_bytes()), std::byte{0xEE}))};
  fw::message hello;
  fw::encode_text(fw::message_kind::hello,
                  fw::json_text::write(fw::hello{fw::protocol_version, true, tensors, options, wire.hash(), "GPU-1"}),
                  hello);
  if (link.broadcast(hello)) return fail("hello");
  fw::sender<Wire, recorder> learner(tensors, wire, link);
  for (unsigned version = 1; version <= 3; ++version) {
    test::model from = test::small_model(version);
    shard.values = test::values_of(32 * 128, 77 * version);
    from.push_back(shard);
    fw::error wrong = learner.begin(version);
    // By dtype, the plan's order is not the model's: items go out as the pieces lie.
    std::vector<std::size_t> order;
    for (const fw::plan_piece& piece : wire.pieces()) {
      const std::string_view item = tensors.item_name(tensors.entries()[piece.entry].item);
      for (std::size_t i = 0; i < from.size(); ++i)
        if (from[i].name == item && (order.empty() || order.back() != i)) order.push_back(i);
    }
    for (const std::size_t i : order)
      if (const test::tensor& one = from[i]; !wrong)
        wrong = one.quantized ? learner.put(one.name, test::view_of(one), {})
                              : learner.keep(one.name, one.values.data(), one.values.size() * 2, {});
    if (version == 2)
      learner.abort(fw::make_error(fw::errc::aborted, "learner", "changed its mind"));  // a reader must drop it
    else if (!wrong) wrong = learner.finish({});
    if (wrong) return fail(wrong.message());
    if (version == 2) continue;
    const auto expected = test::expected_bytes<Wire>(tensors, from);
    std::ofstream dump(folder + "/" + name + "-v" + std::to_string(version) + ".expected", std::ios::binary);
    for (const fw::manifest_entry& entry : tensors.entries()) {
      const auto& bytes = expected.at(entry.name);
      dump.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  if (link.broadcast({fw::message_kind::bye, {}})) return fail("bye");
  std::ofstream(folder + "/" + name + ".wire", std::ios::binary) << link.out;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: record_update FOLDER");
  const std::string folder = argv[1];
  int failed = record<test::block_wire>(folder, "block", {20000, 256, 2, false, false});
  failed |= record<test::block_wire>(folder, "cut", {8500, 64, 3, true, false});
  failed |= record<test::mx_wire>(folder, "mx", {4000, 128, 2, true, true});
  failed |= record<test::mx_wire>(folder, "one-buffer", {1 << 20, 8, 1, false, true});
  return failed;
}
