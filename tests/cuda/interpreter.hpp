// SPDX-License-Identifier: Apache-2.0
// Runs compiled PTX on the CPU, one kernel, one block after another, thread by thread from barrier to barrier. Written
// from the PTX ISA's text; it knows the forms that our kernels compile to and refuses every other one, so that a
// modifier nobody thought about cannot pass. Conversions are searches in double precision, apart from the library's.
#ifndef FP8WIRE_TESTS_CUDA_INTERPRETER_HPP
#define FP8WIRE_TESTS_CUDA_INTERPRETER_HPP
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <unordered_map>

#include "bulk_copies.hpp"

namespace ptx {

using checks::fault;
using fp8wire::i64;
using fp8wire::u16;
using fp8wire::u32;
using fp8wire::u64;
using fp8wire::u8;

enum class op : u8 {
  move, add, subtract, multiply, multiply_wide, multiply_add, divide, remainder, smaller, larger, negate, absolute,
  invert, both, either, differ, left, right, field_insert, permute, funnel_left, count_ones, choose, compare, convert,
  larger_halves, product, product_pair, quotient, absolute_f32, larger_f32, compare_f32, e4m3_pair, e5m2_pair,
  ue8m0_pair, e4m3_values, e5m2_values, half_to_f32, load, store, atomic, branch, finish, barrier, barrier_or,
  warp_max, ballot, warp_any, warp_all, warp_barrier, shuffle_from, shuffle_up, shuffle_down, reverse_bits,
  leading_zeros, nothing, unpack, pack, barrier_init, barrier_arrive, barrier_try, proxy_fence, bulk_fetch, bulk_send,
  bulk_commit, bulk_read, bulk_written
};
enum class relation : u8 { eq, ne, lt, le, gt, ge, equ };
enum class space : u8 { generic, global, shared, param };
enum class reduction : u8 { max, min, add };

struct instruction {
  op code;
  u8 bits = 32, from_bits = 32, vector = 1;
  bool is_signed = false, from_signed = false, flush = false;
  relation how = relation::eq;
  space where = space::generic;
  reduction what = reduction::max;
  int guard = -1;
  bool guard_negated = false;
  int target = -1;             // of a branch
  int memory = -1;             // rank among global loads and stores
  i64 displacement = 0;        // of an address
  std::array<int, 10> at{};    // operands, as slots of a thread's values
  std::string text;
};

struct kernel {
  std::string name;
  std::vector<instruction> code;
  std::unordered_map<std::string, int> slots, labels;
  std::unordered_map<std::string, u64> symbols;  // parameters and shared arrays: their addresses
  std::vector<std::pair<int, u64>> constants;
  std::vector<std::pair<u64, u64>> params;  // where each begins, and its bytes
  u64 shared_bytes = 0, param_bytes = 0;
  int memories = 0;
  bool bulk = false;  // has bulk copies
};

[[noreturn]] inline void refuse(const std::string& what) { throw fault("the interpreter does not know: " + what); }

/// Reads the entries of a PTX text.
class reader {
 public:
  static std::map<std::string, kernel> read(const std::string& text) {
    const std::string plain = without_comments(text);
    std::map<std::string, kernel> found;
    for (std::size_t at = plain.find(".entry"); at != std::string::npos; at = plain.find(".entry", at + 1)) {
      kernel k;
      const std::size_t open = plain.find('(', at), close = plain.find(')', open);
      k.name = trimmed(plain.substr(at + 6, open - at - 6));
      parameters(k, plain.substr(open + 1, close - open - 1));
      const std::size_t body = plain.find('{', close);
      std::size_t end = body;
      for (int depth = 0; end < plain.size(); ++end) {
        if (plain[end] == '{') ++depth;
        if (plain[end] == '}' && --depth == 0) break;
      }
      reader one{k};
      one.body(plain.substr(body + 1, end - body - 1));
      for (instruction& i : k.code) {
        if (i.code != op::branch) continue;
        const auto label = k.labels.find(i.text.substr(i.text.find_last_of(" \t") + 1));
        if (label == k.labels.end()) refuse("a label of " + i.text);
        i.target = label->second;
      }
      found.emplace(k.name, std::move(k));
    }
    return found;
  }

 private:
  explicit reader(kernel& k) : k_(k) {}

