// SPDX-License-Identifier: Apache-2.0
// Whole updates in engines' layouts: a sender with the device's backend and one with the host's are given the same
// weights, and every byte of every slot and every message is compared.
#ifndef FP8WIRE_TESTS_CUDA_LAID_UPDATES_HPP
#define FP8WIRE_TESTS_CUDA_LAID_UPDATES_HPP
#include <cstring>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <fp8wire/cuda/backend.cuh>
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/rules/quotient.hpp>
#include <fp8wire/wire/sender.hpp>

#include "samples.hpp"

namespace laid_updates {

using namespace fp8wire;
using samples::buffer;

/// Slots that nobody releases, an engine that always agrees, and everything that it was told.
template <class Stream> struct recorder {
  using stream = Stream;
  std::size_t slot_bytes;
  std::vector<buffer<u8>> slots;
  std::vector<message> heard;
  message_kind answer{};

  int engines() const { return 1; }
  result<std::span<std::byte>> acquire(u32 number, Stream) {
    while (slots.size() <= number) slots.emplace_back(slot_bytes, u8{0x5A});
    return std::span<std::byte>(reinterpret_cast<std::byte*>(slots[number].data()), slot_bytes);
  }
  error publish(const frame& made, Stream) { return broadcast(encode(made)); }
  error broadcast(const message& one) {
    heard.push_back(one);
    answer = one.kind == message_kind::finish ? message_kind::vote : message_kind::committed;
    return {};
  }
  error receive(message& into, int& engine) {
    engine = 0;
    u64 version = 0;
    message asked = heard.back();
    if (answer == message_kind::vote) std::memcpy(&version, asked.payload.data(), sizeof(version));
    else if (error wrong = decode_version(asked, version)) return wrong;
    encode_verdict(answer, version, {}, into);
    return {};
  }
};

/// A weight, and how it comes: quantized by the sender, or as a canonical pair.
struct shape {
  const char* name;
  i64 batch, rows, cols;
  bool forwarded = false;
  i64 nonfinite = -1;
};
/// A pair that somebody quantized before.
template <class Recipe> struct pair_of {
  buffer<u8> codes;
  buffer<stored_t<Recipe>> scales;
  i64 batch, rows, cols;
  const_pair_view<Recipe> view() const {
    using block = typename Recipe::block;
    return {dense(codes.data(), rows, cols, batch),
            dense(scales.data(), scale_rows<block>(rows), scale_cols<block>(cols), batch)};
  }
};
template <class In> struct values_of {
  buffer<In> values;
  i64 batch, rows, cols;
  matrix_view<const In> view() const { return dense(values.data(), rows, cols, batch); }
};
template <class Recipe> struct weight {
  std::string name;
  std::variant<values_of<bf16>, values_of<fp16>, values_of<float>, pair_of<Recipe>> is;
};

template <class In> values_of<In> made(const shape& s, unsigned seed) {
  values_of<In> all{buffer<In>(static_cast<std::size_t>(s.batch * s.rows * s.cols)), s.batch, s.rows, s.cols};
  std::mt19937 random(seed);
  for (In& one : all.values)
    one = from_float<In>(ieee::mul(static_cast<float>(random() % 2001) - 1000.0f, 0.00048828125f));
  if (s.nonfinite >= 0) all.values[static_cast<std::size_t>(s.nonfinite)] = from_float<In>(float_of(f32::infinity));
  return all;
}

/// One input type after the other.
template <class Recipe> std::vector<weight<Recipe>> weights_of(const std::vector<shape>& shapes, unsigned seed) {
  std::vector<weight<Recipe>> all;
  for (const shape& s : shapes) {
    ++seed;
    if (s.forwarded) {
      const values_of<bf16> from = made<bf16>(s, seed);
      samples::expected<Recipe, bf16> right(from.view());
      all.push_back(
          {s.name, pair_of<Recipe>{std::move(right.codes), std::move(right.scales), s.batch, s.rows, s.cols}});
    } else if (all.size() % 3 == 0) {
      all.push_back({s.name, made<bf16>(s, seed)});
    } else if (all.size() % 3 == 1) {
      all.push_back({s.name, made<float>(s, seed)});
    } else {
      all.push_back({s.name, made<fp16>(s, seed)});
    }
  }
  return all;
}

/// The first error of an update, which a host's backend has earlier than a device's.
template <class Sender, class Recipe, class Stream>
error send(Sender& learner, u64 version, const std::vector<weight<Recipe>>& weights, const buffer<u8>& kept, Stream s) {
  error wrong = learner.begin(version);
  for (const weight<Recipe>& one : weights) {
    if (wrong) break;
    wrong = std::visit(
        [&]<class Is>(const Is& it) {
          if constexpr (std::same_as<Is, pair_of<Recipe>>) return learner.forward(one.name, it.view(), s);
          else return learner.put(one.name, it.view(), s);
        },
        one.is);
  }
  if (!wrong) wrong = learner.keep("norm.weight", kept.data(), kept.size(), s);
  if (wrong) learner.abort(wrong);
  else wrong = learner.finish(s);
  return wrong;
}

inline void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}
inline void expect(cudaError_t code) { expect(code == cudaSuccess, cudaGetErrorString(code)); }

