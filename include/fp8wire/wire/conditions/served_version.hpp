// SPDX-License-Identifier: Apache-2.0
/// Condition C8 on live data: one version everywhere or nowhere, rising, and no cache that outlives it.
///
/// sender and receiver keep it among themselves. These are for what stands around them: routers, request logs, engines
/// that come back after a crash, prefix caches.
#ifndef FP8WIRE_WIRE_CONDITIONS_SERVED_VERSION_HPP
#define FP8WIRE_WIRE_CONDITIONS_SERVED_VERSION_HPP
#include <span>

#include <fp8wire/core/error.hpp>
#include <fp8wire/core/hash.hpp>

FP8WIRE_ABI_BEGIN

/// What every engine says it serves, against what was committed; an engine that restarted from a checkpoint and one
/// that missed a commit are found here. Errors: stale_version (C8) with the lowest rank that differs. Cost: O(engines).
inline error check_serving(std::span<const u64> serving, u64 committed) {
  for (std::size_t rank = 0; rank < serving.size(); ++rank) {
    if (serving[rank] == committed) continue;
    error wrong = make_error(errc::stale_version, "engine " + std::to_string(rank),
                             serving[rank] == 0 ? "serves nothing" : "serves another version",
                             static_cast<i64>(serving[rank]), static_cast<i64>(committed), condition::c8_commit);
    wrong.rank = static_cast<int>(rank);
    return wrong;
  }
  return {};
}

/// The next version of a counter that must never fall back. Errors: stale_version (C8). Cost: O(1).
inline error check_rising(u64 last, u64 next) {
  if (next > last) return {};
  return make_error(errc::stale_version, "weight_version", "versions must rise", static_cast<i64>(next),
                    static_cast<i64>(last + 1), condition::c8_commit);
}

/// The stamp of an answer: the version that it was made with, from its first token to its last.
/// Errors: stale_version (C8) unless it lies in [oldest, serving]; not_serving for 0. Cost: O(1).
inline error check_stamp(u64 stamp, u64 oldest, u64 serving) {
  if (stamp == 0)
    return make_error(errc::not_serving, "weight_version", "an answer of an engine that serves nothing",
                      condition::c8_commit);
  if (stamp >= oldest && stamp <= serving) return {};
  return make_error(errc::stale_version, "weight_version", "an answer was made with another version",
                    static_cast<i64>(stamp), static_cast<i64>(stamp < oldest ? oldest : serving), condition::c8_commit);
}

/// A prefix's key in a KV cache: the same tokens under another version are another prefix, so a commit needs no flush
/// to be right. 64 bits; not against an adversary.
constexpr u64 cache_key(u64 weight_version, u64 prefix_hash) noexcept {
  return hash(prefix_hash, hash(weight_version, hash("fp8wire cache key 1")));
}

FP8WIRE_ABI_END
#endif
