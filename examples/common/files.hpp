// SPDX-License-Identifier: Apache-2.0
/// Passing over large files: what is read ahead, copied and compared by all threads.
#ifndef FP8WIRE_EXAMPLES_FILES_HPP
#define FP8WIRE_EXAMPLES_FILES_HPP
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include <fp8wire/core/bits.hpp>

#include "quantizer.hpp"
#include "workers.hpp"

namespace programs {

/// Asks for the pages of a mapped range, without waiting for them.
inline void read_ahead(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t page = 4096, most = std::size_t{256} << 20;
  if (bytes.empty()) return;
  const std::size_t lead = static_cast<std::size_t>(__builtin_bit_cast(fp8wire::u64, bytes.data()) % page);
  ::madvise(const_cast<std::byte*>(bytes.data() - lead), (std::min)(bytes.size() + lead, most), MADV_WILLNEED);
}

/// Weights for the quantizer. Other writers align nothing: such a tensor moves to `aligned` first.
inline weights aligned_weights(fp8wire::dtype type, std::span<const std::byte> bytes, fp8wire::matrix_extents extents,
                               std::vector<fp8wire::u64>& aligned) {
  const fp8wire::u64 item = static_cast<fp8wire::u64>(fp8wire::bit_width(type)) / 8;
  const void* data = bytes.data();
  if (__builtin_bit_cast(fp8wire::u64, data) % item != 0) {
    aligned.resize(bytes.size() / 8 + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    data = aligned.data();
  }
  return {type, data, extents};
}

inline constexpr std::size_t piece_bytes = std::size_t{4} << 20;
inline fp8wire::i64 pieces_of(std::size_t bytes) noexcept {
  return static_cast<fp8wire::i64>((bytes + piece_bytes - 1) / piece_bytes);
}

/// Copies between ranges of the same size.
inline void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to, workers& threads) {
  threads.run(pieces_of(from.size()), [&](fp8wire::i64 piece) {
    const std::size_t at = static_cast<std::size_t>(piece) * piece_bytes;
    std::memcpy(to.data() + at, from.data() + at, (std::min)(piece_bytes, from.size() - at));
  });
}

/// Whether two ranges of the same size hold the same bytes.
inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b, workers& threads) {
  std::atomic<bool> same = true;
  threads.run(pieces_of(a.size()), [&](fp8wire::i64 piece) {
    const std::size_t at = static_cast<std::size_t>(piece) * piece_bytes;
    if (std::memcmp(a.data() + at, b.data() + at, (std::min)(piece_bytes, a.size() - at)) != 0) same = false;
  });
  return same;
}

}  // namespace programs
#endif
