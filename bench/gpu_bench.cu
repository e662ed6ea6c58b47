// SPDX-License-Identifier: Apache-2.0
// Times the kernels on a GPU beside what its memory allows: a copy, and a cast that reads two bytes and writes one.
// Usage: gpu_bench [OUT.json [COMMIT [DATE]]]. Exit code 77 where there is no GPU.
//
// Each row is one captured graph that walks over inputs larger than three times the L2 cache, replayed; the number is
// the median. Bytes are those that must move: weights read, codes and scales written.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fp8wire/cuda/bulk.cuh>
#include <fp8wire/cuda/compact.cuh>
#include <fp8wire/cuda/move.cuh>
#include <fp8wire/cuda/partial.cuh>
#include <fp8wire/cuda/quantize.cuh>
#include <fp8wire/layout/swizzle.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/rules/quotient.hpp>
#include <thrust/execution_policy.h>
#include <thrust/transform.h>

// Not unnamed: its directives would be the whole file's, and Thrust brings another namespace cuda.
namespace timing {

using namespace fp8wire;
namespace cuda = fp8wire::cuda;
using block = presets::te_block::recipe;
using block_pow2 = presets::te_block_pow2::recipe;
using row_block = presets::te_row_block::recipe;
using mx = presets::te_mxfp8::recipe;
using mx_column = presets::te_mxfp8_columnwise::recipe;
using tensor = recipe<e4m3, fp8wire::block<whole, whole>, rules::quotient>;

constexpr i64 rows = 8192, cols = 7168, count = rows * cols;
constexpr int replays = 25;

void expect(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}
template <class Value> Value* device(i64 elements) {
  void* data = nullptr;
  expect(cudaMalloc(&data, static_cast<std::size_t>(elements) * sizeof(Value)), "device memory");
  return static_cast<Value*>(data);
}

/// Weights of ordinary size, another for every element.
__global__ void fill(u16* weights, i64 elements, u32 seed) {
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += i64{gridDim.x} * blockDim.x) {
    u32 x = static_cast<u32>(i) * 2654435761u + seed;
    x ^= x >> 15, x *= 0x2C1B3C6Du, x ^= x >> 12;
    weights[i] = static_cast<u16>((x & 0x807F) | ((112 + (x >> 8) % 16) << 7));
  }
}
/// The ceiling: the same traffic without scales, sixteen bytes a thread in, eight out.
__global__ void cast(const kernel::words<4>* in, u64* out, i64 vectors) {
  const i64 at = i64{blockIdx.x} * 256 + threadIdx.x;
  if (at >= vectors) return;
  cuda::context c;
  const kernel::words<4> read = c.load(in + at);
  u64 made = 0;
  for (int w = 0; w < 4; ++w) {
    const float low = float_of(read.at[w] << 16), high = float_of(read.at[w] & 0xFFFF0000u);
    made |= static_cast<u64>(cuda::context::convert2<e4m3>(low, high)) << (16 * w);
  }
  c.store(out + at, made);
}

/// One element of the same cast, for Thrust.
struct cast_one {
  __device__ u8 operator()(u16 weight) const {
    return static_cast<u8>(cuda::context::convert2<e4m3>(float_of(u32{weight} << 16), 0.0f));
  }
};

struct row {
  std::string name;
  double bytes_per_element, microseconds, gigabytes;
};

struct bench {
  std::vector<u16*> weights;  // distinct inputs, together beyond three times the L2
  std::vector<u8*> codes;
  std::vector<u8*> more_codes;
  std::vector<float*> scales;
  i64* status = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<row> rows_done;

