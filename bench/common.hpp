// SPDX-License-Identifier: Apache-2.0
// Buffers, a way to time a piece of work next to its memory limit, and the counters that a row reports.
#pragma once
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fp8wire/interop/openmp.hpp>
#include <functional>
#include <string>
#include <vector>

#include "limits.hpp"

namespace bench {

/// FP8WIRE_BENCH_MIB sets the size of the input (512 by default), FP8WIRE_BENCH_REPETITIONS the rounds (9).
inline i64 setting(const char* name, i64 otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}
inline i64 input_bytes() { return setting("FP8WIRE_BENCH_MIB", 512) << 20; }
inline int repetitions() { return static_cast<int>(setting("FP8WIRE_BENCH_REPETITIONS", 9)); }

/// Zeroed pages, touched, with huge pages asked for.
class buffer {
 public:
  explicit buffer(i64 bytes) : bytes_(static_cast<std::size_t>(bytes) + 8192) {
    data_ = static_cast<u8*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() { munmap(data_, bytes_); }
  template <class T = u8> T* as() const { return reinterpret_cast<T*>(data_); }

 private:
  std::size_t bytes_;
  u8* data_;
};

inline double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Streams `count` elements on `threads` threads in the fastest manner; returns the seconds of the best.
template <mix Mix, manner... How> double limit_seconds(const u8* in, const u8* before, u8* out, u8* bits, i64 count,
                                                       int threads) {
  constexpr double read = Mix == mix::four_to_one                                       ? 4
                          : Mix == mix::two_to_one || Mix == mix::three_to_one_and_bits ? 2
                                                                                        : 1;
  constexpr double written = Mix == mix::one_to_two ? 2 : Mix == mix::one_to_four ? 4 : 1;
  double best = 1e30;
  const auto run = [&]<manner Manner>() {
    best = std::min(best, seconds([&] {
                      fp8wire::openmp{threads}.run(threads, [&](i64 piece) {
                        const i64 first = count / 128 * piece / threads * 128,
                                  last = count / 128 * (piece + 1) / threads * 128;
                        stream<Mix, Manner>(in + static_cast<i64>(read) * first, before + first,
                                            out + static_cast<i64>(written) * first, bits + first / 8, last - first);
                      });
                    }));
  };
  (run.template operator()<How>(), ...);
  return best;
}

/// Repeats work and limit in turn and reports the median of the ratios, so that a neighbour on the machine slows both.
/// Counters: of_limit, GB/s of both, ns an element, and the spread of the limit itself ((largest - least) / median).
template <mix Mix> void against_limit(benchmark::State& state, const buffer& in, const buffer& before, buffer& out,
                                      buffer& bits, i64 count, int threads, const std::function<void()>& work) {
  std::vector<double> ratios, works, limits;
  const auto limit = [&] {
    return limit_seconds<Mix, manner::streamed, manner::streamed_ahead, manner::plain, manner::plain_ahead>(
        in.as(), before.as(), out.as(), bits.as(), count, threads);
  };
  work();  // page tables, threads
  for (auto _ : state) {
    for (int i = 0; i < repetitions(); ++i) {
      limits.push_back(limit());
      works.push_back(seconds(work));
      ratios.push_back(limits.back() / works.back());
    }
    state.SetIterationTime(median(works));
  }
  const double bytes = bytes_per_element(Mix) * static_cast<double>(count);
  state.counters["of_limit"] = median(ratios);
  state.counters["GB/s"] = bytes / median(works) / 1e9;
  state.counters["limit_GB/s"] = bytes / median(limits) / 1e9;
  state.counters["ns_per_element"] = median(works) * 1e9 / static_cast<double>(count);
  state.counters["limit_spread"] =
      (*std::max_element(limits.begin(), limits.end()) - *std::min_element(limits.begin(), limits.end())) /
      median(limits);
  state.SetBytesProcessed(static_cast<i64>(state.iterations()) * static_cast<i64>(bytes));
}

inline benchmark::internal::Benchmark* add(const std::string& name, const std::function<void(benchmark::State&)>& row) {
  return benchmark::RegisterBenchmark(name.c_str(), row)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

void add_layout();
void add_quant();
void add_wire();

}  // namespace bench