/// Memory of a backend.
struct work_memory {
  cuda::backend_memory both;
  explicit work_memory(std::size_t bytes) {
    both.bytes = bytes;
    expect(cudaMalloc(&both.device, bytes));
    expect(cudaMallocHost(&both.pinned, bytes));
  }
  work_memory(const work_memory&) = delete;
  work_memory& operator=(const work_memory&) = delete;
  ~work_memory() {
    cudaFree(both.device);
    cudaFreeHost(both.pinned);
  }
};

/// Each list of shapes is an update. Returns the errors of the updates, which both senders have alike.
template <class Wire> std::vector<error> update(const std::vector<std::vector<shape>>& updates) {
  using recipe = typename Wire::recipe;
  manifest tensors;
  for (const shape& s : updates[0]) {
    std::vector<i64> extents{s.rows, s.cols};
    if (s.batch > 1) extents.insert(extents.begin(), s.batch);
    if (error wrong = tensors.add<Wire>(s.name, extents)) throw std::runtime_error(wrong.message());
  }
  if (error wrong = tensors.keep("norm.weight", dtype::uint8, {100})) throw std::runtime_error(wrong.message());
  const plan agreed = make_plan(tensors, {.capacity_bytes = std::size_t{1} << 17}).value();
  expect(agreed.buffers().size() > 1, "an update of one buffer");
  buffer<u8> kept(100, u8{7});

  using backend = cuda::backend<recipe>;
  const work_memory memory(backend::backend_bytes(agreed.pieces().size(), tensors.items().size()));
  cudaStream_t stream;
  expect(cudaStreamCreate(&stream));
  recorder<cudaStream_t> from_device{static_cast<std::size_t>(agreed.slot_bytes()), {}, {}};
  recorder<host_stream> from_host{static_cast<std::size_t>(agreed.slot_bytes()), {}, {}};
  sender<Wire, recorder<cudaStream_t>, backend> device(tensors, agreed, from_device, recipe::num.amax_floor,
                                                       backend(memory.both));
  sender<Wire, recorder<host_stream>> host(tensors, agreed, from_host);
  std::vector<error> errors;
  for (u64 version = 1; version <= updates.size(); ++version) {
    const auto weights = weights_of<recipe>(updates[version - 1], static_cast<unsigned>(100 * version));
    const error device_says = send(device, version, weights, kept, stream);
    expect(cudaStreamSynchronize(stream));
    const error host_says = send(host, version, weights, kept, host_stream{});
    expect(device_says.message() == host_says.message(),
           "the device's error: " + device_says.message() + "; the host's: " + host_says.message());
    errors.push_back(device_says);
    // A host that found an unfit scale stopped before a device did.
    if (device_says && device_says.code == errc::bad_scale) continue;
    expect(from_device.slots.size() == from_host.slots.size(), "numbers of slots differ");
    for (std::size_t i = 0; i < from_host.slots.size(); ++i)
      for (std::size_t at = 0; at < from_host.slot_bytes; ++at)
        expect(from_device.slots[i][at] == from_host.slots[i][at], "version " + std::to_string(version) + ", slot " +
                                                                       std::to_string(i) + " differs first at " +
                                                                       std::to_string(at));
    expect(from_device.heard.size() == from_host.heard.size(), "numbers of messages differ");
    for (std::size_t i = 0; i < from_host.heard.size(); ++i)
      expect(from_device.heard[i].kind == from_host.heard[i].kind &&
                 from_device.heard[i].payload == from_host.heard[i].payload,
             "message " + std::to_string(i) + " differs");
  }
  cudaStreamDestroy(stream);
  return errors;
}

