// SPDX-License-Identifier: Apache-2.0
// Runs every kernel of a PTX file in the interpreter, compares its bytes with the library's definition, and its sectors
// with their bounds. Usage: run_ptx FILE.ptx SECTORS.txt [--faults]
// (--faults: plants faults in the text; every one of them must be found)
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "cases.hpp"
#include "host_memory.hpp"
#include "interpreter.hpp"

namespace {

using namespace fp8wire;

/// Bytes asked for a byte of the sectors that were touched: 1 where every sector is used whole, more where lanes share.
struct shares {
  double loads = 0, stores = 0;
  bool bulk = false;  // claimed where the kernel has bulk copies
};
double share_of(u64 bytes, u64 sectors) {
  return sectors == 0 ? 0 : static_cast<double>(bytes) / (32 * static_cast<double>(sectors));
}

struct interpreter {
  std::map<std::string, ptx::kernel> kernels;
  std::map<std::string, shares> first{};  // of each kernel's first launch

  template <class Body>
  void launch(const char* name, i64 blocks, const typename Body::params& params, checks::device_memory& memory) {
    const auto found = kernels.find(name);
    if (found == kernels.end()) throw checks::fault(std::string("there is no kernel ") + name);
    ptx::machine machine(found->second, Body::threads, memory);
    const ptx::counters cost = machine.run(blocks, &params, sizeof(params));
    first.try_emplace(name, shares{share_of(cost.load_bytes, cost.load_sectors),
                                   share_of(cost.store_bytes, cost.store_sectors), found->second.bulk});
  }
};

using bounds = std::map<std::string, shares>;

bounds read_bounds(const char* path) {
  std::ifstream file(path);
  bounds made;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    shares least;
    if (line.empty() || line.front() == '#') continue;
    if (!(words >> name >> least.loads >> least.stores)) throw std::runtime_error(std::string(path) + ": " + line);
    least.bulk = static_cast<bool>(words >> line);
    made[name] = least;
  }
  if (made.empty()) throw std::runtime_error(std::string("there are no bounds in ") + path);
  return made;
}

