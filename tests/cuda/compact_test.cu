// SPDX-License-Identifier: Apache-2.0
// Compaction and batch offsets on a GPU, against loops on the host. A program of its own: CUB brings a namespace cuda,
// and code that nvcc puts at the end of a file must not find two. Exit code 77, and the reason, where there is no GPU.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <fp8wire/cuda/compact.cuh>
#include <fp8wire/cuda/move.cuh>

#include "gpu_tests.hpp"

namespace compaction {

using namespace fp8wire;
namespace cuda = fp8wire::cuda;

void expect(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}
void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string("wrong: ") + what);
}

/// Memory that host and device see.
template <class Value> struct managed {
  Value* data = nullptr;
  i64 count;
  explicit managed(i64 values, Value value = {}) : count(values) {
    const std::size_t bytes = static_cast<std::size_t>(values + 1) * sizeof(Value);
    if (cudaMallocManaged(reinterpret_cast<void**>(&data), bytes, cudaMemAttachGlobal) != cudaSuccess)
      throw std::bad_alloc();
    for (i64 i = 0; i < values; ++i) data[i] = value;
  }
  ~managed() { cudaFree(data); }
  managed(const managed&) = delete;
  managed& operator=(const managed&) = delete;
  bool same(const std::vector<Value>& right) const {
    return static_cast<i64>(right.size()) == count && std::equal(right.begin(), right.end(), data);
  }
};

/// From two versions of codes to the numbers of the tiles that differ.
void changed_tiles() {
  constexpr i64 batch = 3, rows = 300, cols = 200, per_matrix = 3 * 2, tiles = batch * per_matrix;
  managed<u8> before(batch * rows * cols), after(before.count), bits(batch * rows * (cols / 8)), flags(tiles);
  for (i64 i = 0; i < before.count; ++i) before.data[i] = after.data[i] = static_cast<u8>(i * 7);
  std::vector<i64> right;
  for (const i64 tile : {1, 2, 9, 17}) {
    const i64 row = tile % per_matrix / 2 * 128 + 5, col = tile % 2 * 128 + 70;
    after.data[(tile / per_matrix * rows + row) * cols + col] ^= 0x10;
    right.push_back(tile);
  }
  right.resize(tiles, -1);  // not written
  const auto view = [](const managed<u8>& of) {
    return matrix_view<const u8>(dense(static_cast<const u8*>(of.data), rows, cols, batch));
  };
  managed<i64> numbers(tiles, -1), total(1);
  std::size_t bytes = 0;
  expect(cuda::compact(nullptr, bytes, flags.data, tiles, numbers.data, total.data, nullptr), "bytes");
  managed<u8> temporary(static_cast<i64>(bytes));
  expect(cuda::compare(view(before), view(after), dense(bits.data, rows, cols / 8, batch), flags.data, nullptr),
         "compare");
  expect(cuda::compact(temporary.data, bytes, flags.data, tiles, numbers.data, total.data, nullptr), "compact");
  expect(cudaDeviceSynchronize(), "compact");
  expect(total.data[0] == 4, "how many tiles");
  expect(numbers.same(right), "numbers of tiles");
}

/// Counts that need no block, one, and many; captured, and replayed with other flags and sizes.
void counts_and_replays() {
  for (const i64 count : {i64{0}, i64{1}, i64{20000}}) {
    managed<u8> flags(count);
    managed<i64> numbers(count), total(1, -1), sizes(count), offsets(count);
    std::size_t select = 0, scan = 0;
    expect(cuda::compact(nullptr, select, flags.data, count, numbers.data, total.data, nullptr), "bytes");
    expect(cuda::offsets_of(nullptr, scan, sizes.data, count, offsets.data, nullptr), "bytes");
    managed<u8> for_select(static_cast<i64>(select)), for_scan(static_cast<i64>(scan));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    expect(cudaStreamCreate(&stream), "stream");
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    expect(cuda::compact(for_select.data, select, flags.data, count, numbers.data, total.data, stream), "compact");
    expect(cuda::offsets_of(for_scan.data, scan, sizes.data, count, offsets.data, stream), "offsets");
    expect(cudaStreamEndCapture(stream, &graph), "end of capture");
    expect(cudaGraphInstantiate(&ready, graph, 0), "graph");
    for (i64 replay = 0; replay < 2; ++replay) {
      std::vector<i64> right_numbers, right_offsets;
      i64 sum = 0;
      for (i64 i = 0; i < count; ++i) {
        numbers.data[i] = -1;
        flags.data[i] = i * i % 7 == 2 * replay ? 1 : 0;
        if (flags.data[i] != 0) right_numbers.push_back(i);
        sizes.data[i] = i % 1000 * 5000000000 + replay;
        right_offsets.push_back(sum);
        sum += sizes.data[i];
      }
      const i64 right_total = static_cast<i64>(right_numbers.size());
      right_numbers.resize(static_cast<std::size_t>(count), -1);
      expect(cudaGraphLaunch(ready, stream), "replay");
      expect(cudaStreamSynchronize(stream), "replay");
      expect(total.data[0] == right_total, "how many flags");
      expect(numbers.same(right_numbers), "numbers of flags");
      expect(offsets.same(right_offsets), "offsets");
    }
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

void refusals() {
  std::size_t bytes = 0;
  expect(cuda::compact(nullptr, bytes, nullptr, -1, nullptr, nullptr, nullptr) == cudaErrorInvalidValue,
         "a negative count of flags was taken");
  expect(cuda::offsets_of(nullptr, bytes, nullptr, -1, nullptr, nullptr) == cudaErrorInvalidValue,
         "a negative count of sizes was taken");
}

}  // namespace compaction

int main() {
  return run_gpu_tests([](const auto& test) {
    test("changed tiles are compacted", compaction::changed_tiles);
    test("flags and sizes of many blocks, of one and of none", compaction::counts_and_replays);
    test("negative counts are refused", compaction::refusals);
  });
}
