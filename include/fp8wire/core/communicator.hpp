// SPDX-License-Identifier: Apache-2.0
/// What the ranks that share a tensor do together: a maximum over all, and shards that become the whole.
#ifndef FP8WIRE_CORE_COMMUNICATOR_HPP
#define FP8WIRE_CORE_COMMUNICATOR_HPP
#include <concepts>
#include <span>

#include <fp8wire/core/flat_range.hpp>

FP8WIRE_ABI_BEGIN

/// Collective calls, which all ranks make in the same order; both return when this rank may use the result.
/// all_max(values, count): the largest of all ranks' values, in place, at every rank. They are FP32 magnitudes as bits,
/// below 2^31, so that MAX of any 32-bit integer type will do.
/// all_gather(bytes, ranges): every rank has filled bytes[ranges[rank()]], and gets the others' ranges.
template <class Communicator>
concept communicator =
    requires(Communicator& with, u32* values, i64 count, u8* bytes, std::span<const flat_range> ranges) {
      { with.rank() } -> std::convertible_to<int>;
      { with.size() } -> std::convertible_to<int>;
      with.all_max(values, count);
      with.all_gather(bytes, ranges);
    };

/// One rank that owns everything. interop/ has threads and MPI.
struct alone {
  static constexpr int rank() noexcept { return 0; }
  static constexpr int size() noexcept { return 1; }
  constexpr void all_max(u32*, i64) const noexcept {}
  constexpr void all_gather(u8*, std::span<const flat_range>) const noexcept {}
};
static_assert(communicator<alone>);

FP8WIRE_ABI_END
#endif
