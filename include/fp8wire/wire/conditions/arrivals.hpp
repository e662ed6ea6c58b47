// SPDX-License-Identifier: Apache-2.0
/// Conditions C3 and C4 for updates that come tensor by tensor, by name, over somebody else's transport.
///
/// A receiver of this library keeps these books by itself. A framework with a transport of its own calls arrived()
/// where a tensor reaches its loader, and complete() before anything is finalized.
#ifndef FP8WIRE_WIRE_CONDITIONS_ARRIVALS_HPP
#define FP8WIRE_WIRE_CONDITIONS_ARRIVALS_HPP
#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

/// begin, arrived for each tensor in any order, complete. The first error of an update sticks, so that complete()
/// refuses an update whose error was swallowed on the way.
/// Cost: one look-up and one byte a tensor. Threads: one at a time.
class arrivals {
 public:
  /// Expects: the manifest outlives this.
  explicit arrivals(const manifest& expected) : expected_(expected), came_(expected.entries().size()) {}

  void begin(u64 weight_version) {
    version_ = weight_version;
    for (u8& came : came_) came = 0;
    failure_ = {};
  }

  /// One tensor as the loader sees it, its version as the sender stamped it.
  /// Errors: unexpected, duplicate, wrong_dtype (C3), wrong_shape (C5: a scale of [N] for [N, 1] among them),
  /// stale_version (C4).
  error arrived(std::string_view name, dtype type, const std::vector<i64>& shape, u64 weight_version) {
    const i64 found = expected_.find(name);
    if (found < 0) return fail(unknown(name));
    const std::size_t at = static_cast<std::size_t>(found);
    const manifest_entry& entry = expected_.entries()[at];
    if (came_[at] != 0)
      return fail(make_error(errc::duplicate, entry.name, "came twice in one update", condition::c3_complete_pairs));
    if (type != entry.dtype)
      return fail(
          make_error(errc::wrong_dtype, entry.name,
                     std::string("came as ").append(name_of(type)).append(", expected ").append(name_of(entry.dtype)),
                     condition::c3_complete_pairs));
    if (shape.size() != entry.shape.size())
      return fail(make_error(errc::wrong_shape, entry.name, "its rank", static_cast<i64>(shape.size()),
                             static_cast<i64>(entry.shape.size()), condition::c5_geometry));
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] != entry.shape[axis])
        return fail(make_error(errc::wrong_shape, entry.name, "its extent along axis " + std::to_string(axis),
                               shape[axis], entry.shape[axis], condition::c5_geometry));
    if (weight_version != version_)
      return fail(make_error(errc::stale_version, entry.name, "belongs to another version",
                             static_cast<i64>(weight_version), static_cast<i64>(version_), condition::c4_atomic_pairs));
    came_[at] = 1;
    return {};
  }

  /// Whether the update may be finalized. Errors: the first that arrived() found; missing (C3) with the names.
  error complete() const {
    if (failure_) return failure_;
    std::string first;
    std::size_t there = 0;
    for (std::size_t e = 0; e < came_.size(); ++e) {
      there += came_[e];
      if (came_[e] == 0 && first.empty()) first = expected_.entries()[e].name;
    }
    if (there == came_.size()) return {};
    return make_error(errc::missing, first, detail::missing_keys([&](const auto& see) {
                        for (std::size_t e = 0; e < came_.size(); ++e)
                          if (came_[e] == 0) see(expected_.entries()[e].name);
                      }),
                      static_cast<i64>(there), static_cast<i64>(came_.size()), condition::c3_complete_pairs);
  }

 private:
  error unknown(std::string_view name) const {
    const i64 alias = expected_.find_alias(name);
    std::string what = "is not in the manifest";
    if (alias >= 0)
      what = "is tied to " +
             std::string(expected_.item_name(expected_.aliases()[static_cast<std::size_t>(alias)].item)) +
             ", which is sent once";
    return make_error(alias >= 0 ? errc::duplicate : errc::unexpected, std::string(name), std::move(what),
                      condition::c3_complete_pairs);
  }
  error fail(error why) {
    if (!failure_) failure_ = why;
    return why;
  }
  const manifest& expected_;
  std::vector<u8> came_;
  error failure_;
  u64 version_ = 0;
};

FP8WIRE_ABI_END
#endif
