// SPDX-License-Identifier: Apache-2.0
/// What can go wrong with input from outside: one value that names the tensor, the rule and both numbers.
///
/// The only header below the model floor that costs `<string>`; formats, layouts and quantizers do not include it.
#ifndef FP8WIRE_CORE_ERROR_HPP
#define FP8WIRE_CORE_ERROR_HPP
#include <string>
#include <string_view>
#include <utility>

#include <fp8wire/core/bits.hpp>
#include <fp8wire/core/expects.hpp>

FP8WIRE_ABI_BEGIN

/// What is wrong. New codes are appended; numbers travel between processes.
enum class errc : u16 {
  ok,
  bad_argument,     // a value that no caller may pass
  bad_file,         // cannot be opened, read, written, or is not what its name says
  bad_header,       // malformed safetensors header or JSON
  overflow,         // a size from outside does not fit 64 bits
  wrong_dtype,
  wrong_shape,
  wrong_size,       // bytes
  wrong_offset,
  duplicate,
  missing,
  unexpected,
  nonfinite,        // NaN or Inf where the policy refuses them
  bad_scale,
  grid_mismatch,
  format_mismatch,  // wire id: naming, layout or encoding
  plan_mismatch,
  protocol_mismatch,
  out_of_order,
  stale_version,
  checksum,
  capacity,
  peer_lost,
  timeout,
  aborted,
  not_serving,
  unsupported       // this build or machine cannot
};

/// The ten conditions that every weight update keeps (docs/wire.md); `none` for errors that break none of them.
enum class condition : u8 {
  none,
  c1_layer_set,
  c2_grid,
  c3_complete_pairs,
  c4_atomic_pairs,
  c5_geometry,
  c6_derived_state,
  c7_transport,
  c8_commit,
  c9_scale_sanity,
  c10_other_state
};

constexpr std::string_view name_of(errc code) noexcept {
  constexpr std::string_view names[] = {
      "ok",           "bad_argument",  "bad_file",      "bad_header",      "overflow",      "wrong_dtype",
      "wrong_shape",  "wrong_size",    "wrong_offset",  "duplicate",       "missing",       "unexpected",
      "nonfinite",    "bad_scale",     "grid_mismatch", "format_mismatch", "plan_mismatch", "protocol_mismatch",
      "out_of_order", "stale_version", "checksum",      "capacity",        "peer_lost",     "timeout",
      "aborted",      "not_serving",   "unsupported"};
  return names[static_cast<int>(code)];
}

/// "C1" ... "C10", empty for none.
constexpr std::string_view name_of(condition broken) noexcept {
  constexpr std::string_view names[] = {"", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10"};
  return names[static_cast<int>(broken)];
}

/// One failure. `explicit operator bool` is true when there is one.
struct error {
  errc code = errc::ok;
  condition broken = condition::none;
  std::string tensor;      // or the file, peer or option concerned
  std::string what;        // one clause: "scale rows differ from the plan"
  i64 got = 0, expected = 0;
  bool has_numbers = false;
  int rank = -1;           // of the process that found it

  explicit operator bool() const noexcept { return code != errc::ok; }
  bool operator==(const error&) const = default;

  /// "C3 layers.0.mlp.down_proj.weight: scale rows differ from the plan: got 3, expected 4".
  std::string message() const {
    std::string text;
    if (broken != condition::none) text.append(name_of(broken)).append(" ");
    if (!tensor.empty()) text.append(tensor).append(": ");
    text.append(what.empty() ? std::string(name_of(code)) : what);
    if (has_numbers)
      text.append(": got ").append(std::to_string(got)).append(", expected ").append(std::to_string(expected));
    return text;
  }
};

inline error make_error(errc code, std::string tensor, std::string what, condition broken = condition::none) {
  return {code, broken, std::move(tensor), std::move(what), 0, 0, false, -1};
}
inline error make_error(errc code, std::string tensor, std::string what, i64 got, i64 expected,
                        condition broken = condition::none) {
  return {code, broken, std::move(tensor), std::move(what), got, expected, true, -1};
}

/// A value or the error that took its place.
template <class Value> class [[nodiscard]] result {
 public:
  // Not one of a value: nvcc moves a returned variable into a reference only.
  result(Value&& value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)
  result(const Value& value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  result(fp8wire::error failure) : failure_(std::move(failure)) {  // NOLINT(google-explicit-constructor)
    if (!failure_) failure_ = make_error(errc::bad_argument, "", "a result was made from an empty error");
  }
  bool ok() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return ok(); }
  const fp8wire::error& error() const noexcept { return failure_; }
  /// Expects: ok(). Checked: throws precondition_error.
  Value& value() & { return check(), value_; }
  const Value& value() const& { return check(), value_; }
  Value&& value() && { return check(), std::move(value_); }
  Value* operator->() { return &value(); }
  const Value* operator->() const { return &value(); }
  Value& operator*() & { return value(); }
  const Value& operator*() const& { return value(); }

 private:
  void check() const {
    if (failure_) detail::raise("result: value() of a failure", static_cast<i64>(failure_.code), 0);
  }
  Value value_{};
  fp8wire::error failure_;
};

FP8WIRE_ABI_END
#endif
