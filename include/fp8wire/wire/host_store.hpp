// SPDX-License-Identifier: Apache-2.0
/// A sink in host memory: every tensor of a manifest, once (in place) or twice (staged).
#ifndef FP8WIRE_WIRE_HOST_STORE_HPP
#define FP8WIRE_WIRE_HOST_STORE_HPP
#include <new>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/wire/plan.hpp>
#include <fp8wire/wire/sanity.hpp>
#include <fp8wire/wire/sink.hpp>
#include <fp8wire/wire/transport.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {

/// Bytes that are not zeroed first: an update writes every one of them.
class raw_memory {
 public:
  explicit raw_memory(std::size_t size) : data_(size == 0 ? nullptr : ::operator new(size, std::align_val_t{64})) {}
  raw_memory(raw_memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  raw_memory& operator=(raw_memory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~raw_memory() {
    if (data_ != nullptr) ::operator delete(data_, std::align_val_t{64});
  }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

}  // namespace detail

/// Tensors start at multiples of 64 bytes. Nobody else may read a staged store's old version while the update after
/// next runs: publish swaps the two copies.
/// Threads: one writer; readers of the served version need no lock until the next publish.
template <class Stream = host_stream> class host_store {
 public:
  using stream = Stream;
  /// Expects: the plan was made from the manifest. Copies what it needs of both.
  host_store(const manifest& tensors, const plan& wire, commit_mode mode)
      : mode_(mode),
        total_(lay_out(tensors)),
        live_(total_),
        staging_(mode == commit_mode::staged ? total_ : 0),
        reports_(wire.pieces().size()) {
    pieces_.reserve(wire.pieces().size());
    for (const plan_piece& piece : wire.pieces()) {
      const manifest_entry& entry = tensors.entries()[piece.entry];
      pieces_.push_back({offsets_[piece.entry] + piece.from, piece.bytes, entry.dtype, entry.what});
    }
  }

  commit_mode mode() const noexcept { return mode_; }
  /// Bytes this store holds: one copy or two.
  u64 memory_bytes() const noexcept { return mode_ == commit_mode::staged ? 2 * total_ : total_; }
  /// The served bytes of a manifest entry. Meaningful while the receiver's serving() is not 0.
  std::span<const std::byte> bytes(std::size_t entry) const noexcept {
    return {live_.data() + offsets_[entry], static_cast<std::size_t>(sizes_[entry])};
  }

  /// Copies, sums and judges in one pass, 64 KiB at a time, so that the judge reads from cache.
  error write(u32 piece, std::span<const std::byte> from, stream) noexcept {
    const target& to = pieces_[piece];
    std::byte* at = (mode_ == commit_mode::staged ? staging_ : live_).data() + to.offset;
    i64 first_bad = -1;
    const auto judge = [&](std::size_t done, std::size_t size) {
      if (first_bad >= 0 || to.what == role::kept) return;
      const std::byte* part = from.data() + done;
      const i64 bad =
          to.what == role::codes ? first_bad_code(to.type, part, size) : first_bad_scale(to.type, part, size);
      if (bad >= 0) first_bad = static_cast<i64>(done) * 8 / bit_width(to.type) + bad;
    };
    const u64 sum = detail::copy_and_checksum(at, from.data(), from.size(), judge);
    reports_[piece] = {sum, first_bad};
    return {};
  }
  result<std::span<const piece_report>> reports(stream) { return std::span<const piece_report>(reports_); }
  error finalize(stream) noexcept { return {}; }
  void publish(u64) noexcept {
    if (mode_ == commit_mode::staged) std::swap(live_, staging_);
  }
  void discard() noexcept {}

 private:
  struct target {
    u64 offset, bytes;
    dtype type;
    role what;
  };
  u64 lay_out(const manifest& tensors) {
    u64 total = 0;
    for (const manifest_entry& entry : tensors.entries()) {
      offsets_.push_back(total);
      sizes_.push_back(entry.bytes);
      detail::add_aligned(total, entry.bytes, 64);
    }
    return total;
  }
  commit_mode mode_;
  std::vector<u64> offsets_, sizes_;
  u64 total_;
  detail::raw_memory live_, staging_;
  std::vector<target> pieces_;
  std::vector<piece_report> reports_;
};

static_assert(sink<host_store<>>);

FP8WIRE_ABI_END
#endif