  static std::string trimmed(const std::string& s) {
    const auto first = s.find_first_not_of(" \t\r\n");
    return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
  }
  static std::string without_comments(const std::string& text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 2, "//") == 0) i = text.find('\n', i);
      plain += text[i];
    }
    return plain;
  }
  static std::vector<std::string> split(const std::string& text, char by) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (const char c : text) {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c == by && depth == 0) {
        parts.push_back(trimmed(part));
        part.clear();
      } else {
        part += c;
      }
    }
    if (!trimmed(part).empty()) parts.push_back(trimmed(part));
    return parts;
  }
  /// "name[12]" and its alignment, laid out after `end`. Where it begins.
  static u64 array(const std::string& declaration, u64& end, std::unordered_map<std::string, u64>& symbols) {
    u64 alignment = 1, bytes = 0;
    std::string name;
    const auto words = split(declaration, ' ');
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == ".align") alignment = std::stoull(words[++i]);
      else if (words[i].front() != '.' && !words[i].empty()) name = words[i];
      else if (words[i] == ".u64" || words[i] == ".b64") bytes = alignment = 8;
      else if (words[i] == ".u32" || words[i] == ".b32" || words[i] == ".f32") bytes = alignment = 4;
      else if (words[i] == ".u8" || words[i] == ".b8") bytes = 1;
    }
    if (const auto bracket = name.find('['); bracket != std::string::npos) {
      bytes = std::stoull(name.substr(bracket + 1));
      name.resize(bracket);
    }
    end = (end + alignment - 1) / alignment * alignment;
    symbols[name] = end;
    end += bytes;
    return end - bytes;
  }
  static void parameters(kernel& k, const std::string& text) {
    for (std::string one : split(text, ',')) {
      std::replace(one.begin(), one.end(), '\t', ' ');
      std::replace(one.begin(), one.end(), '\n', ' ');
      const u64 at = array(one, k.param_bytes, k.symbols);
      k.params.emplace_back(at, k.param_bytes - at);
    }
  }

  void body(const std::string& text) {
    std::string statement;
    int operands = 0;  // depth of {} inside a statement
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool at_start = trimmed(statement).empty();
      if (c == '{' && at_start) {
        scopes_.emplace_back();
        continue;
      }
      if (c == '}' && operands == 0 && at_start) {
        if (!scopes_.empty()) scopes_.pop_back();
        continue;
      }
      if (c == '{') ++operands;
      if (c == '}') --operands;
      if (c == ':' && text[i + 1] != ':' && statement.find(':') == std::string::npos &&
          trimmed(statement).front() == '$') {
        k_.labels[trimmed(statement)] = static_cast<int>(k_.code.size());
        statement.clear();
      } else if (c == ';') {
        one(trimmed(statement));
        statement.clear();
      } else {
        statement += c == '\t' || c == '\n' || c == '\r' ? ' ' : c;
      }
    }
  }

  void one(std::string text) {
    if (text.empty()) return;
    if (text.front() == '.') {
      if (text.compare(0, 7, ".shared") == 0) array(text, k_.shared_bytes, k_.symbols);
      else if (text.compare(0, 4, ".reg") == 0) declare(text);
      else if (text.compare(0, 7, ".pragma") != 0 && text.compare(0, 4, ".loc") != 0) refuse(text);
      return;
    }
    instruction i{};
    i.text = text;
    if (text.front() == '@') {
      const auto space_at = text.find(' ');
      std::string guard = text.substr(1, space_at - 1);
      i.guard_negated = guard.front() == '!';
      if (i.guard_negated) guard.erase(0, 1);
      i.guard = slot(guard);
      text = trimmed(text.substr(space_at));
    }
    const auto space_at = text.find(' ');
    const std::string name = text.substr(0, space_at);
    const auto operands = space_at == std::string::npos ? std::vector<std::string>{}
                                                        : split(text.substr(space_at + 1), ',');
    decode(i, name, operands);
    k_.code.push_back(std::move(i));
  }

  /// Registers of an inner scope hide those of the same name outside.
  void declare(const std::string& text) {
    if (scopes_.empty() || text.find('<') != std::string::npos) return;
    const auto names = split(text.substr(text.find(' ', 5)), ',');
    for (const std::string& name : names)
      scopes_.back()[name] = name + "'" + std::to_string(++inner_);
  }
  int slot(const std::string& outer) {
    std::string name = outer;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(outer); found != scope->end()) {
        name = found->second;
        break;
      }
    }
    return k_.slots.try_emplace(name, static_cast<int>(k_.slots.size())).first->second;
  }
  int constant(u64 value) {
    const std::string name = "#" + std::to_string(value);
    const bool is_new = k_.slots.find(name) == k_.slots.end();
    const int at = slot(name);
    if (is_new) k_.constants.emplace_back(at, value);
    return at;
  }
  int operand(const std::string& text) {
    if (text.front() == '%' || std::isalpha(static_cast<unsigned char>(text.front())) || text.front() == '_') {
      if (const auto found = k_.symbols.find(text); found != k_.symbols.end()) return constant(found->second);
      return slot(text);
    }
    if (text.front() == '!') refuse(text);
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F'))
      return constant(std::stoull(text.substr(2), nullptr, 16));
    if (text.front() == '-') return constant(static_cast<u64>(std::stoll(text, nullptr, 0)));
    return constant(std::stoull(text, nullptr, 0));
  }
  /// "{a, b}" or "a".
  std::vector<int> several(const std::string& text) {
    std::vector<int> made;
    if (text.front() != '{') return {operand(text)};
    for (const std::string& part : split(text.substr(1, text.size() - 2), ',')) made.push_back(operand(part));
    return made;
  }
  void address(instruction& i, const std::string& text, int at) {
    if (text.front() != '[') refuse("the address in " + i.text);
    const std::string inside = trimmed(text.substr(1, text.size() - 2));
    const auto plus = inside.find('+');
    i.at[static_cast<std::size_t>(at)] = operand(trimmed(inside.substr(0, plus)));
    if (plus != std::string::npos) i.displacement = std::stoll(inside.substr(plus + 1));
  }
  static bool type(const std::string& text, u8& bits, bool& is_signed) {
    static const std::map<std::string, std::pair<int, bool>> types{
        {"b8", {8, false}},   {"u8", {8, false}},   {"s8", {8, true}},   {"b16", {16, false}}, {"u16", {16, false}},
        {"s16", {16, true}},  {"b32", {32, false}}, {"u32", {32, false}}, {"s32", {32, true}},  {"b64", {64, false}},
        {"u64", {64, false}}, {"s64", {64, true}},  {"f32", {32, false}}, {"pred", {1, false}}};
    const auto found = types.find(text);
    if (found == types.end()) return false;
    bits = static_cast<u8>(found->second.first);
    is_signed = found->second.second;
    return true;
  }

  void plain(instruction& i, op code, const std::vector<std::string>& operands, std::size_t count) {
    if (operands.size() != count) refuse(i.text);
    i.code = code;
    for (std::size_t n = 0; n < count; ++n) i.at[n] = operand(operands[n]);
  }
  void memory(instruction& i, std::vector<std::string> parts, const std::vector<std::string>& operands) {
    parts.erase(parts.begin());
    if (!type(parts.back(), i.bits, i.is_signed)) refuse(i.text);
    parts.pop_back();
    for (const std::string& part : parts) {
      if (part == "global") i.where = space::global;
      else if (part == "shared") i.where = space::shared;
      else if (part == "param") i.where = space::param;
      // One block runs after another, so that what it wrote is seen by those after it.
      else if (part == "relaxed" || part == "gpu" || part == "volatile") continue;
      else if (part == "v2" || part == "v4" || part == "v8") i.vector = static_cast<u8>(part[1] - '0');
      else refuse(i.text);
    }
    const bool load = i.code == op::load;
    const auto values = several(operands.at(load ? 0 : 1));
    if (values.size() != i.vector) refuse(i.text);
    address(i, operands.at(load ? 1 : 0), 8);
    std::copy(values.begin(), values.end(), i.at.begin());
    if (i.where == space::global || i.where == space::generic) i.memory = k_.memories++;
  }

  void decode(instruction& i, const std::string& name, const std::vector<std::string>& operands) {
    auto parts = split(name, '.');
    const std::string base = parts.front(), last = parts.back();
    type(last, i.bits, i.is_signed);
    const auto is = [&](const char* whole_name) { return name == whole_name; };
    const auto two = [&](const char* wanted) {  // base.type
      return base == wanted && parts.size() == 2 && type(last, i.bits, i.is_signed);
    };
    // Exact names first: these have modifiers that decide a byte.
    if (is("mul.rn.f32")) return plain(i, op::product, operands, 3);
    if (is("mul.rn.f32x2")) return plain(i, op::product_pair, operands, 3);
    if (is("div.rn.f32")) return plain(i, op::quotient, operands, 3);
    if (is("abs.f32") || is("abs.ftz.f32")) {
      i.flush = parts.size() == 3;
      return plain(i, op::absolute_f32, operands, 2);
    }
    if (is("max.f32")) return plain(i, op::larger_f32, operands, 3);
    if (is("max.u16x2")) return plain(i, op::larger_halves, operands, 3);
    if (is("cvt.rn.satfinite.e4m3x2.f32")) return plain(i, op::e4m3_pair, operands, 3);
    if (is("cvt.rn.satfinite.e5m2x2.f32")) return plain(i, op::e5m2_pair, operands, 3);
    if (is("cvt.rp.satfinite.ue8m0x2.f32")) return plain(i, op::ue8m0_pair, operands, 3);
    if (is("cvt.rn.f16x2.e4m3x2")) return plain(i, op::e4m3_values, operands, 2);
    if (is("cvt.rn.f16x2.e5m2x2")) return plain(i, op::e5m2_values, operands, 2);
    if (is("cvt.f32.f16")) return plain(i, op::half_to_f32, operands, 2);
    if (is("ret") || is("exit")) return plain(i, op::finish, operands, 0);
    if (is("bra") || is("bra.uni")) {
      i.code = op::branch;
      return;
    }
    if (is("bar.sync") || is("barrier.sync")) {
      if (operands.size() != 1 || operands[0] != "0") refuse(i.text);
      i.code = op::barrier;
      return;
    }
    if (is("bar.red.or.pred") || is("barrier.red.or.pred")) {
      if (operands.size() != 3 || operands[1] != "0") refuse(i.text);
      i.code = op::barrier_or;
      i.at[0] = operand(operands[0]);
      i.at[1] = operand(operands[2]);
      return;
    }
    if (is("redux.sync.max.u32")) return plain(i, op::warp_max, operands, 3);
    if (is("vote.sync.ballot.b32")) return plain(i, op::ballot, operands, 3);
    if (is("vote.sync.any.pred")) return plain(i, op::warp_any, operands, 3);
    if (is("vote.sync.all.pred")) return plain(i, op::warp_all, operands, 3);
    if (is("bar.warp.sync")) {
      if (operands.size() != 1) refuse(i.text);
      i.code = op::warp_barrier;
      i.at[2] = operand(operands[0]);
      return;
    }
    if (is("membar.cta") || is("nanosleep.u32")) {
      i.code = op::nothing;
      return;
    }
    if (base == "mbarrier" || base == "cp" || is("fence.proxy.async.shared::cta")) return bulk(i, name, operands);
    if (is("brev.b32")) return plain(i, op::reverse_bits, operands, 2);
    if (is("clz.b32")) return plain(i, op::leading_zeros, operands, 2);
    if (is("shfl.sync.idx.b32") || is("shfl.sync.up.b32") || is("shfl.sync.down.b32")) {
      if (operands.size() != 5) refuse(i.text);
      i.code = parts[2] == "up" ? op::shuffle_up : parts[2] == "down" ? op::shuffle_down : op::shuffle_from;
      i.at[5] = slot("%unused");
      if (const auto bar = operands[0].find('|'); bar != std::string::npos)
        i.at[5] = operand(operands[0].substr(bar + 1));
      i.at[0] = operand(operands[0].substr(0, operands[0].find('|')));
      i.at[1] = operand(operands[1]);
      i.at[2] = operand(operands[2]);
      i.at[3] = operand(operands[4]);
      i.at[4] = operand(operands[3]);
      return;
    }
    if (base == "atom" || base == "red") {
      i.code = op::atomic;
      const std::size_t first = base == "atom" ? 1 : 0;
      if (operands.size() != 2 + first) refuse(i.text);
      for (std::size_t n = 1; n + 1 < parts.size(); ++n) {
        if (parts[n] == "global") i.where = space::global;
        else if (parts[n] == "shared") i.where = space::shared;
        else if (parts[n] == "max") i.what = reduction::max;
        else if (parts[n] == "min") i.what = reduction::min;
        else if (parts[n] == "add") i.what = reduction::add;
        else refuse(i.text);
      }
      i.at[0] = first == 1 ? operand(operands[0]) : slot("%unused");
      address(i, operands[first], 8);
      i.at[1] = operand(operands[first + 1]);
      return;
    }
    if (base == "ld" || base == "st") {
      i.code = base == "ld" ? op::load : op::store;
      return memory(i, parts, operands);
    }
    if (base == "cvta") return plain(i, op::move, operands, 2);  // global addresses are the host's own
    if (is("mul.wide.u32") || is("mul.wide.s32") || is("mul.wide.u16")) return plain(i, op::multiply_wide, operands, 3);
    if (base == "mul" && parts.size() == 3 && parts[1] == "lo") return plain(i, op::multiply, operands, 3);
    if (base == "mad" && parts.size() == 3 && parts[1] == "lo") return plain(i, op::multiply_add, operands, 4);
    if (is("shf.l.wrap.b32")) return plain(i, op::funnel_left, operands, 4);
    if (is("prmt.b32")) return plain(i, op::permute, operands, 4);
    if (is("popc.b32")) return plain(i, op::count_ones, operands, 2);
    if (base == "setp") return comparison(i, parts, operands);
    if (base == "cvt" && parts.size() == 3 && type(parts[1], i.bits, i.is_signed) &&
        type(parts[2], i.from_bits, i.from_signed) && parts[1][0] != 'f' && parts[2][0] != 'f')
      return plain(i, op::convert, operands, 2);
    if (two("mov")) {
      if (operands[0].front() == '{') return parted(i, op::unpack, operands[0], operands[1]);
      if (operands[1].front() == '{') return parted(i, op::pack, operands[1], operands[0]);
      return plain(i, op::move, operands, 2);
    }
    if (last == "f32" && base != "selp") refuse(i.text);
    if (two("add")) return plain(i, op::add, operands, 3);
    if (two("sub")) return plain(i, op::subtract, operands, 3);
    if (two("div")) return plain(i, op::divide, operands, 3);
    if (two("rem")) return plain(i, op::remainder, operands, 3);
    if (two("min")) return plain(i, op::smaller, operands, 3);
    if (two("max")) return plain(i, op::larger, operands, 3);
    if (two("neg")) return plain(i, op::negate, operands, 2);
    if (two("abs")) return plain(i, op::absolute, operands, 2);
    if (two("not")) return plain(i, op::invert, operands, 2);
    if (two("and")) return plain(i, op::both, operands, 3);
    if (two("or")) return plain(i, op::either, operands, 3);
    if (two("xor")) return plain(i, op::differ, operands, 3);
    if (two("shl")) return plain(i, op::left, operands, 3);
    if (two("shr")) return plain(i, op::right, operands, 3);
    if (two("selp")) return plain(i, op::choose, operands, 4);
    if (two("bfi")) return plain(i, op::field_insert, operands, 5);
    refuse(i.text);
  }
  /// Bulk copies and what belongs to them: nine forms, each whole. Addresses have no displacement.
  void bulk(instruction& i, const std::string& name, const std::vector<std::string>& operands) {
    struct form {
      op code;
      const char* shape;  // of each operand: a(ddress), v(alue), r(esult), _
    };
    static const std::map<std::string, form> forms{
        {"mbarrier.init.shared::cta.b64", {op::barrier_init, "av"}},
        {"mbarrier.arrive.expect_tx.shared::cta.b64", {op::barrier_arrive, "_av"}},
        {"mbarrier.try_wait.parity.shared::cta.b64", {op::barrier_try, "rav"}},
        {"fence.proxy.async.shared::cta", {op::proxy_fence, ""}},
        {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", {op::bulk_fetch, "aava"}},
        {"cp.async.bulk.global.shared::cta.bulk_group", {op::bulk_send, "aav"}},
        {"cp.async.bulk.commit_group", {op::bulk_commit, ""}},
        {"cp.async.bulk.wait_group.read", {op::bulk_read, "v"}},
        {"cp.async.bulk.wait_group", {op::bulk_written, "v"}}};
    const auto found = forms.find(name);
    if (found == forms.end() || operands.size() != std::strlen(found->second.shape)) refuse(i.text);
    i.code = found->second.code;
    for (std::size_t n = 0; n < operands.size(); ++n) {
      const char shape = found->second.shape[n];
      if (shape == '_') {
        if (operands[n] != "_") refuse(i.text);
      } else if (shape == 'a') {
        address(i, operands[n], static_cast<int>(n));
        if (i.displacement != 0) refuse(i.text);
      } else {
        i.at[n] = operand(operands[n]);
      }
    }
    k_.bulk = true;
  }
  void parted(instruction& i, op code, const std::string& parts, const std::string& whole) {
    const auto slots = several(parts);
    i.code = code;
    i.vector = static_cast<u8>(slots.size());
    std::copy(slots.begin(), slots.end(), i.at.begin());
    i.at[8] = operand(whole);
  }
  void comparison(instruction& i, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
    static const std::map<std::string, relation> names{
        {"eq", relation::eq}, {"ne", relation::ne}, {"lt", relation::lt}, {"le", relation::le},
        {"gt", relation::gt}, {"ge", relation::ge}, {"equ", relation::equ}};
    const auto found = names.find(parts[1]);
    const bool flush = parts.size() == 4 && parts[2] == "ftz";
    if (found == names.end() || (parts.size() != 3 && !flush)) refuse(i.text);
    if (!type(parts.back(), i.bits, i.is_signed)) refuse(i.text);
    i.how = found->second;
    i.flush = flush;
    plain(i, parts.back() == "f32" ? op::compare_f32 : op::compare, operands, 3);
  }

  kernel& k_;
  std::vector<std::map<std::string, std::string>> scopes_;
  int inner_ = 0;
};

