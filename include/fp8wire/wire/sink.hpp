// SPDX-License-Identifier: Apache-2.0
/// Where an engine's bytes go: memory that a receiver writes, judges, finalizes and publishes.
#ifndef FP8WIRE_WIRE_SINK_HPP
#define FP8WIRE_WIRE_SINK_HPP
#include <concepts>
#include <span>

#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN

enum class commit_mode : u8 {
  staged,   // the old version serves until the new one is whole
  in_place  // weights fit once: a failed update leaves the engine refusing to serve until a full one commits
};

constexpr std::string_view name_of(commit_mode mode) noexcept {
  return mode == commit_mode::staged ? "staged" : "in-place";
}

/// What a sink found out about one piece of the plan.
struct piece_report {
  u64 sum = 0;         // core/checksum.hpp over the piece's bytes as they lie in the sink
  i64 first_bad = -1;  // first element of the piece that C9 refuses (wire/sanity.hpp)
};

/// mode: which of the two promises the sink's memory can keep.
/// write: bytes of one piece of the plan, enqueued on the stream; they may be read until the frame's release on it.
/// reports: one for each piece of the plan, after everything enqueued; the update's only sync.
/// finalize: derives what the engine needs beyond the bytes (swizzled scales and the like); once per version.
/// publish: from here on the new version serves. discard: the update's bytes are worthless; staged sinks serve on.
template <class Sink>
concept sink = requires(Sink& s, const Sink& c, u32 piece, std::span<const std::byte> bytes,
                        typename Sink::stream stream, u64 version) {
  { c.mode() } noexcept -> std::same_as<commit_mode>;
  { s.write(piece, bytes, stream) } -> std::same_as<error>;
  { s.reports(stream) } -> std::same_as<result<std::span<const piece_report>>>;
  { s.finalize(stream) } -> std::same_as<error>;
  { s.publish(version) } noexcept -> std::same_as<void>;
  { s.discard() } noexcept -> std::same_as<void>;
};

FP8WIRE_ABI_END
#endif