using blocks = presets::vllm_block::recipe;
using powers = presets::te_block_pow2::recipe;
using mx = presets::te_mxfp8::recipe;
template <class Recipe, class Layout> using wire = wire_format<Recipe, namings::vllm, Layout>;

inline void padded_scales_and_blocks_of_columns() {
  using padded = wire<blocks, pair_layout<block_major_k<128>, deepgemm_fp32>>;
  const std::vector<shape> shapes = {
      {"a", 1, 130, 256}, {"b", 2, 64, 128}, {"c", 1, 192, 128}, {"d", 2, 129, 256, true}};
  std::vector<shape> spoilt = shapes;
  spoilt[1].nonfinite = 9000;
  const std::vector<error> errors = update<padded>({shapes, spoilt, shapes});
  expect(!errors[0] && !errors[2], "an update failed");
  expect(errors[1].code == errc::nonfinite && errors[1].tensor == "b", "Inf was taken: " + errors[1].message());
}
inline void shuffled_and_swizzled_by_role() {
  using moe = wire<mx, layout_by_role<pair_layout<trtllm_mxfp8_codes, trtllm_mxfp8_scales>,
                                      pair_layout<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales>>>;
  const std::vector<shape> shapes = {{"mlp.experts.gate_up_proj", 2, 256, 64},
                                     {"mlp.experts.down_proj", 2, 64, 256},
                                     {"q_proj.weight", 1, 160, 160},
                                     {"k_proj.weight", 1, 160, 256, true},
                                     {"x.mlp.experts.gate_up_proj", 1, 64, 128, true}};
  for (const error& wrong : update<moe>({shapes, shapes})) expect(!wrong, wrong.message());
}
inline void packed_scales_repeated_for_every_row() {
  using packed = wire<powers, pair_layout<row_major, packed_ue8m0>>;
  const std::vector<shape> shapes = {
      {"a", 1, 200, 300}, {"b", 2, 130, 140}, {"c", 1, 3, 1030}, {"d", 2, 257, 128, true}, {"e", 1, 256, 400}};
  for (const error& wrong : update<packed>({shapes, shapes})) expect(!wrong, wrong.message());
  using packed_mx = wire<mx, pair_layout<row_major, packed_ue8m0>>;
  const std::vector<shape> rows = {
      {"a", 1, 70, 96}, {"b", 2, 130, 160}, {"c", 1, 128, 256}, {"d", 1, 9, 1056, true}, {"e", 1, 256, 384}};
  for (const error& wrong : update<packed_mx>({rows})) expect(!wrong, wrong.message());
}
inline void transposed_codes() {
  using columns = wire<blocks, pair_layout<transposed, te_block_columnwise>>;
  const std::vector<shape> shapes = {
      {"a", 1, 140, 130}, {"b", 2, 128, 256}, {"c", 2, 33, 140, true}, {"d", 1, 300, 300}};
  for (const error& wrong : update<columns>({shapes})) expect(!wrong, wrong.message());
}
/// FP32 scales that are no powers of two: the first weight put is named, and the next update is as good as any.
inline void scales_that_e8m0_cannot_hold() {
  using packed = wire<blocks, pair_layout<row_major, packed_ue8m0>>;
  const std::vector<shape> shapes = {{"a", 2, 200, 300}, {"b", 1, 256, 400}, {"c", 1, 300, 300, true}};
  std::vector<error> errors = update<packed>({shapes, shapes});
  for (const error& wrong : errors) {
    expect(wrong.code == errc::bad_scale && wrong.tensor == "a", "the scale was taken: " + wrong.message());
    expect(wrong.what.find("block (0, 0, 0)") != std::string::npos, wrong.message());
  }
  std::vector<shape> forwarded = shapes;
  std::swap(forwarded[0], forwarded[2]);
  expect(update<packed>({forwarded})[0].tensor == "c", "a forwarded pair was taken");
}

