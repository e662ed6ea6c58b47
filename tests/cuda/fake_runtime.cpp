// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime for a machine without a GPU: kernels run in the PTX interpreter, from the PTX that nvcc put into the
// program. Whatever is enqueued waits until somebody synchronizes, so that code which does not wait long enough, or
// writes pinned memory too early, makes wrong bytes here as it would there. Only what the library and its tests call.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "interpreter.hpp"

namespace {

using fp8wire::i64;
using fp8wire::u8;
using work = std::function<void()>;

struct runtime {
  std::map<std::string, ptx::kernel> kernels;
  std::map<const void*, std::string> names;  // of host stubs
  std::map<const u8*, std::size_t> memory;
};
runtime& all() {
  static runtime one;
  return one;
}
[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "the fake CUDA runtime stops: %s\n", why.c_str());
  std::exit(3);
}

}  // namespace

struct CUgraph_st {
  std::vector<work> steps;
};
struct CUgraphExec_st {
  std::vector<work> steps;
};
struct CUstream_st {
  std::vector<work> waiting;
  std::unique_ptr<CUgraph_st> captured;
};

namespace {

std::vector<CUstream_st*>& streams() {
  static CUstream_st usual;
  static std::vector<CUstream_st*> list{&usual};
  return list;
}
CUstream_st& stream_of(cudaStream_t stream) { return stream == nullptr ? *streams().front() : *stream; }
void enqueue(cudaStream_t stream, work one) {
  CUstream_st& to = stream_of(stream);
  (to.captured ? to.captured->steps : to.waiting).push_back(std::move(one));
}
void run(CUstream_st& stream) {
  if (stream.captured) stop("a stream is synchronized while it is captured");
  const std::vector<work> steps = std::move(stream.waiting);
  stream.waiting.clear();
  for (const work& step : steps) step();
}

cudaError_t allocate(void** data, std::size_t bytes, bool device) {
  *data = ::operator new(bytes == 0 ? 1 : bytes, std::align_val_t{256});
  std::memset(*data, 0xA5, bytes);
  if (device) all().memory[static_cast<const u8*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t release(void* data) {
  for (CUstream_st* stream : streams()) run(*stream);
  all().memory.erase(static_cast<const u8*>(data));
  if (data != nullptr) ::operator delete(data, std::align_val_t{256});
  return cudaSuccess;
}

struct configuration {
  dim3 grid, threads;
  cudaStream_t stream = nullptr;
};
configuration& configured() {
  static configuration last;
  return last;
}

void launch(const std::string& name, i64 blocks, int threads, const std::vector<u8>& params) {
  const auto kernel = all().kernels.find(name);
  if (kernel == all().kernels.end()) stop("no PTX of kernel " + name);
  checks::device_memory memory;
  for (const auto& [data, bytes] : all().memory) memory.bounds_only(data, bytes);
  try {
    ptx::machine machine(kernel->second, threads, memory);
    machine.run(blocks, params.data(), params.size());
  } catch (const std::exception& wrong) {
    stop(name.substr(0, 60) + ": " + wrong.what());
  }
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  // {magic, version, data, file name}; the data begins with {magic, version, header bytes, bytes}.
  struct wrapped {
    int magic, version;
    const char* data;
    void* name;
  };
  const char* data = static_cast<const wrapped*>(wrapper)->data;
  std::uint64_t bytes;
  std::memcpy(&bytes, data + 8, 8);
  const std::string text(data, static_cast<std::size_t>(bytes) + 16);
  const std::size_t at = text.find(".version ");
  if (at == std::string::npos) stop("the program holds no plain PTX: build it with -no-compress and code=compute_XX");
  try {
    all().kernels.merge(ptx::reader::read(text.substr(at, text.find('\0', at) - at)));
  } catch (const std::exception& wrong) {
    stop(wrong.what());
  }
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  all().names[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

// What <<<>>> becomes: the configuration is put away, and the stub takes it back.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, std::size_t, cudaStream_t stream) {
  configured() = {grid, threads, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* threads, std::size_t* shared, void* stream) {
  *grid = configured().grid;
  *threads = configured().threads;
  *shared = 0;
  *static_cast<cudaStream_t*>(stream) = configured().stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 threads, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, threads, arguments, shared, stream);
}

// CUB asks for these before it launches. One block an SM, so that no answer depends on a device.
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  switch (what) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 1; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7FFFFFFF; break;
    default: stop("no such attribute of a device: " + std::to_string(static_cast<int>(what)));
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* made, const void*) {
  *made = {};
  made->ptxVersion = made->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                    unsigned) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t code) { return code == cudaSuccess ? "no error" : "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes, true); }
cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned) { return allocate(data, bytes, true); }
cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return allocate(data, bytes, false); }
cudaError_t cudaFree(void* data) { return release(data); }
cudaError_t cudaFreeHost(void* data) { return release(data); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  for (CUstream_st* stream : streams()) run(*stream);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  enqueue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  enqueue(stream, [=] { std::memset(to, byte, bytes); });
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t stream) {
  const std::string name = all().names.at(stub);
  const auto kernel = all().kernels.find(name);
  if (kernel == all().kernels.end()) stop("no PTX of kernel " + name);
  if (grid.y != 1 || grid.z != 1 || threads.y != 1 || threads.z != 1) stop("a grid of more than one dimension");
  // The launch takes the parameters' bytes at once, as the real one does.
  std::vector<u8> params(kernel->second.param_bytes);
  for (const auto& [at, bytes] : kernel->second.params) std::memcpy(params.data() + at, *arguments++, bytes);
  enqueue(stream, [=] { launch(name, static_cast<i64>(grid.x), static_cast<int>(threads.x), params); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  streams().push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run(*stream);
  streams().erase(std::find(streams().begin(), streams().end(), stream));
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  run(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  for (CUstream_st* stream : streams()) run(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->captured = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->captured.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new CUgraphExec_st{graph->steps};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const work& step : graph->steps) enqueue(stream, step);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
