// SPDX-License-Identifier: Apache-2.0
/// Condition C6 on live data: what an engine derives from an update is of this version, made once, and where it was.
#ifndef FP8WIRE_WIRE_CONDITIONS_DERIVED_STATE_HPP
#define FP8WIRE_WIRE_CONDITIONS_DERIVED_STATE_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/layout/relayout.hpp>

FP8WIRE_ABI_BEGIN

/// An inventory of swizzled scales, shuffled codes, padded copies, permutation caches. A finalizer calls made() for
/// each where it writes it; check() before the version is served.
/// Cost: one row a buffer; no tensor data. Threads: one at a time.
class derived_state {
 public:
  /// Adds a derived buffer and answers its number.
  u32 list(std::string name) {
    rows_.push_back({std::move(name), nullptr, nullptr, 0});
    return static_cast<u32>(rows_.size() - 1);
  }
  std::size_t size() const noexcept { return rows_.size(); }

  /// Says that the buffer at `data` was just derived from that version's canonical bytes.
  /// Errors: duplicate (C6) for a second time in one version: a shuffle of shuffled rows; stale_version (C6).
  error made(u32 buffer, const void* data, u64 weight_version) {
    row& one = rows_[buffer];
    one.data = data;
    if (weight_version == one.version)
      return make_error(errc::duplicate, one.name, "is derived twice in one version", static_cast<i64>(weight_version),
                        static_cast<i64>(one.version + 1), condition::c6_derived_state);
    if (weight_version < one.version)
      return make_error(errc::stale_version, one.name, "is derived from an older version",
                        static_cast<i64>(weight_version), static_cast<i64>(one.version), condition::c6_derived_state);
    one.version = weight_version;
    return {};
  }

  /// From here on the buffers must stay where they are: graphs and kernels have their addresses.
  void capture() noexcept {
    for (row& one : rows_) one.captured = one.data;
  }

  /// Errors: stale_version (C6) for the first buffer that was not derived from that version; format_mismatch (C6) for
  /// one that moved after capture().
  error check(u64 weight_version) const {
    for (const row& one : rows_) {
      if (one.version != weight_version)
        return make_error(errc::stale_version, one.name, "was not derived from the version that is to serve",
                          static_cast<i64>(one.version), static_cast<i64>(weight_version), condition::c6_derived_state);
      if (one.captured != nullptr && one.captured != one.data)
        return make_error(errc::format_mismatch, one.name, "moved, and captured graphs read where it was",
                          static_cast<i64>(reinterpret_cast<std::uintptr_t>(one.data)),
                          static_cast<i64>(reinterpret_cast<std::uintptr_t>(one.captured)),
                          condition::c6_derived_state);
    }
    return {};
  }

 private:
  struct row {
    std::string name;
    const void* data;
    const void* captured;
    u64 version;
  };
  std::vector<row> rows_;
};

/// Compares a derived buffer with what its canonical source gives now, padding included: finds a repack that keeps the
/// shape, a second shuffle, a stale cache of row orders.
/// Errors: format_mismatch (C6) with the first element that differs. Throws precondition_error on shapes that do not
/// belong together. Cost: one look at every element, by the layout's inverse; sample tensors in production.
template <layout From, layout To, class In, class Value>
error check_derived(std::string_view name, laid_out<From, In> canonical, laid_out<To, Value> derived) {
  const i64 wrong = verify_relayout(canonical, derived);
  if (wrong < 0) return {};
  return make_error(errc::format_mismatch, std::string(name),
                    std::string("is not what ").append(To::id).append(" of its source is; the first element"), wrong,
                    derived.size(), condition::c6_derived_state);
}

FP8WIRE_ABI_END
#endif