  /// enqueue(i): the work on input i. elements: of one input.
  void measure(const char* name, double bytes_per_element, const std::function<cudaError_t(std::size_t)>& enqueue,
               i64 elements = count) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), name);
    for (std::size_t i = 0; i < weights.size(); ++i) expect(enqueue(i), name);
    expect(cudaStreamEndCapture(stream, &graph), name);
    expect(cudaGraphInstantiate(&ready, graph, 0), name);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < replays + 3; ++i) {
      cudaEventRecord(begin, stream);
      expect(cudaGraphLaunch(ready, stream), name);
      cudaEventRecord(end, stream);
      expect(cudaEventSynchronize(end), name);
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, begin, end);
      if (i >= 3) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    const double each = 1e3 * times[times.size() / 2] / static_cast<double>(weights.size());
    const double moved = static_cast<double>(elements) * bytes_per_element;
    rows_done.push_back({name, bytes_per_element, each, moved / each / 1e3});
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }

  matrix_view<const bf16> in(std::size_t i) const {
    return dense(reinterpret_cast<const bf16*>(weights[i]), rows, cols);
  }
  template <class Recipe> pair_view<Recipe> out(std::size_t i) const {
    using grid = typename Recipe::block;
    return {dense(codes[i], rows, cols),
            dense(reinterpret_cast<stored_t<Recipe>*>(scales[i]), scale_rows<grid>(rows), scale_cols<grid>(cols))};
  }
  template <class Recipe> void quantize(const char* name, double bytes) {
    measure(name, bytes,
            [&](std::size_t i) { return cuda::quantize<Recipe>(in(i), out<Recipe>(i), status, 0.0f, stream); });
  }

  /// Many small tensors: a job table, and a launch each.
  void grouped() {
    using task = kernel::quantize_task<block, bf16>;
    using table = cuda::job_table<task>;
    constexpr i64 tensors = 2048, height = 128, width = count / tensors / height, blocks_each = ceil_div(width, 128);
    std::vector<std::vector<task>> tasks(weights.size());
    void* pinned = nullptr;
    std::vector<u8*> tables;
    expect(cudaMallocHost(&pinned, table::bytes(tensors)), "pinned memory");
    i64 blocks = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (i64 t = 0; t < tensors; ++t) {
        const i64 first = t * height * width;
        tasks[i].push_back(cuda::quantize_task<block>(
            matrix_view<const bf16>(dense(reinterpret_cast<const bf16*>(weights[i]) + first, height, width)),
            dense(codes[i] + first, height, width), dense(scales[i] + t * blocks_each, 1, blocks_each), status));
      }
      tables.push_back(device<u8>(static_cast<i64>(table::bytes(tensors))));
      blocks = table::fill(tasks[i].data(), tensors, pinned);
      expect(table::upload(pinned, tables[i], tensors, stream), "upload");
      expect(cudaStreamSynchronize(stream), "upload");
    }
    measure("128x128, 2048 tensors, one launch", 3.0002,
            [&](std::size_t i) { return cuda::quantize(table::view(tables[i], tensors), blocks, stream); });
    measure("128x128, 2048 tensors, 2048 launches", 3.0002, [&](std::size_t i) {
      for (const task& one : tasks[i]) {
        const cudaError_t wrong =
            cuda::launch<kernel::quantize_body<kernel::one_task<task>, task>>(tiles_of_task(one), {one}, stream);
        if (wrong != cudaSuccess) return wrong;
      }
      return cudaSuccess;
    });
    for (u8* one : tables) cudaFree(one);
    cudaFreeHost(pinned);
  }

  void run(const cudaDeviceProp& gpu) {
    const i64 inputs = std::max<i64>(3, ceil_div(3 * static_cast<i64>(gpu.l2CacheSize), count * 3) + 1);
    for (i64 i = 0; i < inputs; ++i) {
      weights.push_back(device<u16>(count));
      codes.push_back(device<u8>(count));
      more_codes.push_back(device<u8>(count));
      scales.push_back(device<float>(count / 16));
      fill<<<4096, 256>>>(weights.back(), count, static_cast<u32>(i * 977));
    }
    status = device<i64>(1);
    expect(cudaMemset(status, 0xFF, 8), "status");
    expect(cudaDeviceSynchronize(), "inputs");
    expect(cudaStreamCreate(&stream), "stream");

    measure("copy of the weights", 4, [&](std::size_t i) {
      u16* const to = weights[(i + 1) % weights.size()];
      return cudaMemcpyAsync(to, weights[i], count * 2, cudaMemcpyDeviceToDevice, stream);
    });
    measure("cast, 2 bytes in and 1 out", 3, [&](std::size_t i) {
      cast<<<static_cast<unsigned>(count / 8 / 256), 256, 0, stream>>>(
          reinterpret_cast<const kernel::words<4>*>(weights[i]), reinterpret_cast<u64*>(codes[i]), count / 8);
      return cudaGetLastError();
    });
    measure("the same cast by thrust::transform", 3, [&](std::size_t i) {
      thrust::transform(thrust::cuda::par_nosync.on(stream), weights[i], weights[i] + count, codes[i], cast_one{});
      return cudaGetLastError();
    });
    quantize<block>("128x128 FP32 scales", 3.0002);
    quantize<block_pow2>("128x128 power-of-two scales", 3.0002);
    quantize<row_block>("1x128 FP32 scales", 3.031);
    quantize<mx>("MXFP8 1x32", 3.031);
    measure("MXFP8 1x32 by bulk copies", 3.031, [&](std::size_t i) {
      return cuda::quantize_bulk<mx>(in(i), out<mx>(i), status, 0.0f, stream);
    });
    quantize<mx_column>("MXFP8 32x1", 3.031);
    measure("MXFP8 1x32, scales in 128x4 tiles", 3.031, [&](std::size_t i) {
      const laid_out<swizzle_128x4, e8m0> tiles{reinterpret_cast<e8m0*>(scales[i]), 1, rows, cols / 32};
      return cuda::quantize<mx>(in(i), dense(codes[i], rows, cols), tiles, status, 0.0f, stream);
    });
    measure("MXFP8 1x32 and 32x1, one read", 4.0625, [&](std::size_t i) {
      const pair_view<mx_column> columns{dense(more_codes[i], rows, cols),
                                         dense(reinterpret_cast<e8m0*>(scales[i]) + count / 32, rows / 32, cols)};
      return cuda::quantize_both<mx, mx_column>(in(i), out<mx>(i), columns, status, 0.0f, stream);
    });
    measure("one scale a tensor, two reads", 5, [&](std::size_t i) {
      return cuda::quantize_in_two<tensor>(in(i), out<tensor>(i), reinterpret_cast<u32*>(scales[i]) + 4, status, 0.0f,
                                           stream);
    });
    grouped();
    quantize<block>("128x128 FP32 scales, again", 3.0002);
    measure("dequantize 128x128 to BF16", 3.0002, [&](std::size_t i) {
      const const_pair_view<block> pair = out<block>(i);
      const auto back = dense(reinterpret_cast<bf16*>(weights[i]), rows, cols);
      return cuda::dequantize<block>(pair.codes, pair.scales, back, stream);
    });
    measure("change bitmap", 2.125, [&](std::size_t i) {
      const auto view = [](u8* data) { return matrix_view<const u8>(dense(static_cast<const u8*>(data), rows, cols)); };
      return cuda::compare(view(codes[i]), view(more_codes[i]),
                           dense(reinterpret_cast<u8*>(scales[i]), rows, cols / 8), nullptr, stream);
    });
    compaction();
  }

  /// Codes for flags: nearly all are set, the most that a compaction can have to write.
  void compaction() {
    constexpr i64 flags = count / 32;  // as many numbers as the scales have room for
    std::size_t bytes = 0;
    expect(cuda::compact(nullptr, bytes, codes[0], flags, reinterpret_cast<i64*>(scales[0]), nullptr, stream), "bytes");
    u8* const temporary = device<u8>(static_cast<i64>(bytes));
    i64* const total = device<i64>(1);
    measure(
        "compaction of flags", 9,
        [&](std::size_t i) {
          return cuda::compact(temporary, bytes, codes[i], flags, reinterpret_cast<i64*>(scales[i]), total, stream);
        },
        flags);
    cudaFree(temporary);
    cudaFree(total);
  }
};

