// SPDX-License-Identifier: Apache-2.0
/// A sink in host memory: every tensor of a manifest or a rank's rectangles of it, once (in place) or twice (staged).
#ifndef FP8WIRE_WIRE_HOST_STORE_HPP
#define FP8WIRE_WIRE_HOST_STORE_HPP
#include <new>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/core/slice.hpp>
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

/// What a store keeps of an entry: all of it, or of every matrix of batch x rows x cols these rectangles, one stacked
/// on the other.
struct kept_part {
  i64 rows = 0, cols = 0;  // of one matrix
  std::vector<slice> rectangles;  // empty: all of it, rows and cols do not matter
};

/// Tensors start at multiples of 64 bytes. Nobody else may read a staged store's old version while the update after
/// next runs: publish swaps the two copies.
/// Threads: one writer; readers of the served version need no lock until the next publish.
template <class Stream = host_stream> class host_store {
 public:
  using stream = Stream;
  /// Expects: the plan was made from the manifest. Copies what it needs of both.
  /// parts: what a rank keeps, one for each entry of the manifest, rectangles inside their matrix; empty: everything.
  host_store(const manifest& tensors, const plan& wire, commit_mode mode, std::vector<kept_part> parts = {})
      : mode_(mode),
        parts_(std::move(parts)),
        total_(lay_out(tensors)),
        live_(total_),
        staging_(mode == commit_mode::staged ? total_ : 0),
        reports_(wire.pieces().size()) {
    pieces_.reserve(wire.pieces().size());
    for (const plan_piece& piece : wire.pieces()) {
      const manifest_entry& entry = tensors.entries()[piece.entry];
      pieces_.push_back({piece.entry, piece.from, entry.dtype, entry.what, may_be_padded(tensors, entry)});
    }
  }

  commit_mode mode() const noexcept { return mode_; }
  /// Bytes this store holds: one copy or two.
  u64 memory_bytes() const noexcept { return mode_ == commit_mode::staged ? 2 * total_ : total_; }
  /// The served bytes of a manifest entry. Meaningful while the receiver's serving() is not 0.
  std::span<const std::byte> bytes(std::size_t entry) const noexcept {
    return {live_.data() + offsets_[entry], static_cast<std::size_t>(sizes_[entry])};
  }

  /// The bytes of the update that is being received, for a finalize that derives something from them.
  std::span<const std::byte> incoming(std::size_t entry) const noexcept {
    const detail::raw_memory& memory = mode_ == commit_mode::staged ? staging_ : live_;
    return {memory.data() + offsets_[entry], static_cast<std::size_t>(sizes_[entry])};
  }

  /// Copies, sums and judges in one pass, 64 KiB at a time, so that the judge reads from cache. Of a piece that is kept
  /// in part all bytes are summed and judged.
  error write(u32 piece, std::span<const std::byte> from, stream) noexcept {
    const target& to = pieces_[piece];
    std::byte* at = (mode_ == commit_mode::staged ? staging_ : live_).data() + offsets_[to.entry];
    i64 first_bad = -1;
    const auto judge = [&](std::size_t done, std::size_t size) {
      if (first_bad >= 0 || to.what == role::kept) return;
      const std::byte* part = from.data() + done;
      const i64 bad = to.what == role::codes ? first_bad_code(to.type, part, size)
                                             : first_bad_scale(to.type, part, size, to.padded);
      if (bad >= 0) first_bad = static_cast<i64>(done) * 8 / bit_width(to.type) + bad;
    };
    u64 sum = 0;
    if (keeps_all(to.entry)) {
      sum = detail::copy_and_checksum(at + to.from, from.data(), from.size(), judge);
    } else {
      sum = detail::checksum_pieces<detail::copying::none>(from.data(), nullptr, from.size(), judge);
      copy_parts(at, to, from);
    }
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
    u32 entry;
    u64 from;  // first byte of the entry
    dtype type;
    role what;
    bool padded;
  };
  static bool may_be_padded(const manifest& tensors, const manifest_entry& entry) {
    const i32 encoding = tensors.items()[entry.item].encoding;
    return encoding >= 0 &&
           tensors.encodings()[static_cast<std::size_t>(encoding)].text.find(";scales=row-major;") == std::string::npos;
  }
  bool keeps_all(std::size_t entry) const noexcept { return parts_.empty() || parts_[entry].rectangles.empty(); }
  u64 lay_out(const manifest& tensors) {
    u64 total = 0;
    for (std::size_t e = 0; e < tensors.entries().size(); ++e) {
      const manifest_entry& entry = tensors.entries()[e];
      u64 bytes = entry.bytes;
      if (!keeps_all(e)) {
        u64 kept = 0;
        for (const slice& one : parts_[e].rectangles) kept += static_cast<u64>(one.rows * one.cols);
        const u64 matrix = static_cast<u64>(parts_[e].rows * parts_[e].cols);
        bytes = matrix == 0 ? 0 : bytes / matrix * kept;
      }
      offsets_.push_back(total);
      sizes_.push_back(bytes);
      detail::add_aligned(total, bytes, 64);
    }
    return total;
  }
  /// The bytes of a piece that fall into the rectangles, row by row.
  void copy_parts(std::byte* to, const target& where, std::span<const std::byte> from) const noexcept {
    const kept_part& part = parts_[where.entry];
    const u64 size = static_cast<u64>(bit_width(where.type) / 8), row_bytes = static_cast<u64>(part.cols) * size;
    if (row_bytes == 0 || part.rows == 0) return;
    u64 matrix_bytes = 0;
    for (const slice& one : part.rectangles) matrix_bytes += static_cast<u64>(one.rows * one.cols) * size;
    const u64 end = where.from + from.size();
    for (u64 line = where.from / row_bytes; line * row_bytes < end; ++line) {
      const i64 row = static_cast<i64>(line % static_cast<u64>(part.rows));
      u64 base = line / static_cast<u64>(part.rows) * matrix_bytes;
      for (const slice& one : part.rectangles) {
        const u64 width = static_cast<u64>(one.cols) * size;
        if (row >= one.row && row < one.row + one.rows) {
          const u64 first = line * row_bytes + static_cast<u64>(one.col) * size, last = first + width;
          const u64 begin = first > where.from ? first : where.from, stop = last < end ? last : end;
          if (begin < stop)
            __builtin_memcpy(to + base + static_cast<u64>(row - one.row) * width + (begin - first),
                             from.data() + (begin - where.from), stop - begin);
        }
        base += static_cast<u64>(one.rows) * width;
      }
    }
  }
  commit_mode mode_;
  std::vector<kept_part> parts_;
  std::vector<u64> offsets_, sizes_;
  u64 total_;
  detail::raw_memory live_, staging_;
  std::vector<target> pieces_;
  std::vector<piece_report> reports_;
};

static_assert(sink<host_store<>>);

FP8WIRE_ABI_END
#endif