/// Empty, or what is wrong.
template <class Body>
std::string fault_of(interpreter& machine, const bounds& all, const char* name, Body* body) {
  try {
    cases::check(machine, name, body);
    const auto least = all.find(name);
    if (least == all.end()) return "no bound for its sectors";
    const shares made = machine.first.at(name);
    if (least->second.bulk && !made.bulk) return "";
    char text[120] = "";
    if (made.loads < least->second.loads)
      std::snprintf(text, sizeof(text), "loads use %.3f of their sectors, at least %.3f", made.loads,
                    least->second.loads);
    if (made.stores < least->second.stores)
      std::snprintf(text, sizeof(text), "stores use %.3f of their sectors, at least %.3f", made.stores,
                    least->second.stores);
    return text;
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

/// What stands between `what` and the end of its statement is changed, in the nth one of them: change(name, operands).
template <class Change> bool rewrite(std::string& text, const std::string& what, int nth, const Change& change) {
  std::size_t at = text.find(what);
  for (; nth > 0 && at != std::string::npos; --nth) at = text.find(what, at + 1);
  if (at == std::string::npos) return false;
  const std::size_t end = text.find(';', at), space = std::min(text.find(' ', at), end);
  std::vector<std::string> operands;
  for (std::size_t from = space; from < end;) {
    const std::size_t comma = std::min(text.find(',', from), end), first = text.find_first_not_of(' ', from);
    operands.push_back(text.substr(first, comma - first));
    from = comma + 1;
  }
  text.replace(at, end - at, change(text.substr(at, space - at), operands));
  return true;
}
std::string joined(const std::string& name, const std::vector<std::string>& operands) {
  std::string made = name;
  for (std::size_t i = 0; i < operands.size(); ++i) made += (i == 0 ? " " : ", ") + operands[i];
  return made;
}

/// Neighbours in a row of the block of 256 threads become neighbours in a column: the same bytes, by other sectors.
bool transpose_threads(std::string& text) {
  bool any = false;
  for (std::size_t at = text.find(", %tid.x;"); at != std::string::npos; at = text.find(", %tid.x;", at)) {
    const std::size_t begin = text.rfind("mov.u32", at);
    const std::string to = text.substr(begin + 7, at - begin - 7);
    const std::string made = "{.reg .b32 a, b; mov.u32 a, %tid.x ; and.b32 b, a, 15; shl.b32 b, b, 4; "
                             "shr.u32 a, a, 4; or.b32 " + to + ", a, b;}";
    text.replace(begin, at + 9 - begin, made);
    at = begin + made.size();
    any = true;
  }
  return any;
}

struct planted {
  const char* kernel;
  const char* what;
  std::function<bool(std::string&)> plant;
  const char* says = "";  // a word of what it must be found by
};

/// What can be forgotten or miscounted about bulk copies.
void add_bulk_faults(std::vector<planted>& faults, const std::string& text) {
  using operands = std::vector<std::string>;
  const char* const kernel = "mx_bulk_bf16";
  const auto add = [&](const char* what, auto plant, const char* says) {
    faults.push_back({kernel, what, plant, says});
  };
  const auto lose = [&](const char* what, const char* which, int nth, const char* says) {
    add(what, [=](std::string& t) { return replace(t, which, std::string("// ") + which, nth); }, says);
  };
  const auto change = [&](const char* what, const char* which, auto how, const char* says) {
    add(what, [=](std::string& t) { return rewrite(t, which, 0, how); }, says);
  };
  const std::string entry = entry_of(text, kernel);
  for (int nth = 0, count = occurrences(entry, "bar.sync"); nth < count; ++nth)
    lose("a barrier lost", "bar.sync", nth, "");
  for (int nth = 0, count = std::max(1, occurrences(entry, "fence.proxy.async")); nth < count; ++nth)
    lose("a proxy fence lost", "fence.proxy.async", nth, "without fence.proxy.async");
  change("no wait for the bytes", "mbarrier.try_wait",
         [](const std::string&, const operands& of) { return "setp.eq.u32 " + of[0] + ", 0, 0"; }, "still fills");
  change("one thread alone waits for the bytes", "mbarrier.try_wait",
         [](const std::string& name, const operands& of) {
           return "setp.ne.u32 " + of[0] + ", %tid.x, 0; @!" + of[0] + " " + joined(name, of);
         },
         "a bulk copy");
  change("a wait for the other parity", "mbarrier.try_wait",
         [](const std::string& name, const operands& of) {
           return "xor.b32 %other, " + of[2] + ", 1; " + joined(name, {of[0], of[1], "%other"});
         },
         "still fills");
  lose("no wait for a store to read", "cp.async.bulk.wait_group.read", 0, "still reads");
  lose("a block that leaves its stores", "cp.async.bulk.wait_group 0", 0, "a block ends");
  lose("a store not committed", "cp.async.bulk.commit_group", 1, "still reads");
  for (const char* bytes : {"8176", "8208"})
    change("another number of bytes expected", "mbarrier.arrive.expect_tx",
           [bytes](const std::string& name, operands of) {
             of[2] = bytes;
             return joined(name, of);
           },
           "an mbarrier expects");
  change("no bytes expected", "mbarrier.arrive.expect_tx",
         [](const std::string&, const operands&) { return "// none"; }, "never come");
  change("a copy of 8200 bytes", "cp.async.bulk.shared::cluster",
         [](const std::string& name, operands of) {
           of[2] = "8200";
           return joined(name, of);
         },
         "multiples of 16 bytes");
  const auto shifted = [](const std::string& by, std::size_t which) {
    return [by, which](const std::string& name, const operands& of) {
      const std::size_t open = of[which].find('[');
      const std::string from = of[which].substr(open + 1, of[which].find(']') - open - 1);
      return "add.s64 " + from + ", " + from + ", " + by + "; " + joined(name, of);
    };
  };
  change("a copy from 8 bytes further on", "cp.async.bulk.shared::cluster", shifted("8", 1), "multiples of 16 bytes");
  change("a copy from outside of the tensor", "cp.async.bulk.shared::cluster", shifted("1048576", 1), "outside of");
  change("a store outside of the tensor", "cp.async.bulk.global", shifted("1048576", 0), "outside of");
  change("a copy with a hint for the cache", "cp.async.bulk.shared::cluster",
         [](const std::string& name, const operands& of) { return joined(name + ".L2::cache_hint", of) + ", 0"; },
         "does not know");
}

int run_faults(const std::string& text, const bounds& all) {
  std::vector<planted> faults;
  const auto add = [&](const char* kernel, const char* what, auto plant) { faults.push_back({kernel, what, plant}); };
  for (const char* kernel : {"tensor_cast_bf16", "compare_codes", "dequantize_mx_fp32"})
    faults.push_back({kernel, "lanes a row apart", transpose_threads, "of their sectors"});
  for (const char* kernel : {"block_bf16", "mx_bf16", "mx_column_bf16", "mx_both_bf16", "tensor_cast_bf16"}) {
    // Every barrier, one after the other: bar.sync goes, bar.red.or becomes a move that waits for nobody.
    const std::string entry = entry_of(text, kernel);
    for (int nth = 0, count = occurrences(entry, "bar.sync"); nth < count; ++nth)
      add(kernel, "a barrier lost", [nth](std::string& t) { return replace(t, "bar.sync", "// bar.sync", nth); });
    for (int nth = 0, count = occurrences(entry, "bar.red.or.pred"); nth < count; ++nth)
      add(kernel, "a barrier with an answer lost", [nth](std::string& t) { return forget_to_wait(t, nth); });
  }
  add_bulk_faults(faults, text);
  add("mx_bulk_bf16", "the sources of a conversion swapped", swap_conversion);
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
        found = fault_of(machine, all, name, body);
      } catch (const std::exception& refused) {
        found = refused.what();
      }
    });
    if (found.find(f.says) == std::string::npos) {
      std::printf("not by '%s': %s\n", f.says, found.c_str());
      found = "";
    }
    std::printf("%s %-20s %s: %s\n", found.empty() ? "MISSED   " : "found    ", f.kernel, f.what, found.c_str());
    missed += found.empty() ? 1 : 0;
  }
  return missed;
}

int run_all(const std::string& text, const bounds& all) {
  interpreter machine{ptx::reader::read(text), {}};
  int failed = 0;
  cases::for_each_kernel([&](const char* name, auto* body) {
    const std::string wrong = fault_of(machine, all, name, body);
    std::printf("%s %-24s %5.3f %5.3f %s\n", wrong.empty() ? "ok  " : "FAIL", name, machine.first[name].loads,
                machine.first[name].stores, wrong.c_str());
    failed += wrong.empty() ? 0 : 1;
  });
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", argv[1]);
    return 2;
  }
  try {
    const bounds all = read_bounds(argv[2]);
    const int wrong = argc > 3 ? run_faults(text.str(), all) : run_all(text.str(), all);
    std::printf("%s: %d wrong\n", argv[1], wrong);
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& refused) {
    std::printf("%s: %s\n", argv[1], refused.what());
    return 1;
  }
}