/// Share of the cast's rate that a row must reach, 0: none.
double bar_of(const std::string& name) {
  if (name.find("one read") != std::string::npos) return 0.85;
  if (name == "128x128 FP32 scales" || name == "128x128 power-of-two scales" || name == "MXFP8 1x32") return 0.90;
  return 0;
}

}  // namespace timing

int main(int argc, char** argv) {
  int devices = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&devices); code != cudaSuccess || devices == 0) {
    std::printf("SKIP: no GPU: %s\n", code == cudaSuccess ? "no device" : cudaGetErrorString(code));
    return 77;
  }
  try {
    using namespace timing;
    cudaDeviceProp gpu;
    expect(cudaGetDeviceProperties(&gpu, 0), "device");
    bench all;
    all.run(gpu);
    const double ceiling = all.rows_done[1].gigabytes;
    int below = 0;
    std::printf("\n%s, %d SMs, L2 %d MiB, %zu inputs of %lld x %lld BF16\n", gpu.name, gpu.multiProcessorCount,
                gpu.l2CacheSize >> 20, all.weights.size(), static_cast<long long>(rows), static_cast<long long>(cols));
    std::printf("%-40s %8s %10s %10s %8s\n", "", "B/elem", "us", "GB/s", "of cast");
    for (const row& one : all.rows_done) {
      const double share = one.gigabytes / ceiling, bar = bar_of(one.name);
      below += share < bar ? 1 : 0;
      std::printf("%-40s %8.4f %10.1f %10.0f %7.2f%s\n", one.name.c_str(), one.bytes_per_element, one.microseconds,
                  one.gigabytes, share, share < bar ? "  below its bar" : "");
    }
    if (argc > 1) {
      std::FILE* file = std::fopen(argv[1], "w");
      if (file == nullptr) throw std::runtime_error(std::string("cannot write ") + argv[1]);
      std::fprintf(file, "{\"device\": \"%s\", \"date\": \"%s\", \"commit\": \"%s\", \"rows\": [", gpu.name,
                   argc > 3 ? argv[3] : "", argc > 2 ? argv[2] : "");
      for (std::size_t i = 0; i < all.rows_done.size(); ++i) {
        const row& one = all.rows_done[i];
        std::fprintf(file, "%s\n  {\"name\": \"%s\", \"bytes_per_element\": %.4f, \"us\": %.2f, \"gb_per_s\": %.1f, "
                           "\"of_cast\": %.4f}",
                     i == 0 ? "" : ",", one.name.c_str(), one.bytes_per_element, one.microseconds, one.gigabytes,
                     one.gigabytes / ceiling);
      }
      std::fprintf(file, "\n]}\n");
      std::fclose(file);
    }
    return below == 0 ? 0 : 1;
  } catch (const std::exception& wrong) {
    std::printf("FAIL %s\n", wrong.what());
    return 1;
  }
}
