// SPDX-License-Identifier: Apache-2.0
// Every kernel and every wrapper on a GPU, byte for byte against the library's definition. Exit code 77, and the
// reason, where there is no GPU.
#include <fp8wire/cuda/backend.cuh>
#include <fp8wire/cuda/bulk.cuh>
#include <fp8wire/cuda/partial.cuh>

#include "cases.hpp"
#include "gpu_tests.hpp"
#include "laid_updates.hpp"

namespace samples {

// Managed memory: the cases hand host pointers to kernels.
void* allocate(std::size_t bytes) {
  void* data = nullptr;
  if (cudaMallocManaged(&data, bytes == 0 ? 1 : bytes) != cudaSuccess) throw std::bad_alloc();
  return data;
}
void release(void* data) noexcept { cudaFree(data); }

}  // namespace samples

namespace {

using namespace fp8wire;
using samples::buffer;

void expect(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

struct gpu {
  template <class Body>
  void launch(const char*, i64 blocks, const typename Body::params& params, checks::device_memory&) {
    expect(cuda::launch<Body>(blocks, params, nullptr), "launch");
    expect(cudaDeviceSynchronize(), "the kernel");
  }
};

using block = presets::te_block::recipe;
using mx = presets::te_mxfp8::recipe;

/// One captured graph: a table is uploaded and launched; then its tensors move, and the graph is replayed.
void graph_survives_new_pointers() {
  using tensor = cases::tensor<block, bf16>;
  std::vector<tensor> first, second;
  for (unsigned i = 0; i < 3; ++i) {
    first.emplace_back(cases::shape{1, 100 + 60 * i, 256, 0, 0}, i);
    second.emplace_back(cases::shape{1, 100 + 60 * i, 256, 0, i == 1 ? 0x7F800000u : 0u}, i + 10);
  }
  using task = std::remove_cvref_t<decltype(first[0].task())>;
  using table = cuda::job_table<task>;
  void *pinned = nullptr, *device = nullptr;
  expect(cudaMallocHost(&pinned, table::bytes(3)), "pinned memory");
  expect(cudaMalloc(&device, table::bytes(3)), "device memory");
  const auto fill = [&](std::vector<tensor>& tensors) {
    std::vector<task> tasks;
    for (tensor& one : tensors) tasks.push_back(one.task());
    return table::fill(tasks.data(), 3, pinned);
  };
  const i64 blocks = fill(first);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  expect(cudaStreamCreate(&stream), "stream");
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  expect(table::upload(pinned, device, 3, stream), "upload");
  expect(cuda::quantize(table::view(device, 3), blocks, stream), "grouped launch");
  expect(cudaStreamEndCapture(stream, &graph), "end of capture");
  expect(cudaGraphInstantiate(&ready, graph, 0), "graph");
  for (std::vector<tensor>* tensors : {&first, &second}) {
    fill(*tensors);
    expect(cudaGraphLaunch(ready, stream), "replay");
    expect(cudaStreamSynchronize(stream), "replay");
    for (const tensor& one : *tensors) one.check();
  }
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFree(device);
  cudaFreeHost(pinned);
}

/// The scales of a tensor in a layout with padding, through the wrapper.
void wrappers_write_padding() {
  using scales = laid_out<swizzle_128x4, e8m0>;
  cases::tensor<mx, bf16, scales> work({2, 140, 160, 0, 0}, 3);
  expect(cuda::quantize<mx>(work.in, dense(work.codes.data(), 140, 160, 2), work.place,
                            reinterpret_cast<i64*>(work.status.data()), 0.0f, nullptr),
         "quantize");
  expect(cudaDeviceSynchronize(), "quantize");
  work.check();
  for (i64 offset = 0; offset < work.place.size(); ++offset)
    if (work.place.mapping().index(offset).batch < 0 && work.scales[static_cast<std::size_t>(offset)].bits != 0)
      throw cases::wrong_bytes("padding");
  if (cuda::quantize<mx>(work.in, dense(work.codes.data(), 141, 160, 2), work.place, nullptr, 0.0f, nullptr) !=
      cudaErrorInvalidValue)
    throw cases::wrong_bytes("a wrong shape was taken");
}

/// What a sender does with the backend, in memory of its own.
void backend_quantizes_copies_and_sums() {
  using backend = cuda::backend<block>;
  cases::tensor<block, bf16> a({1, 200, 256, 0, 0x7FC00000u}, 1);
  cases::tensor<block, float> b({2, 64, 128, 0, 0}, 2);
  buffer<u8> kept(1000), slot(1000);
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<u8>(i * 3);
  cuda::backend_memory memory;
  memory.bytes = backend::backend_bytes(5, 3);
  expect(cudaMalloc(&memory.device, memory.bytes), "device memory");
  expect(cudaMallocHost(&memory.pinned, memory.bytes), "pinned memory");
  backend work(memory);
  work.prepare(5, 3);
  cudaStream_t stream;
  expect(cudaStreamCreate(&stream), "stream");
  for (int update = 0; update < 2; ++update) {
    work.begin();
    const auto pair = [](auto& of, i64 rows, i64 cols, i64 batch) {
      const i64 grid_rows = scale_rows<block::block>(rows), grid_cols = scale_cols<block::block>(cols);
      return pair_view<block>{dense(of.codes.data(), rows, cols, batch),
                              dense(of.scales.data(), grid_rows, grid_cols, batch)};
    };
    error wrong = work.quantize<block>({0, 0, 1, 0}, a.in, pair(a, 200, 256, 1), 0.0f, stream);
    if (!wrong) wrong = work.seal(stream);
    if (!wrong) wrong = work.quantize<block>({1, 2, 3, 0}, b.in, pair(b, 64, 128, 2), 0.0f, stream);
    if (!wrong) wrong = work.copy(4, slot.data(), dense(static_cast<const u8*>(kept.data()), 1, 1000), stream);
    if (!wrong) wrong = work.seal(stream);
    if (!wrong) wrong = work.collect(stream);
    if (wrong) throw std::runtime_error(wrong.message());
    cases::expect_same("codes", a.codes, a.right.codes);
    cases::expect_same("codes", b.codes, b.right.codes);
    cases::expect_same("bytes", slot, kept);
    if (work.statuses()[0] != a.right.first_nonfinite || work.statuses()[1] != -1) throw cases::wrong_bytes("statuses");
    if (work.sums()[0] != checksum(a.codes.data(), a.codes.size()) ||
        work.sums()[3] != checksum(b.scales.data(), b.scales.size() * 4) ||
        work.sums()[4] != checksum(kept.data(), kept.size()))
      throw cases::wrong_bytes("sums");
  }
  cudaStreamDestroy(stream);
  cudaFree(memory.device);
  cudaFreeHost(memory.pinned);
}

/// By bulk copies where a tensor is one run, by plain loads where it is not; from a captured graph.
void bulk_copies_and_what_they_do_not_fit() {
  for (const cases::shape& s : {cases::shape{2, 200, 224, 0, 0x7F800000u}, cases::shape{1, 130, 160, 32, 0},
                                cases::shape{1, 20, 75, 0, 0}, cases::shape{1, 0, 64, 0, 0}}) {
    cases::tensor<mx, bf16> work(s, 12);
    const pair_view<mx> out{dense(work.codes.data(), s.rows, s.cols, s.batch), work.place};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    expect(cudaStreamCreate(&stream), "stream");
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    expect(cuda::quantize_bulk<mx>(work.in, out, reinterpret_cast<i64*>(work.status.data()), 0.0f, stream),
           "quantize_bulk");
    expect(cudaStreamEndCapture(stream, &graph), "end of capture");
    expect(cudaGraphInstantiate(&ready, graph, 0), "graph");
    expect(cudaGraphLaunch(ready, stream), "replay");
    expect(cudaStreamSynchronize(stream), "replay");
    work.check();
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    if (cuda::quantize_bulk<mx>(work.in, {dense(work.codes.data(), s.rows + 1, s.cols, s.batch), work.place}, nullptr,
                                0.0f, nullptr) != cudaErrorInvalidValue)
      throw cases::wrong_bytes("a wrong shape was taken");
  }
}

/// One scale for each matrix of a batch.
void tensor_scale_in_two_passes() {
  for (const cases::shape& s : {cases::shape{1, 300, 256, 0, 0}, cases::shape{3, 130, 144, 16, 0x7F800000u},
                                cases::shape{2, 0, 128, 0, 0}}) {
    cases::tensor<kernels::tensor_recipe, bf16> work(s, 8);
    buffer<u32> scratch(static_cast<std::size_t>(s.batch));
    const pair_view<kernels::tensor_recipe> out{dense(work.codes.data(), s.rows, s.cols, s.batch), work.place};
    expect(cuda::quantize_in_two<kernels::tensor_recipe>(work.in, out, scratch.data(),
                                                         reinterpret_cast<i64*>(work.status.data()), 0.0f, nullptr),
           "quantize_in_two");
    expect(cudaDeviceSynchronize(), "quantize_in_two");
    work.check();
    auto smaller = out;
    --smaller.codes.cols;
    if (cuda::quantize_in_two<kernels::tensor_recipe>(work.in, smaller, scratch.data(), nullptr, 0.0f, nullptr) !=
        cudaErrorInvalidValue)
      throw cases::wrong_bytes("a wrong shape was taken");
  }
}

template <class Recipe, class In> pair_view<Recipe> pair(cases::tensor<Recipe, In>& of) {
  return {dense(of.codes.data(), of.of.rows, of.of.cols, of.of.batch), of.place};
}

/// Everything that a launcher can enqueue, into one graph; nothing may run before the graph does, and then all must.
void every_launcher_can_be_captured() {
  using column = presets::te_mxfp8_columnwise::recipe;
  using tensor_recipe = kernels::tensor_recipe;
  const cases::shape s{1, 140, 256, 0, 0};
  cases::tensor<block, bf16> blocks(s, 1);
  cases::tensor<mx, bf16> rows(s, 2);
  cases::tensor<column, bf16> columns(s, 2);
  cases::tensor<tensor_recipe, bf16> whole(s, 3), parts(s, 3);
  buffer<u32> scratch(1), amax(1, 7u);
  auto back = cases::poisoned<bf16>(s.rows * s.cols);
  auto bits = cases::poisoned<u8>(s.rows * s.cols / 8), tiles = cases::poisoned<u8>(4);
  laid_out<swizzle_128x4, e8m0> swizzled{nullptr, 1, 140, 8};
  auto moved = cases::poisoned<e8m0>(swizzled.size());
  swizzled.data = moved.data();
  const auto before = cases::poisoned<u8>(s.rows * s.cols);
  buffer<u64> sums(1, u64{0});
  const auto status = [](auto& of) { return reinterpret_cast<i64*>(of.status.data()); };
  using sum_table = cuda::job_table<kernel::checksum_task>;
  void *pinned = nullptr, *device = nullptr;
  expect(cudaMallocHost(&pinned, sum_table::bytes(1)), "pinned memory");
  expect(cudaMalloc(&device, sum_table::bytes(1)), "device memory");
  const kernel::checksum_task to_sum{blocks.codes.data(), s.rows * s.cols, sums.data()};
  const i64 sum_blocks = sum_table::fill(&to_sum, 1, pinned);
  const auto part = cuda::partial_task<tensor_recipe>(parts.in, 0, 0, 140, 256, dense(amax.data(), 1, 1),
                                                      dense(parts.codes.data(), 140, 256), status(parts), 0.0f);

  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  expect(cudaStreamCreate(&stream), "stream");
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  expect(cuda::quantize<block>(blocks.in, pair(blocks), status(blocks), 0.0f, stream), "quantize");
  expect(cuda::quantize_both<mx, column>(rows.in, pair(rows), pair(columns), status(rows), 0.0f, stream), "both");
  expect(cuda::quantize_in_two<tensor_recipe>(whole.in, pair(whole), scratch.data(), status(whole), 0.0f, stream),
         "quantize_in_two");
  expect(cudaMemsetAsync(amax.data(), 0, 4, stream), "memset");
  expect(cuda::partial_amax(part, stream), "partial_amax");
  expect(cuda::scales_of<tensor_recipe, bf16>(dense(static_cast<const u32*>(amax.data()), 1, 1), parts.place, 0.0f,
                                              stream),
         "scales_of");
  expect(cuda::partial_cast(part, stream), "partial_cast");
  expect(cuda::dequantize<block>(dense(static_cast<const u8*>(blocks.codes.data()), 140, 256),
                                 matrix_view<const float>(blocks.place), dense(back.data(), 140, 256), stream),
         "dequantize");
  expect(cuda::relayout(matrix_view<const e8m0>(rows.place), swizzled, stream), "relayout");
  expect(cuda::compare(dense(before.data(), 140, 256), dense(static_cast<const u8*>(blocks.codes.data()), 140, 256),
                       dense(bits.data(), 140, 32), tiles.data(), stream),
         "compare");
  expect(sum_table::upload(pinned, device, 1, stream), "upload");
  expect(cuda::checksum(sum_table::view(device, 1), sum_blocks, stream), "checksum");
  expect(cudaStreamEndCapture(stream, &graph), "end of capture");
  if (sums[0] != 0 || amax[0] != 7 || tiles[0] != 0xA5) throw cases::wrong_bytes("something ran while it was captured");
  expect(cudaGraphInstantiate(&ready, graph, 0), "graph");
  expect(cudaGraphLaunch(ready, stream), "replay");
  expect(cudaStreamSynchronize(stream), "replay");

  blocks.check();
  rows.check();
  columns.status[0] = rows.status[0];
  columns.check();
  whole.check();
  parts.check();
  for (i64 row = 0; row < 140; ++row)
    for (i64 col = 0; col < 256; ++col) {
      const std::size_t at = static_cast<std::size_t>(row * 256 + col);
      const bf16 value = from_float<bf16>(
          reference::decode<block>(blocks.right.codes[at], blocks.place(row / 128, col / 128)));
      cases::expect_same("weights", &back[at], &value, 1);
      const bool differs = blocks.right.codes[at] != 0xA5;
      if ((bits[at / 8] >> (at % 8) & 1) != (differs ? 1 : 0)) throw cases::wrong_bytes("bits");
      if (col < 8) cases::expect_same("scales", &swizzled(0, row, col), &rows.place(row, col), 1);
    }
  for (const u8 one : tiles)
    if (one != 1) throw cases::wrong_bytes("tiles");
  if (sums[0] != checksum(blocks.right.codes.data(), blocks.right.codes.size())) throw cases::wrong_bytes("the sum");
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFree(device);
  cudaFreeHost(pinned);
}

}  // namespace

int main() {
  return run_gpu_tests([](const auto& test) {
    gpu machine;
    cases::for_each_kernel(
        [&](const char* name, auto* body) { test(name, [&] { cases::check(machine, name, body); }); });
    test("a captured graph survives new pointers", graph_survives_new_pointers);
    test("wrappers write padding and refuse shapes", wrappers_write_padding);
    test("the backend quantizes, copies and sums", backend_quantizes_copies_and_sums);
    test("one scale for a matrix in two passes", tensor_scale_in_two_passes);
    test("every launcher can be captured", every_launcher_can_be_captured);
    test("bulk copies and what they do not fit", bulk_copies_and_what_they_do_not_fit);
    test("one tensor into layouts", laid_updates::one_tensor_into_layouts);
    test("both ways into layouts", laid_updates::both_ways_into_layouts);
    test("updates: blocks of columns, padded scales", laid_updates::padded_scales_and_blocks_of_columns);
    test("updates: shuffled codes, swizzled scales, by role", laid_updates::shuffled_and_swizzled_by_role);
    test("updates: packed scales, repeated", laid_updates::packed_scales_repeated_for_every_row);
    test("updates: scales of whole matrices and rows", laid_updates::scales_of_whole_matrices_and_rows);
    test("updates: transposed codes", laid_updates::transposed_codes);
    test("updates: scales that E8M0 cannot hold", laid_updates::scales_that_e8m0_cannot_hold);
  });
}
