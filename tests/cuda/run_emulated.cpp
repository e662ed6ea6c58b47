// SPDX-License-Identifier: Apache-2.0
// Every kernel of the list on the block emulator, built to be watched by ThreadSanitizer: tsan_test.py.
// Usage: run_emulated [--no-barriers | --no-second-barrier | --nothing]. The first two plant a fault in one kernel; the
// last only shows that the program starts.
#include <cstdio>
#include <string_view>

#include "block_emulator.hpp"
#include "cases.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;

template <class Context> struct machine {
  template <class Body>
  void launch(const char*, i64 blocks, const typename Body::params& params, checks::device_memory& memory) {
    emulator::launch<Body, Context>(blocks, params, memory);
  }
};

struct no_barriers : emulator::context<16> {
  void sync() {}
  bool sync_or(bool yes) { return yes; }
};
/// Maxima are waited for, scales are not.
struct no_second_barrier : emulator::context<16> {
  void sync() {}
};

template <class Context, class Body> bool passes(const char* name, Body* body) {
  try {
    machine<Context> machine;
    cases::check(machine, name, body);
    return true;
  } catch (const std::exception& wrong) {
    std::printf("FAIL %s: %s\n", name, wrong.what());
    return false;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view fault = count > 1 ? arguments[1] : "";
  if (fault == "--nothing") return 0;
  // What a fault does to bytes is not asked here: a race is one even where the bytes are right by luck.
  kernels::block_bf16* const faulty = nullptr;
  if (fault == "--no-barriers") return passes<no_barriers>("block_bf16", faulty), 0;
  if (fault == "--no-second-barrier") return passes<no_second_barrier>("block_bf16", faulty), 0;
  int failed = 0, all = 0;
  cases::for_each_kernel([&](const char* name, auto* body) {
    ++all;
    if (!passes<emulator::context<16>>(name, body)) ++failed;
  });
  std::printf("%d kernels on the emulator, %d failed\n", all, failed);
  return failed == 0 ? 0 : 1;
}