/// The code of a non-negative finite or infinite value: the nearest of the format's values, ties to the even code.
template <int MantissaBits, int Bias, int Largest> int nearest_code(float value) {
  static const auto values = [] {
    std::array<double, static_cast<std::size_t>(Largest + 1)> made{};
    for (int code = 0; code <= Largest; ++code) {
      const int exponent = code >> MantissaBits, mantissa = code & ((1 << MantissaBits) - 1);
      made[static_cast<std::size_t>(code)] =
          exponent == 0 ? std::ldexp(mantissa, 1 - Bias - MantissaBits)
                        : std::ldexp((1 << MantissaBits) + mantissa, exponent - Bias - MantissaBits);
    }
    return made;
  }();
  const double x = value;
  const auto above = std::lower_bound(values.begin(), values.end(), x);
  if (above == values.end()) return Largest;
  const int high = static_cast<int>(above - values.begin());
  if (high == 0) return 0;
  const double up = *above - x, down = x - values[static_cast<std::size_t>(high - 1)];
  return up < down || (up == down && high % 2 == 0) ? high : high - 1;
}
inline float as_float(u64 bits) {
  float value;
  const u32 low = static_cast<u32>(bits);
  std::memcpy(&value, &low, 4);
  return value;
}
inline u64 as_bits(float value) {
  u32 bits;
  std::memcpy(&bits, &value, 4);
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFFFFFF : bits;  // the hardware's only NaN
}
inline u64 e4m3_code(float value) {
  const u64 sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7F;
  return sign | static_cast<u64>(nearest_code<3, 7, 126>(std::fabs(value)));
}
inline u64 e5m2_code(float value) {
  const u64 sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7F;
  return sign | static_cast<u64>(nearest_code<2, 15, 123>(std::fabs(value)));
}
inline u64 ue8m0_code(float value) {
  if (std::isnan(value)) return 0xFF;
  int byte = 0;
  while (byte < 254 && std::ldexp(1.0, byte - 127) < static_cast<double>(std::fabs(value))) ++byte;
  return static_cast<u64>(byte);
}
inline u64 half_of_e4m3(u64 code) {
  const u64 sign = (code & 0x80) << 8, exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return 0x7FFF;
  if (exponent != 0) return sign | (exponent + 8) << 10 | mantissa << 7;
  u64 shifted = mantissa, power = 9;
  if (mantissa == 0) return sign;
  while ((shifted & 8) == 0) shifted <<= 1, --power;
  return sign | power << 10 | (shifted & 7) << 7;
}
inline u64 half_of_e5m2(u64 code) { return (code & 0x7F) > 0x7C ? 0x7FFF : code << 8; }
inline float float_of_half(u64 half) {
  const int exponent = static_cast<int>(half >> 10 & 31), mantissa = static_cast<int>(half & 1023);
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * INFINITY;
  const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  return sign * static_cast<float>(value);
}

