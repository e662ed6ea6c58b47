// SPDX-License-Identifier: Apache-2.0
// Runs every kernel of a PTX file in the interpreter and compares its bytes with the library's definition.
// Usage: run_ptx FILE.ptx [--faults]   (--faults: plants faults in the text; every one of them must be found)
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "cases.hpp"
#include "host_memory.hpp"
#include "interpreter.hpp"

namespace {

using namespace fp8wire;

struct interpreter {
  std::map<std::string, ptx::kernel> kernels;
  ptx::counters last;

  template <class Body>
  void launch(const char* name, i64 blocks, const typename Body::params& params, checks::device_memory& memory) {
    const auto found = kernels.find(name);
    if (found == kernels.end()) throw checks::fault(std::string("there is no kernel ") + name);
    ptx::machine machine(found->second, Body::threads, memory);
    last = machine.run(blocks, &params, sizeof(params));
  }
};

/// Empty, or what is wrong.
template <class Body> std::string fault_of(interpreter& machine, const char* name, Body* body) {
  try {
    cases::check(machine, name, body);
    return "";
  } catch (const std::exception& wrong) {
    return wrong.what();
  }
}

/// The text of one entry, so that a fault is planted in it alone.
std::string entry_of(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(".entry " + name + "(");
  if (at == std::string::npos) return "";
  const std::size_t next = text.find(".visible .entry", at);
  return text.substr(at, next == std::string::npos ? next : next - at);
}

/// Replaces the nth occurrence (-1: the last); false where there is none.
bool replace(std::string& text, const std::string& what, const std::string& with, int nth = 0) {
  std::size_t at = nth < 0 ? text.rfind(what) : text.find(what);
  for (; nth > 0 && at != std::string::npos; --nth) at = text.find(what, at + 1);
  if (at == std::string::npos) return false;
  text.replace(at, what.size(), with);
  return true;
}

int occurrences(const std::string& text, const std::string& what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// Swaps the sources of every conversion of two values.
bool swap_conversion(std::string& text) {
  bool swapped = false;
  for (std::size_t at = text.find("cvt.rn.satfinite.e4m3x2.f32"); at != std::string::npos;
       at = text.find("cvt.rn.satfinite.e4m3x2.f32", at + 1)) {
    const std::size_t first = text.find(',', at), second = text.find(',', first + 1), end = text.find(';', second);
    const std::string a = text.substr(first + 1, second - first - 1), b = text.substr(second + 1, end - second - 1);
    text.replace(first + 1, end - first - 1, b + "," + a);
    swapped = true;
  }
  return swapped;
}

/// The nth bar.red.or answers with the thread's own question.
bool forget_to_wait(std::string& text, int nth) {
  std::size_t at = text.find("bar.red.or.pred");
  for (; nth > 0 && at != std::string::npos; --nth) at = text.find("bar.red.or.pred", at + 1);
  if (at == std::string::npos) return false;
  const std::size_t end = text.find(';', at);
  const std::string operands = text.substr(at + 15, end - at - 15);
  const std::size_t first = operands.find(','), second = operands.find(',', first + 1);
  text.replace(at, end - at, "mov.pred " + operands.substr(0, first) + "," + operands.substr(second + 1));
  return true;
}

struct planted {
  const char* kernel;
  const char* what;
  std::function<bool(std::string&)> plant;
};

int run_faults(const std::string& text) {
  std::vector<planted> faults;
  const auto add = [&](const char* kernel, const char* what, auto plant) { faults.push_back({kernel, what, plant}); };
  for (const char* kernel : {"block_bf16", "mx_bf16", "mx_column_bf16", "mx_both_bf16", "tensor_cast_bf16"}) {
    // Every barrier, one after the other: bar.sync goes, bar.red.or becomes a move that waits for nobody.
    const std::string entry = entry_of(text, kernel);
    for (int nth = 0, count = occurrences(entry, "bar.sync"); nth < count; ++nth)
      add(kernel, "a barrier lost", [nth](std::string& t) { return replace(t, "bar.sync", "// bar.sync", nth); });
    for (int nth = 0, count = occurrences(entry, "bar.red.or.pred"); nth < count; ++nth)
      add(kernel, "a barrier with an answer lost", [nth](std::string& t) { return forget_to_wait(t, nth); });
  }
  for (const char* kernel : {"block_bf16", "mx_swizzled_bf16", "row_bf16"}) {
    add(kernel, "the sources of a conversion swapped", swap_conversion);
    add(kernel, "a product rounded down", [](std::string& t) { return replace(t, "mul.rn.f32", "mul.rm.f32"); });
    add(kernel, "a conversion without saturation",
        [](std::string& t) { return replace(t, "cvt.rn.satfinite.e4m3x2", "cvt.rn.e4m3x2"); });
    add(kernel, "the first vector of codes not stored",
        [](std::string& t) { return replace(t, "st.global.b64", "// st.global.b64"); });
    add(kernel, "the last vector of codes not stored",
        [](std::string& t) { return replace(t, "st.global.v4.b32", "// st.global.v4.b32", -1); });
    add(kernel, "a load of twice as many registers",
        [](std::string& t) { return replace(t, "ld.global.v4.b32", "ld.global.v8.b32"); });
  }
  add("block_bf16", "a division that approximates",
      [](std::string& t) { return replace(t, "div.rn.f32", "div.full.f32"); });
  add("block_bf16", "a division that flushes",
      [](std::string& t) { return replace(t, "div.rn.f32", "div.rn.ftz.f32"); });
  add("block_bf16", "a maximum that is a minimum", [](std::string& t) { return replace(t, "max.u", "min.u", 2); });
  add("checksum_pieces", "a shuffle among fewer lanes",
      [](std::string& t) { return replace(t, ", 31, -1", ", 15, -1"); });
  add("checksum_pieces", "a rotation by another number", [](std::string& t) {
    bool any = false;
    while (replace(t, ", 29;", ", 30;")) any = true;
    return any;
  });
  int missed = 0;
  for (const planted& f : faults) {
    std::string entry = entry_of(text, f.kernel);
    if (!f.plant(entry)) {
      std::printf("left out  %-20s %s: this architecture has no place for it\n", f.kernel, f.what);
      continue;
    }
    std::string found = "";
    cases::for_each_kernel([&](const char* name, auto* body) {
      if (std::string(name) != f.kernel) return;
      try {
        interpreter machine{ptx::reader::read(entry), {}};
        found = fault_of(machine, name, body);
      } catch (const std::exception& refused) {
        found = refused.what();
      }
    });
    std::printf("%s %-20s %s: %s\n", found.empty() ? "MISSED   " : "found    ", f.kernel, f.what, found.c_str());
    missed += found.empty() ? 1 : 0;
  }
  return missed;
}

int run_all(const std::string& text) {
  interpreter machine{ptx::reader::read(text), {}};
  int failed = 0;
  cases::for_each_kernel([&](const char* name, auto* body) {
    const std::string wrong = fault_of(machine, name, body);
    std::printf("%s %-24s %s\n", wrong.empty() ? "ok  " : "FAIL", name, wrong.c_str());
    failed += wrong.empty() ? 0 : 1;
  });
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", argv[1]);
    return 2;
  }
  try {
    const int wrong = argc > 2 ? run_faults(text.str()) : run_all(text.str());
    std::printf("%s: %d wrong\n", argv[1], wrong);
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& refused) {
    std::printf("%s: %s\n", argv[1], refused.what());
    return 1;
  }
}