/// Scales that span tiles, in four launches a buffer; pairs that are cut where their rows are scaled alone.
inline void scales_of_whole_matrices_and_rows() {
  using matrix_wire = wire<recipe<e4m3, block<whole, whole>, rules::quotient>, canonical_layout>;
  using row_wire = wire<recipe<e4m3, block<1, whole>, rules::quotient_reciprocal>, canonical_layout>;
  std::vector<shape> shapes = {{"a", 3, 130, 131}, {"b", 1, 256, 400}, {"c", 2, 64, 300, true}, {"d", 1, 300, 131}};
  std::vector<shape> spoilt = shapes;
  spoilt[1].nonfinite = 99999;
  for (const error& wrong : update<matrix_wire>({shapes, shapes})) expect(!wrong, wrong.message());
  expect(update<matrix_wire>({spoilt})[0].code == errc::nonfinite, "Inf was taken");
  shapes.push_back({"e", 2, 350, 200});
  spoilt = shapes;
  spoilt[4].nonfinite = 2 * 350 * 200 - 1;
  const std::vector<error> errors = update<row_wire>({shapes, spoilt, shapes});
  expect(!errors[0] && !errors[2], "an update failed");
  expect(errors[1].what.find("element 139999") != std::string::npos, errors[1].message());
}