/// What a launch cost.
struct counters {
  u64 instructions = 0;
  // Of the warps' accesses to global memory: bytes asked for, and sectors of 32 bytes touched by an access.
  u64 load_bytes = 0, load_sectors = 0, store_bytes = 0, store_sectors = 0;
};

/// One launch of a kernel. Pointers in its parameters are host pointers into `memory`.
class machine {
 public:
  machine(const kernel& k, int threads, checks::device_memory& memory)
      : k_(k), memory_(memory), copies_(memory, shadow_) {
    threads_.resize(static_cast<std::size_t>(threads));
    width_ = k.slots.size();
    values_.resize(width_ * threads_.size());
    pending_.resize(static_cast<std::size_t>(k.memories) * (threads_.size() / 32 + 1));
    special("%tid.x", tid_);
    special("%ctaid.x", ctaid_);
    special("%laneid", lane_);
    special("%lanemask_ge", lanes_from_);
    special("%ntid.x", ntid_);
    special("%nctaid.x", nctaid_);
    special("%nctaid.y", nctaid_y_);
    // %ctaid.y is 0, as all that nobody wrote.
    for (const char* name : {"%tid.y", "%tid.z", "%ctaid.z", "%lanemask_lt", "%lanemask_le", "%lanemask_gt",
                             "%warpid", "%nctaid.z", "%clock64"})
      if (k.slots.find(name) != k.slots.end()) refuse(name);
  }
  counters run(i64 blocks, const void* params, std::size_t bytes) {
    if (bytes < k_.param_bytes) throw fault("the kernel wants more bytes of parameters");
    params_.assign(static_cast<const u8*>(params), static_cast<const u8*>(params) + bytes);
    blocks_ = static_cast<u64>(blocks);
    for (i64 block = 0; block < blocks; ++block) one_block(block);
    return count_;
  }

