// SPDX-License-Identifier: Apache-2.0
/// The exact start of a learner with FP8 parameters: FP32 masters from the unquantized checkpoint, before any step.
///
/// Masters taken from dequantized FP8 begin up to half a code away from the checkpoint, which is thousands of steps at
/// the learning rates of RL. So the unquantized bytes go by once, shard by shard, and are not kept.
#ifndef FP8WIRE_MODEL_MASTERS_HPP
#define FP8WIRE_MODEL_MASTERS_HPP
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/flat_range.hpp>
#include <fp8wire/format/fp32.hpp>

FP8WIRE_ABI_BEGIN

/// One parameter's optimizer state on this rank, in memory of the caller's.
struct master_shard {
  std::string name;
  i64 elements = 0;          // of the whole parameter
  flat_range range;          // what this rank's optimizer owns of it; may be empty
  std::span<float> masters;  // range.length
  std::vector<std::span<float>> copies;  // of the same masters: the host's, where an optimizer is offloaded in part
  i64 fp8_bytes = 0;         // codes and scales that this rank keeps instead of the unquantized parameter
};

/// What the start cost, in bytes of this rank.
struct start_report {
  i64 parameters = 0, masters = 0, copies = 0;  // done: parameters, master elements, refreshed host copies
  i64 unquantized_bytes = 0;                    // what the parameters would take in the checkpoint's dtypes
  i64 fp8_bytes = 0;                            // what they take
  i64 master_bytes = 0;                         // masters and their copies
  i64 peak_bytes =
      0;  // all that was kept, and the one unquantized tensor that was alive beside it, at the worst moment
  i64 saved_bytes() const noexcept { return unquantized_bytes - fp8_bytes; }
  bool operator==(const start_report&) const = default;
};

/// Starts the masters of one rank. Tensors come in any order, each once; finish() ends it, and the optimizer may step.
/// Threads: one at a time.
class exact_start {
 public:
  /// Expects: the memory of the shards outlives this object.
  explicit exact_start(std::vector<master_shard> shards) : shards_(std::move(shards)), done_(shards_.size(), false) {}

  /// Masters and copies of one parameter from its unquantized bytes, dense and in row-major order, little-endian, at
  /// any address; they are not needed afterwards.
  /// Errors: unexpected, duplicate; wrong_dtype unless BF16, FP16 or FP32: codes have lost what masters need;
  /// wrong_size with both numbers: the tensor's bytes, the masters', a copy's; wrong_offset: the range leaves the
  /// tensor; out_of_order after finish. Nothing is written then. Exact: a master is the weight's value.
  error copy(std::string_view name, dtype type, std::span<const std::byte> unquantized) {
    const std::string tensor(name);
    if (finished_)
      return make_error(errc::out_of_order, tensor, "comes after the start: the optimizer may have stepped");
    std::size_t at = 0;
    while (at < shards_.size() && shards_[at].name != name) ++at;
    if (at == shards_.size()) return make_error(errc::unexpected, tensor, "has no masters on this rank");
    if (done_[at]) return make_error(errc::duplicate, tensor, "its masters were started already");
    const master_shard& shard = shards_[at];
    if (error wrong = check(shard, type, static_cast<i64>(unquantized.size()))) return wrong;

    const std::byte* from = unquantized.data() + static_cast<std::size_t>(shard.range.start * bit_width(type) / 8);
    if (!shard.range.empty()) {
      if (type == dtype::bf16) widen<bf16>(from, shard.masters);
      else if (type == dtype::f16) widen<fp16>(from, shard.masters);
      else widen<float>(from, shard.masters);
    }
    for (const std::span<float>& host : shard.copies) {
      if (!host.empty()) std::memcpy(host.data(), shard.masters.data(), host.size_bytes());
      ++report_.copies;
    }
    done_[at] = true;
    account(shard, static_cast<i64>(unquantized.size()));
    return {};
  }

  /// Errors: missing, with the names: a master that was not started would train from garbage; bad_argument where there
  /// was nothing to start.
  error finish() {
    if (shards_.empty()) return make_error(errc::bad_argument, "masters", "none were copied: there are no parameters");
    std::string names;
    i64 lacking = 0;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (done_[i]) continue;
      if (++lacking <= 8) names.append(lacking == 1 ? "" : ", ").append(shards_[i].name);
    }
    if (lacking != 0)
      return make_error(errc::missing, "masters",
                        "missing keys (" + std::to_string(lacking) + "): " + names + (lacking > 8 ? ", ..." : ""));
    finished_ = true;
    return {};
  }
  /// Whether the optimizer may step.
  bool finished() const noexcept { return finished_; }
  const start_report& report() const noexcept { return report_; }

 private:
  static error check(const master_shard& shard, dtype type, i64 bytes) {
    if (type != dtype::bf16 && type != dtype::f16 && type != dtype::f32)
      return make_error(errc::wrong_dtype, shard.name,
                        std::string("masters start from BF16, FP16 or FP32 weights, not from ").append(name_of(type)));
    i64 expected = 0;
    if (!multiply_checked(shard.elements, bit_width(type) / 8, expected))
      return make_error(errc::overflow, shard.name, "its bytes do not fit 63 bits");
    if (bytes != expected)
      return make_error(errc::wrong_size, shard.name, "its unquantized bytes differ from its elements", bytes,
                        expected);
    const flat_range& range = shard.range;
    if (range.length < 0 || range.start < 0 || range.length > shard.elements ||
        range.start > shard.elements - range.length)
      return make_error(errc::wrong_offset, shard.name, "this rank's range ends behind the tensor; its start",
                        range.start, shard.elements - range.length);
    if (static_cast<i64>(shard.masters.size()) != range.length)
      return make_error(errc::wrong_size, shard.name, "its masters differ from this rank's range",
                        static_cast<i64>(shard.masters.size()), range.length);
    for (const std::span<float>& host : shard.copies)
      if (host.size() != shard.masters.size())
        return make_error(errc::wrong_size, shard.name, "a host copy differs from its masters",
                          static_cast<i64>(host.size()), range.length);
    return {};
  }
  template <class Value> static void widen(const std::byte* from, std::span<float> masters) noexcept {
    for (float& master : masters) {  // by memcpy: other writers leave tensors at odd addresses
      Value value;
      std::memcpy(&value, from, sizeof(value));
      from += sizeof(value);
      master = to_float(value);
    }
  }
  void account(const master_shard& shard, i64 unquantized) noexcept {
    ++report_.parameters;
    report_.masters += shard.range.length;
    report_.unquantized_bytes += unquantized;
    report_.fp8_bytes += shard.fp8_bytes;
    report_.master_bytes += static_cast<i64>(shard.masters.size_bytes() * (1 + shard.copies.size()));
    const i64 now = report_.fp8_bytes + report_.master_bytes + unquantized;
    if (now > report_.peak_bytes) report_.peak_bytes = now;
  }
  std::vector<master_shard> shards_;
  std::vector<bool> done_;
  bool finished_ = false;
  start_report report_;
};

FP8WIRE_ABI_END
#endif
