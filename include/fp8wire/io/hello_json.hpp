// SPDX-License-Identifier: Apache-2.0
/// The words of the handshake as JSON: hello and its answer, unknown keys skipped.
#ifndef FP8WIRE_IO_HELLO_JSON_HPP
#define FP8WIRE_IO_HELLO_JSON_HPP
#include <fp8wire/io/manifest_json.hpp>
#include <fp8wire/wire/handshake.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Flat members of an object, and a manifest that stands under one key.
class words_reader {
 public:
  explicit words_reader(std::string_view manifest_key) : manifest_key_(manifest_key) {}

  bool key(std::string_view text) {
    if (inside_ > 0) return in_manifest_ ? tensors.key(text) : true;
    for (const auto& [known, value] : words_)
      if (known == text) return fail("duplicate key \"" + std::string(text) + "\"");
    if (words_.size() == 64) return fail("too many keys");
    words_.emplace_back(text, std::string());
    return true;
  }
  bool scalar(json_kind kind, std::string_view text) {
    if (inside_ > 0) return in_manifest_ ? tensors.scalar(kind, text) : true;
    if (words_.empty()) return fail("an object was expected");
    words_.back().second = text;
    return true;
  }
  bool open(json_kind kind) {
    if (!begun_) return begun_ = true, kind == json_kind::object || fail("an object was expected");
    if (inside_++ == 0) in_manifest_ = words_.back().first == manifest_key_;
    return !in_manifest_ || tensors.open(kind);
  }
  bool close() {
    if (inside_ == 0) return true;
    --inside_;
    return !in_manifest_ || tensors.close();
  }
  error why() const { return why_ ? why_ : tensors.why(); }

  std::string_view text(std::string_view name) const noexcept {
    for (const auto& [known, value] : words_)
      if (known == name) return value;
    return {};
  }
  /// Errors: bad_header where the member is missing or not a whole number in 0 .. most.
  error number(std::string_view name, u64 most, u64& into) const {
    i64 whole_number = -1;
    if (!parse_whole(text(name), whole_number) || whole_number < 0 || static_cast<u64>(whole_number) > most)
      return make_error(errc::bad_header, std::string(name), "must be a whole number in 0 .. " + std::to_string(most));
    into = static_cast<u64>(whole_number);
    return {};
  }
  error id(std::string_view name, u64& into) const {
    return parse_hex(text(name), into) ? error{}
                                       : make_error(errc::bad_header, std::string(name), "must be hexadecimal");
  }
  bool truth(std::string_view name) const noexcept { return text(name) == "true"; }
  manifest_reader tensors;

 private:
  bool fail(std::string what) {
    why_ = make_error(errc::bad_header, "", std::move(what));
    return false;
  }
  std::string_view manifest_key_;
  std::vector<std::pair<std::string, std::string>> words_;
  int inside_ = 0;
  bool begun_ = false, in_manifest_ = false;
  error why_;
};

}  // namespace detail

/// What wire/handshake.hpp takes as Text.
struct json_text {
  static constexpr u64 most = u64{1} << 62;

  static std::string write(const hello& from) {
    std::string out =
        begin(from.protocol, from.plan_hash, from.options.capacity_bytes, from.options.slots, from.device);
    out.append(", \"alignment\": ").append(std::to_string(from.options.align_bytes));
    out.append(", \"split_rows\": ").append(from.options.split_rows ? "true" : "false");
    out.append(", \"by_dtype\": ").append(from.options.by_dtype ? "true" : "false");
    out.append(", \"final\": ").append(from.final ? "true" : "false").append(", \"manifest\": {\n");
    detail::append_manifest(out, from.tensors);
    return out.append("\n}}\n");
  }
  static std::string write(const answer& from) {
    std::string out = begin(from.protocol, from.plan_hash, from.capacity_bytes, from.slots, from.device);
    if (from.wants_other) {
      out.append(", \"wanted\": {\n");
      detail::append_manifest(out, from.wanted);
      out.append("\n}");
    }
    return out.append("}\n");
  }
  /// Another protocol's hello is read as far as its protocol, so that the refusal can name both.
  static result<hello> read_hello(std::string_view text) {
    hello made;
    detail::words_reader from("manifest");
    u64 slots = 0;
    const error wrong = detail::read_whole(text, "hello", from);
    if (u64 protocol = 0; !from.number("protocol", 0xFFFFFFFF, protocol)) {
      made.protocol = static_cast<u32>(protocol);
      if (protocol != protocol_version) return made;
    }
    if (wrong) return wrong;
    if (error bad = common(from, made.protocol, made.plan_hash, made.options.capacity_bytes, slots, made.device))
      return bad;
    if (error bad = from.number("alignment", most, made.options.align_bytes)) return bad;
    made.options.slots = static_cast<u32>(slots);
    made.options.split_rows = from.truth("split_rows");
    made.options.by_dtype = from.truth("by_dtype");
    made.final = from.truth("final");
    if (!from.tensors.done()) return make_error(errc::missing, "hello", "holds no manifest");
    made.tensors = std::move(from.tensors.made);
    return made;
  }
  static result<answer> read_answer(std::string_view text) {
    answer made;
    detail::words_reader from("wanted");
    u64 slots = 0;
    if (error wrong = detail::read_whole(text, "accept", from)) return wrong;
    if (error bad = common(from, made.protocol, made.plan_hash, made.capacity_bytes, slots, made.device)) return bad;
    made.slots = static_cast<u32>(slots);
    made.wants_other = from.tensors.done();
    made.wanted = std::move(from.tensors.made);
    return made;
  }

 private:
  static std::string begin(u32 protocol, u64 plan_hash, u64 capacity, u32 slots, const std::string& device) {
    std::string out = "{\"protocol\": " + std::to_string(protocol) + ", \"plan_hash\": \"" +
                      detail::hex_text(plan_hash) + "\", \"capacity\": " + std::to_string(capacity) +
                      ", \"slots\": " + std::to_string(slots) + ", ";
    detail::append_member(out, "device", device);
    return out;
  }
  static error common(const detail::words_reader& from, u32& protocol, u64& plan_hash, u64& capacity, u64& slots,
                      std::string& device) {
    u64 number = 0;
    if (error bad = from.number("protocol", 0xFFFFFFFF, number)) return bad;
    protocol = static_cast<u32>(number);
    device = from.text("device");
    if (error bad = from.id("plan_hash", plan_hash)) return bad;
    if (error bad = from.number("capacity", most, capacity)) return bad;
    return from.number("slots", 0xFFFFFFFF, slots);
  }
};

FP8WIRE_ABI_END
#endif