 private:
  struct thread {
    int at = 0;
    bool done = false, waiting = false;
    bool asked = false;  // for an mbarrier's phase that is not over
  };
  struct request {
    u32 lanes = 0;
    u64 first[32], bytes = 0;
  };

  void special(const char* name, int& slot) {
    const auto found = k_.slots.find(name);
    slot = found == k_.slots.end() ? -1 : found->second;
  }
  static u64 cut(u64 value, int bits) { return bits == 64 ? value : value & ((u64{1} << bits) - 1); }
  static i64 widen(u64 value, int bits) {
    return static_cast<i64>(value << (64 - bits)) >> (64 - bits);
  }

  void one_block(i64 block) {
    shared_.assign(k_.shared_bytes, 0xCD);
    shadow_.reset(k_.shared_bytes);
    copies_.reset(shared_.data(), threads_.size(), k_.bulk);
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      threads_[t] = {};
      u64* values = &values_[t * width_];
      for (const auto& [slot, value] : k_.constants) values[slot] = value;
      if (tid_ >= 0) values[tid_] = t;
      if (ctaid_ >= 0) values[ctaid_] = static_cast<u64>(block);
      if (lane_ >= 0) values[lane_] = t % 32;
      if (lanes_from_ >= 0) values[lanes_from_] = cut(~u64{0} << t % 32, 32);
      if (ntid_ >= 0) values[ntid_] = threads_.size();
      if (nctaid_ >= 0) values[nctaid_] = blocks_;
      if (nctaid_y_ >= 0) values[nctaid_y_] = 1;
    }
    for (;;) {
      bool moved = false, all_done = true;
      for (std::size_t t = 0; t < threads_.size(); ++t) {
        if (!threads_[t].done && !threads_[t].waiting) {
          advance(t);
          moved = moved || !threads_[t].asked;
        }
        all_done = all_done && threads_[t].done;
      }
      for (std::size_t warp = 0; warp * 32 < threads_.size(); ++warp) moved = meet_warp(warp) || moved;
      moved = meet_block() || moved;
      if (all_done) break;
      if (!moved && !copies_.land()) throw fault("threads wait for others that never come");
    }
    copies_.finish();
    for (std::size_t i = 0; i < pending_.size(); ++i) settle(pending_[i], static_cast<int>(i % stride()));
  }
  std::size_t stride() const { return static_cast<std::size_t>(std::max(k_.memories, 1)); }

  static bool is_shuffle(op code) {
    return code == op::shuffle_from || code == op::shuffle_up || code == op::shuffle_down;
  }
  static bool is_warp(op code) {
    return code == op::warp_max || code == op::ballot || code == op::warp_any || code == op::warp_all ||
           code == op::warp_barrier || is_shuffle(code);
  }
  static bool is_barrier(op code) { return code == op::barrier || code == op::barrier_or; }

  /// All 32 threads wait at one instruction of a warp: it happens.
  bool meet_warp(std::size_t warp) {
    const std::size_t first = warp * 32, end = std::min(first + 32, threads_.size());
    const thread& leader = threads_[first];
    if (!leader.waiting) return false;
    const instruction& i = k_.code[static_cast<std::size_t>(leader.at)];
    if (!is_warp(i.code)) return false;
    for (std::size_t t = first; t < end; ++t)
      if (!threads_[t].waiting || threads_[t].at != leader.at) return false;
    u64 folded = 0;
    std::array<u64, 32> given{};
    for (std::size_t t = first; t < end; ++t) {
      const u64* v = &values_[t * width_];
      const std::size_t mask = is_shuffle(i.code) ? 3 : 2;
      if (cut(v[i.at[mask]], 32) != 0xFFFFFFFF) throw fault("a warp meets with less than all lanes: " + i.text);
      if (i.code == op::shuffle_from && cut(v[i.at[4]], 32) != 31)
        refuse("a shuffle within parts of a warp: " + i.text);
      given[t - first] = cut(v[i.at[1]], 32);
      if (i.code == op::warp_max) folded = std::max(folded, given[t - first]);
      else folded |= cut(v[i.at[1]], 1) << (t - first);
    }
    if (i.code == op::warp_any) folded = folded != 0 ? 1 : 0;
    if (i.code == op::warp_all) folded = folded == 0xFFFFFFFF ? 1 : 0;
    if (i.code == op::warp_barrier) shadow_.warp_barrier(warp);
    for (std::size_t t = first; t < end; ++t) {
      u64* v = &values_[t * width_];
      threads_[t].waiting = false;
      ++threads_[t].at;
      if (i.code == op::warp_barrier) continue;
      v[i.at[0]] = folded;
      if (!is_shuffle(i.code)) continue;
      // A lane that asks beyond the end of its part of the warp gets its own value, and "no".
      const int lane = static_cast<int>(t - first), by = static_cast<int>(cut(v[i.at[2]], 5));
      const int clamp = static_cast<int>(v[i.at[4]] & 31), parts = static_cast<int>(v[i.at[4]] >> 8 & 31);
      const int last = (lane & parts) | (clamp & ~parts);
      const int from = i.code == op::shuffle_up ? lane - by : i.code == op::shuffle_down ? lane + by : by;
      const bool inside = i.code == op::shuffle_up ? from >= last : from <= last;
      v[i.at[0]] = given[static_cast<std::size_t>(inside ? from : lane)];
      v[i.at[5]] = inside ? 1 : 0;
    }
    return true;
  }
  bool meet_block() {
    int at = -1;
    bool any = false;
    for (const thread& t : threads_) {
      if (t.done) continue;
      if (!t.waiting || !is_barrier(k_.code[static_cast<std::size_t>(t.at)].code)) return false;
      if (at >= 0 && at != t.at) throw fault("threads meet at different barriers");
      at = t.at;
    }
    if (at < 0) return false;
    const instruction& i = k_.code[static_cast<std::size_t>(at)];
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      if (threads_[t].done) throw fault("a thread has left before a barrier of the others");
      if (i.code == op::barrier_or) any = any || cut(values_[t * width_ + static_cast<std::size_t>(i.at[1])], 1) != 0;
    }
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      if (i.code == op::barrier_or) values_[t * width_ + static_cast<std::size_t>(i.at[0])] = any ? 1 : 0;
      threads_[t].waiting = false;
      ++threads_[t].at;
    }
    shadow_.barrier();
    copies_.met();
    return true;
  }

  void settle(request& r, int memory) {
    if (r.lanes != 0) {
      std::array<u64, 64> sectors{};  // two a lane: no access is wider than a sector
      std::size_t touched = 0;
      const u64 each = r.bytes;
      u64 total = 0;
      for (int lane = 0; lane < 32; ++lane) {
        if ((r.lanes >> lane & 1) == 0) continue;
        total += each;
        for (u64 at = r.first[lane] / 32; at <= (r.first[lane] + each - 1) / 32; ++at) sectors[touched++] = at;
      }
      const auto end = sectors.begin() + static_cast<std::ptrdiff_t>(touched);
      std::sort(sectors.begin(), end);
      const auto different = static_cast<u64>(std::unique(sectors.begin(), end) - sectors.begin());
      const bool load = loads_[static_cast<std::size_t>(memory)];
      (load ? count_.load_bytes : count_.store_bytes) += total;
      (load ? count_.load_sectors : count_.store_sectors) += different;
    }
    r.lanes = 0;
  }
  void global(const instruction& i, std::size_t t, u64 at, u64 bytes, bool write) {
    try {
      memory_.access(reinterpret_cast<const void*>(at), bytes, write);
    } catch (const fault& wrong) {
      throw fault(std::string(wrong.what()) + ", thread " + std::to_string(t) + ": " + i.text);
    }
    if (i.memory < 0) return;
    if (loads_.empty()) loads_.resize(stride());
    loads_[static_cast<std::size_t>(i.memory)] = !write;
    request& r = pending_[t / 32 * stride() + static_cast<std::size_t>(i.memory)];
    if ((r.lanes >> (t % 32) & 1) != 0) settle(r, i.memory);
    r.lanes |= u32{1} << (t % 32);
    r.first[t % 32] = at;
    r.bytes = bytes;
  }
  u8* reach(const instruction& i, std::size_t t, u64 at, u64 bytes, bool write, bool atomic) {
    if (i.where == space::param) {
      if (at + bytes > params_.size()) throw fault("access outside of the parameters: " + i.text);
      return params_.data() + at;
    }
    if (i.where == space::shared) {
      try {
        copies_.touch(at, bytes, static_cast<int>(t), write);
        shadow_.touch(at, bytes, static_cast<int>(t), write, atomic);
      } catch (const fault& wrong) {
        throw fault(std::string(wrong.what()) + ", thread " + std::to_string(t) + ": " + i.text);
      }
      return shared_.data() + at;
    }
    global(i, t, at, bytes, write);
    return reinterpret_cast<u8*>(at);
  }

  /// False where the thread has to ask again.
  bool copy(const instruction& i, std::size_t t, u64* v) {
    const auto a = [&](int n) { return v[i.at[static_cast<std::size_t>(n)]]; };
    const auto self = static_cast<int>(t);
    try {
      switch (i.code) {
        case op::barrier_init: copies_.init(a(0), a(1), self); return true;
        case op::barrier_arrive: copies_.arrive(a(1), a(2), self); return true;
        case op::barrier_try: return (v[i.at[0]] = copies_.over(a(1), a(2), self) ? 1 : 0) != 0;
        case op::proxy_fence: copies_.fence(self); return true;
        case op::bulk_fetch:
          copies_.fetch(a(0), reinterpret_cast<const void*>(a(1)), a(2), a(3), self);
          count_.load_bytes += a(2);
          count_.load_sectors += (a(1) + a(2) + 31) / 32 - a(1) / 32;
          return true;
        case op::bulk_send:
          copies_.send(reinterpret_cast<void*>(a(0)), a(1), a(2), self);
          count_.store_bytes += a(2);
          count_.store_sectors += (a(0) + a(2) + 31) / 32 - a(0) / 32;
          return true;
        case op::bulk_commit: copies_.commit(self); return true;
        default: copies_.wait(a(0), i.code == op::bulk_read, self); return true;
      }
    } catch (const fault& wrong) {
      throw fault(std::string(wrong.what()) + ", thread " + std::to_string(t) + ": " + i.text);
    }
  }
  static bool is_copy(op code) { return code >= op::barrier_init && code <= op::bulk_written; }

  void advance(std::size_t t) {
    thread& self = threads_[t];
    self.asked = false;
    u64* const v = &values_[t * width_];
    for (;;) {
      if (static_cast<std::size_t>(self.at) >= k_.code.size()) throw fault("a thread runs past the end of its kernel");
      const instruction& i = k_.code[static_cast<std::size_t>(self.at)];
      ++count_.instructions;
      if (i.guard >= 0 && (v[i.guard] & 1) == (i.guard_negated ? 1u : 0u)) {
        ++self.at;
        continue;
      }
      if (is_warp(i.code) || is_barrier(i.code)) {
        self.waiting = true;
        return;
      }
      if (i.code == op::finish) {
        self.done = true;
        return;
      }
      if (i.code == op::branch) {
        self.at = i.target;
        continue;
      }
      if (is_copy(i.code)) {
        ++self.at;
        self.asked = !copy(i, t, v);
        if (self.asked) return;
        continue;
      }
      execute(i, t, v);
      ++self.at;
    }
  }

  void execute(const instruction& i, std::size_t t, u64* v) {
    const int bits = i.bits;
    const auto a = [&](int n) { return v[i.at[static_cast<std::size_t>(n)]]; };
    const auto set = [&](u64 value) { v[i.at[0]] = cut(value, bits); };
    const auto set_f32 = [&](float value) { v[i.at[0]] = as_bits(value); };
    const u64 x = a(1), y = a(2);
    switch (i.code) {
      case op::move: return set(x);
      case op::add: return set(x + y);
      case op::subtract: return set(x - y);
      case op::multiply: return set(x * y);
      case op::multiply_wide:
        v[i.at[0]] = cut(i.is_signed ? static_cast<u64>(widen(x, bits) * widen(y, bits)) : cut(x, bits) * cut(y, bits),
                         2 * bits);
        return;
      case op::multiply_add: return set(x * y + a(3));
      case op::divide:
      case op::remainder: {
        if (cut(y, bits) == 0) throw fault("division by zero: " + i.text);
        const bool quotient = i.code == op::divide;
        if (i.is_signed) {
          const i64 p = widen(x, bits), q = widen(y, bits);
          return set(static_cast<u64>(quotient ? p / q : p % q));
        }
        const u64 p = cut(x, bits), q = cut(y, bits);
        return set(quotient ? p / q : p % q);
      }
      case op::smaller:
      case op::larger: {
        const bool less = i.is_signed ? widen(x, bits) < widen(y, bits) : cut(x, bits) < cut(y, bits);
        return set(less == (i.code == op::smaller) ? x : y);
      }
      case op::negate: return set(u64{0} - x);
      case op::absolute: return set(widen(x, bits) < 0 ? u64{0} - x : x);
      case op::invert: return set(~x);
      case op::both: return set(x & y);
      case op::either: return set(x | y);
      case op::differ: return set(x ^ y);
      case op::left: return set(cut(y, 32) >= static_cast<u64>(bits) ? 0 : x << cut(y, 32));
      case op::right: {
        const u64 by = cut(y, 32);
        if (i.is_signed) return set(static_cast<u64>(widen(x, bits) >> std::min<u64>(by, static_cast<u64>(bits) - 1)));
        return set(by >= static_cast<u64>(bits) ? 0 : cut(x, bits) >> by);
      }
      case op::field_insert: {
        const u64 from = cut(a(3), 8), length = cut(a(4), 8);
        const bool empty = length == 0 || from >= static_cast<u64>(bits);
        const u64 mask = empty ? 0 : cut(~u64{0}, static_cast<int>(length)) << from;
        return set((y & ~mask) | ((from >= 64 ? 0 : x << from) & mask));
      }
      case op::permute: {
        const u64 bytes = cut(x, 32) | y << 32, select = a(3);
        u64 made = 0;
        for (int n = 0; n < 4; ++n) {
          const u64 from = select >> (4 * n) & 15;
          u64 byte = bytes >> (8 * (from & 7)) & 0xFF;
          if ((from & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
          made |= byte << (8 * n);
        }
        return set(made);
      }
      case op::funnel_left: {
        const u64 both = cut(x, 32) | y << 32, by = a(3) & 31;
        return set(both << by >> 32);
      }
      case op::count_ones: return set(static_cast<u64>(__builtin_popcountll(cut(x, 32))));
      case op::reverse_bits: {
        u64 made = 0;
        for (int n = 0; n < 32; ++n) made |= (x >> n & 1) << (31 - n);
        return set(made);
      }
      case op::leading_zeros: return set(cut(x, 32) == 0 ? 32 : static_cast<u64>(__builtin_clz(static_cast<u32>(x))));
      case op::nothing: return;
      case op::choose: return set((a(3) & 1) != 0 ? x : y);
      case op::compare: {
        const i64 p = widen(x, bits), q = widen(y, bits);
        const u64 m = cut(x, bits), n = cut(y, bits);
        bool yes = false;
        switch (i.how) {
          case relation::eq: yes = m == n; break;
          case relation::ne: yes = m != n; break;
          case relation::lt: yes = i.is_signed ? p < q : m < n; break;
          case relation::le: yes = i.is_signed ? p <= q : m <= n; break;
          case relation::gt: yes = i.is_signed ? p > q : m > n; break;
          case relation::ge: yes = i.is_signed ? p >= q : m >= n; break;
          default: refuse(i.text);
        }
        v[i.at[0]] = yes ? 1 : 0;
        return;
      }
      case op::convert: return set(i.from_signed ? static_cast<u64>(widen(x, i.from_bits)) : cut(x, i.from_bits));
      case op::larger_halves:
        v[i.at[0]] = std::max(x & 0xFFFF, y & 0xFFFF) | std::max(x & 0xFFFF0000, y & 0xFFFF0000);
        return;
      case op::product: return set_f32(as_float(x) * as_float(y));
      case op::product_pair:
        v[i.at[0]] = as_bits(as_float(x) * as_float(y)) | as_bits(as_float(x >> 32) * as_float(y >> 32)) << 32;
        return;
      case op::quotient: return set_f32(as_float(x) / as_float(y));
      case op::absolute_f32: v[i.at[0]] = flushed(x & 0x7FFFFFFF, i.flush); return;
      case op::larger_f32: {
        const float p = as_float(x), q = as_float(y);
        return set_f32(std::isnan(p) ? q : std::isnan(q) ? p : std::max(p, q));
      }
      case op::compare_f32: {
        const float p = as_float(flushed(x, i.flush)), q = as_float(flushed(y, i.flush));
        bool yes = false;
        switch (i.how) {
          case relation::eq: yes = p == q; break;
          case relation::ne: yes = p < q || p > q; break;  // ordered
          case relation::lt: yes = p < q; break;
          case relation::le: yes = p <= q; break;
          case relation::gt: yes = p > q; break;
          case relation::ge: yes = p >= q; break;
          case relation::equ: yes = !(p < q || p > q); break;
        }
        v[i.at[0]] = yes ? 1 : 0;
        return;
      }
      case op::e4m3_pair: v[i.at[0]] = e4m3_code(as_float(x)) << 8 | e4m3_code(as_float(y)); return;
      case op::e5m2_pair: v[i.at[0]] = e5m2_code(as_float(x)) << 8 | e5m2_code(as_float(y)); return;
      case op::ue8m0_pair: v[i.at[0]] = ue8m0_code(as_float(x)) << 8 | ue8m0_code(as_float(y)); return;
      case op::e4m3_values: v[i.at[0]] = half_of_e4m3(x >> 8 & 0xFF) << 16 | half_of_e4m3(x & 0xFF); return;
      case op::e5m2_values: v[i.at[0]] = half_of_e5m2(x >> 8 & 0xFF) << 16 | half_of_e5m2(x & 0xFF); return;
      case op::half_to_f32: return set_f32(float_of_half(x));
      case op::unpack:
        for (int n = 0; n < i.vector; ++n)
          v[i.at[static_cast<std::size_t>(n)]] = cut(a(8) >> (n * bits / i.vector), bits / i.vector);
        return;
      case op::pack: {
        u64 made = 0;
        for (int n = 0; n < i.vector; ++n) made |= cut(a(n), bits / i.vector) << (n * bits / i.vector);
        v[i.at[8]] = made;
        return;
      }
      case op::load:
      case op::store: {
        const u64 element = static_cast<u64>(bits) / 8, bytes = element * i.vector;
        const bool write = i.code == op::store;
        u8* memory = reach(i, t, a(8) + static_cast<u64>(i.displacement), bytes, write, false);
        for (u64 n = 0; n < i.vector; ++n, memory += element) {
          u64& value = v[i.at[n]];
          if (write) {
            std::memcpy(memory, &value, element);
          } else {
            u64 read = 0;
            std::memcpy(&read, memory, element);
            value = i.is_signed ? cut(static_cast<u64>(widen(read, bits)), bits < 32 ? 32 : bits) : read;
          }
        }
        return;
      }
      case op::atomic: {
        const u64 bytes = static_cast<u64>(bits) / 8;
        u8* memory = reach(i, t, a(8) + static_cast<u64>(i.displacement), bytes, true, true);
        u64 old = 0;
        std::memcpy(&old, memory, bytes);
        const u64 made = i.what == reduction::add   ? old + x
                         : i.what == reduction::max ? std::max(old, cut(x, bits))
                                                    : std::min(old, cut(x, bits));
        std::memcpy(memory, &made, bytes);
        v[i.at[0]] = old;
        return;
      }
      default: refuse(i.text);
    }
  }
  static u64 flushed(u64 bits, bool flush) { return flush && (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits; }

  const kernel& k_;
  checks::device_memory& memory_;
  std::vector<thread> threads_;
  std::vector<u64> values_;
  std::size_t width_ = 0;
  std::vector<u8> params_, shared_;
  checks::shared_shadow shadow_;
  checks::bulk_copies copies_;
  std::vector<request> pending_;
  std::vector<bool> loads_;
  counters count_;
  u64 blocks_ = 0;
  int tid_ = -1, ctaid_ = -1, lane_ = -1, lanes_from_ = -1, ntid_ = -1, nctaid_ = -1, nctaid_y_ = -1;
};

}  // namespace ptx
#endif