/// A launch a tensor, captured: the bytes, the words and the refusals of the host's quantize_into.
template <class Recipe, class Layout> void one_tensor(i64 batch, i64 rows, i64 cols, i64 nonfinite = -1) {
  using pair = laid_pair<Recipe, Layout>;
  using scale = laid_scale_t<Recipe, Layout>;
  const values_of<bf16> from = made<bf16>({"", batch, rows, cols, false, nonfinite}, 9);
  const pair empty = pair::of(nullptr, nullptr, batch, rows, cols);
  buffer<u8> codes(static_cast<std::size_t>(empty.codes.size()), u8{0xA5});
  buffer<scale> scales(static_cast<std::size_t>(empty.scales.size()));
  auto right_codes = codes;
  auto right_scales = scales;
  std::vector<std::byte> scratch(static_cast<std::size_t>(quantize_scratch_bytes<Recipe, Layout>(rows, cols)));
  const laid_status right = fp8wire::quantize_into<Recipe, Layout>(
      from.view(), pair::of(right_codes.data(), right_scales.data(), batch, rows, cols), scratch);
  const samples::expected<Recipe, bf16> canonical(from.view());
  const pair_of<Recipe> ready_made{canonical.codes, canonical.scales, batch, rows, cols};
  const const_pair_view<Recipe> kept = ready_made.view();
  const pair out = pair::of(codes.data(), scales.data(), batch, rows, cols);
  buffer<i64> words(3, i64{-1});
  const i64 grid_rows = kept.scales.rows, grid_cols = kept.scales.cols;
  const index3& r = right.refused_scale;
  const i64 refused = r.batch < 0 ? -1 : (r.batch * grid_rows + r.row) * grid_cols + r.col;
  for (const bool quantizes : {true, false}) {
    std::memset(codes.data(), 0xA5, codes.size());
    std::memset(static_cast<void*>(scales.data()), 0xA5, scales.size() * sizeof(scale));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    expect(cudaStreamCreate(&stream));
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (quantizes) expect(cuda::quantize_into(from.view(), out, &words[0], &words[1], Recipe::num.amax_floor, stream));
    else expect(cuda::forward_into(kept, out, &words[2], stream));
    expect(cudaStreamEndCapture(stream, &graph));
    expect(cudaGraphInstantiate(&ready, graph, 0));
    expect(cudaGraphLaunch(ready, stream));
    expect(cudaStreamSynchronize(stream));
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    expect(codes == right_codes, "codes differ");
    expect(std::memcmp(scales.data(), right_scales.data(), scales.size() * sizeof(scale)) == 0, "scales differ");
  }
  expect(words[0] == right.first_nonfinite && words[1] == refused && words[2] == refused, "status words differ");
  pair wrong = out;
  wrong.scales.rows += 1;
  expect(cuda::quantize_into(from.view(), wrong, nullptr, nullptr, 0.0f, nullptr) == cudaErrorInvalidValue &&
             cuda::forward_into(kept, wrong, nullptr, nullptr) == cudaErrorInvalidValue,
         "another shape was taken");
}
inline void one_tensor_into_layouts() {
  one_tensor<powers, pair_layout<row_major, packed_ue8m0>>(2, 131, 140);
  one_tensor<blocks, pair_layout<row_major, packed_ue8m0>>(2, 131, 140);
  one_tensor<mx, pair_layout<trtllm_mxfp8_codes, trtllm_mxfp8_scales>>(2, 160, 96);
  one_tensor<blocks, pair_layout<transposed, te_block_columnwise>>(1, 128, 256, 300);
}

/// Rowwise and columnwise MXFP8, the scales of each in a layout with padding.
inline void both_ways_into_layouts() {
  using column = presets::te_mxfp8_columnwise::recipe;
  const values_of<bf16> from = made<bf16>({"", 2, 140, 160, false, 25000}, 11);
  const samples::expected<mx, bf16> rows(from.view());
  const samples::expected<column, bf16> columns(from.view());
  buffer<u8> row_codes(rows.codes.size()), column_codes(rows.codes.size());
  laid_out<swizzle_128x4, e8m0> row_scales{nullptr, 2, 140, 5};
  laid_out<te_mxfp8_columnwise, e8m0> column_scales{nullptr, 2, 5, 160};
  buffer<e8m0> row_bytes(static_cast<std::size_t>(row_scales.size()), e8m0{0xA5}),
      column_bytes(static_cast<std::size_t>(column_scales.size()), e8m0{0xA5});
  row_scales.data = row_bytes.data();
  column_scales.data = column_bytes.data();
  buffer<i64> status(1, i64{-1});
  expect(cuda::quantize_both<mx, column>(from.view(), dense(row_codes.data(), 140, 160, 2), row_scales,
                                         dense(column_codes.data(), 140, 160, 2), column_scales, status.data(), 0.0f,
                                         nullptr));
  expect(cudaStreamSynchronize(nullptr));
  expect(row_codes == rows.codes && column_codes == columns.codes, "codes differ");
  expect(status[0] == 25000, "the status differs");
  const auto check = [](const auto& place, const auto& right) {
    for (i64 at = 0; at < place.size(); ++at) {
      const index3 i = place.mapping().index(at);
      const u8 byte = i.batch < 0
                          ? u8{0}
                          : right[static_cast<std::size_t>((i.batch * place.rows + i.row) * place.cols + i.col)].bits;
      expect(place.data[at].bits == byte, "scales differ");
    }
  };
  check(row_scales, rows.scales);
  check(column_scales, columns.scales);
}

}  // namespace laid_updates
#endif
