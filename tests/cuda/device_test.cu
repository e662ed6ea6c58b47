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

void tensor_scale_in_two_passes() {
  cases::tensor<kernels::tensor_recipe, bf16> work({1, 300, 256, 0, 0}, 8);
  buffer<u32> scratch(1);
  expect(cuda::quantize_in_two<kernels::tensor_recipe>(
             work.in, {dense(work.codes.data(), 300, 256), dense(work.scales.data(), 1, 1)}, scratch.data(),
             reinterpret_cast<i64*>(work.status.data()), 0.0f, nullptr),
         "quantize_in_two");
  expect(cudaDeviceSynchronize(), "quantize_in_two");
  work.check();
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
    test("one scale for a tensor in two passes", tensor_scale_in_two_passes);
    test("bulk copies and what they do not fit", bulk_copies_and_what_they_do_not_fit);
    test("one tensor into layouts", laid_updates::one_tensor_into_layouts);
    test("updates: blocks of columns, padded scales", laid_updates::padded_scales_and_blocks_of_columns);
    test("updates: shuffled codes, swizzled scales, by role", laid_updates::shuffled_and_swizzled_by_role);
    test("updates: packed scales, repeated", laid_updates::packed_scales_repeated_for_every_row);
    test("updates: transposed codes", laid_updates::transposed_codes);
    test("updates: scales that E8M0 cannot hold", laid_updates::scales_that_e8m0_cannot_hold);
  });
}
