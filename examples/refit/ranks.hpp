// SPDX-License-Identifier: Apache-2.0
/// `--engine-tp`: what each rank of an engine keeps of an update, and how ranks put an engine's dump together.
#ifndef FP8WIRE_EXAMPLES_REFIT_RANKS_HPP
#define FP8WIRE_EXAMPLES_REFIT_RANKS_HPP
#include <atomic>

#include <fp8wire/model/tensor_parallel.hpp>
#include <fp8wire/wire/host_store.hpp>

#include "../common/layouts.hpp"
#include "../common/options.hpp"
#include "shared_pages.hpp"

namespace programs {

namespace detail {

inline fp8wire::quantized_extents grid_of(const quantizer& preset, const fp8wire::matrix_extents& m) {
  return {m.rows, m.cols, preset.block_rows, preset.block_cols};
}

/// Everything that keeps the weights of one engine parameter from being cut.
inline std::vector<std::string> reasons_against(const fp8wire::manifest& tensors, const quantizer& preset,
                                                const std::vector<std::size_t>& items, int tp) {
  std::vector<fp8wire::weight_part> parts;
  fp8wire::parallelism where{fp8wire::sharding::replicated, tp, 1, 0, preset.block_rows, preset.block_cols};
  for (const std::size_t item : items) {
    const std::string name(tensors.item_name(item));
    const fp8wire::matrix_extents& m = tensors.items()[item].facts.extents;
    parts.push_back({name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name, m.rows, m.cols});
    where.how = fp8wire::sharding_of(name);
    if (where.how == fp8wire::sharding::column && items.size() > 1 && fp8wire::is_expert(name))
      where.how = fp8wire::sharding::gate_up;
  }
  std::vector<std::string> found = fp8wire::legal(fp8wire::reader_of(chosen_naming.id), parts, where);
  // What loaders do not ask: a block that covers the matrix cannot be cut at all.
  for (const std::size_t item : items) {
    if (!found.empty()) break;
    const std::string_view name = tensors.item_name(item);
    const auto slices = fp8wire::rank_slices(name, grid_of(preset, tensors.items()[item].facts.extents),
                                             fp8wire::sharding_of(name), tp, 0);
    if (!slices) found.push_back(slices.error().message());
  }
  return found;
}

}  // namespace detail

/// Refuses the update where an engine of that many ranks could not load it, with every reason's arithmetic.
inline void check_ranks(const fp8wire::manifest& tensors, const format& chosen, int tp) {
  if (tp == 1) return;
  const quantizer& preset = *chosen.preset;
  std::vector<std::vector<std::size_t>> units(tensors.units().size());
  for (std::size_t item = 0; item < tensors.items().size(); ++item)
    if (tensors.items()[item].encoding >= 0) units[tensors.items()[item].unit].push_back(item);
  constexpr std::size_t most = 8;
  std::vector<std::string> all;
  for (const auto& items : units)
    if (!items.empty())
      for (std::string& one : detail::reasons_against(tensors, preset, items, tp)) all.push_back(std::move(one));
  if (all.empty()) return;
  const std::size_t more = all.size() > most ? all.size() - most : 0;
  all.resize(all.size() - more);
  refuse("--engine-tp {}: {}{}", tp, fmt::join(all, "; "), more == 0 ? "" : fmt::format("; and {} more", more));
}

/// What a rank keeps of every entry: rectangles of the weights that its engine cuts, all of everything else.
/// Expects: check_ranks passed.
inline std::vector<fp8wire::kept_part> parts_of_rank(const fp8wire::manifest& tensors, const quantizer& preset, int tp,
                                                     int rank) {
  if (tp == 1) return {};
  std::vector<fp8wire::kept_part> parts(tensors.entries().size());
  for (std::size_t item = 0; item < tensors.items().size(); ++item) {
    const fp8wire::manifest_item& one = tensors.items()[item];
    const std::string_view name = tensors.item_name(item);
    const fp8wire::sharding how = fp8wire::sharding_of(name);
    if (one.encoding < 0 || how == fp8wire::sharding::replicated) continue;
    const fp8wire::matrix_extents& m = one.facts.extents;
    const auto slices = must(fp8wire::rank_slices(name, detail::grid_of(preset, m), how, tp, rank));
    fp8wire::kept_part &codes = parts[one.first_entry], &scales = parts[one.first_entry + 1];
    codes.rows = m.rows, codes.cols = m.cols;
    scales.rows = preset.scale_rows(m.rows), scales.cols = preset.scale_cols(m.cols);
    for (const fp8wire::pair_slice& slice : slices) {
      codes.rectangles.push_back(slice.codes);
      scales.rectangles.push_back(slice.scales);
    }
  }
  return parts;
}

/// The weight that a rank's rectangles make up.
inline fp8wire::matrix_extents extents_of_rank(const fp8wire::matrix_extents& whole, const fp8wire::kept_part& codes) {
  if (codes.rectangles.empty()) return whole;
  fp8wire::matrix_extents m{whole.batch, 0, codes.rectangles.front().cols};
  for (const fp8wire::slice& one : codes.rectangles) m.rows += one.rows;
  return m;
}

/// What a rank's kernels read: its slices in the engine's layout, made from this version's bytes once, in finalize. A
/// layout of the whole has no rectangles to give to ranks. Staged as its store is.
class rank_layout {
 public:
  rank_layout() = default;
  /// Refuses what the layout does not take. Expects: parts as of parts_of_rank.
  rank_layout(const fp8wire::manifest& tensors, const format& chosen, const std::vector<fp8wire::kept_part>& parts,
              fp8wire::commit_mode mode)
      : layout_(chosen.layout), preset_(chosen.preset) {
    for (std::size_t item = 0; item < tensors.items().size(); ++item) {
      const fp8wire::manifest_item& one = tensors.items()[item];
      if (one.encoding < 0) continue;
      const std::string name(tensors.item_name(item));
      const fp8wire::matrix_extents m = extents_of_rank(one.facts.extents, parts[one.first_entry]);
      const auto shapes = shapes_in(layout_, *preset_, name, m);
      if (!shapes && shapes.error().code == fp8wire::errc::format_mismatch)
        misuse("--layout {} with --recipe {}: {}", layout_, preset_->name, shapes.error().message());
      must(shapes.error());
      pairs_.push_back({name, one.first_entry, m, {}, {}});
      for (int copy = 0; copy < (mode == fp8wire::commit_mode::staged ? 2 : 1); ++copy) {
        pairs_.back().codes[copy].resize(static_cast<std::size_t>(shapes->code_bytes));
        pairs_.back().scales[copy].resize(static_cast<std::size_t>(shapes->scale_bytes));
      }
    }
    next_ = mode == fp8wire::commit_mode::staged ? 1 : 0;
  }
  bool empty() const noexcept { return pairs_.empty(); }

  /// finalize: from the bytes that are being received.
  fp8wire::error derive(const fp8wire::host_store<>& store) {
    for (pair& one : pairs_)
      if (fp8wire::error wrong =
              lay_out_pair(layout_, *preset_, one.name, one.extents, store.incoming(one.entry).data(),
                           store.incoming(one.entry + 1).data(), one.codes[next_], one.scales[next_]))
        return wrong;
    return {};
  }
  /// publish: what was derived is what serves.
  void publish() noexcept {
    served_ = next_;
    if (!pairs_.empty() && !pairs_.front().codes[1].empty()) next_ = 1 - next_;
  }
  /// Canonical bytes of what is served: of a pair's codes (entry) and scales (entry + 1), kept until the next call.
  fp8wire::error canonical(std::size_t entry, std::vector<std::byte>& codes, std::vector<fp8wire::u64>& scales) const {
    for (const pair& one : pairs_) {
      if (one.entry != entry) continue;
      const fp8wire::matrix_extents& m = one.extents;
      codes.resize(static_cast<std::size_t>(m.batch * m.rows * m.cols));
      scales.resize(static_cast<std::size_t>(m.batch * preset_->scale_rows(m.rows) * preset_->scale_cols(m.cols) *
                                             fp8wire::bit_width(preset_->stored) / 64) +
                    1);
      return take_back_pair(layout_, *preset_, one.name, m, one.codes[served_], one.scales[served_], codes.data(),
                            scales.data());
    }
    return {};
  }

 private:
  struct pair {
    std::string name;
    std::size_t entry;
    fp8wire::matrix_extents extents;
    std::vector<std::byte> codes[2], scales[2];
  };
  std::string layout_;
  const quantizer* preset_ = nullptr;
  std::vector<pair> pairs_;
  int next_ = 0, served_ = 0;
};

/// The whole of what one engine serves, in memory that its ranks share: each puts its part in after a commit, and the
/// last one writes the dump. The next commit waits for that rank's vote, so nobody writes while it reads.
class engine_image {
 public:
  engine_image() = default;
  explicit engine_image(const fp8wire::manifest& tensors) {
    fp8wire::u64 total = sizeof(std::atomic<fp8wire::u32>);
    for (const fp8wire::manifest_entry& entry : tensors.entries()) {
      total = (total + 63) / 64 * 64;
      offsets_.push_back(total);
      sizes_.push_back(entry.bytes);
      total += entry.bytes;
    }
    pages_ = shared_pages(static_cast<std::size_t>(total));
  }
  std::span<std::byte> bytes(std::size_t entry) const noexcept {
    return {pages_.data() + offsets_[entry], static_cast<std::size_t>(sizes_[entry])};
  }
  /// Puts one rank's entries in their places, taken back from its layout where it has one. `last`: of `tp` ranks.
  fp8wire::error put(const fp8wire::manifest& tensors, const fp8wire::host_store<>& store, const rank_layout& layout,
                     const std::vector<fp8wire::kept_part>& parts, int tp, int rank, bool& last) const {
    std::vector<std::byte> codes;
    std::vector<fp8wire::u64> scales;
    for (std::size_t e = 0; e < tensors.entries().size(); ++e) {
      const std::byte* from = store.bytes(e).data();
      const fp8wire::manifest_entry& entry = tensors.entries()[e];
      if (!layout.empty() && entry.what == fp8wire::role::codes)
        if (fp8wire::error wrong = layout.canonical(e, codes, scales)) return wrong;
      if (!layout.empty() && entry.what == fp8wire::role::codes) from = codes.data();
      if (!layout.empty() && entry.what == fp8wire::role::scales)
        from = reinterpret_cast<const std::byte*>(scales.data());
      if (!parts[e].rectangles.empty()) place(from, e, parts[e], entry.dtype);
      else if (rank == 0 && !bytes(e).empty()) std::memcpy(bytes(e).data(), from, bytes(e).size());
    }
    auto& arrived = *reinterpret_cast<std::atomic<fp8wire::u32>*>(pages_.data());
    const fp8wire::u32 before = arrived.fetch_add(1, std::memory_order_acq_rel), ranks = static_cast<fp8wire::u32>(tp);
    last = before % ranks == ranks - 1;
    return {};
  }

 private:
  void place(const std::byte* from, std::size_t entry, const fp8wire::kept_part& part,
             fp8wire::dtype type) const noexcept {
    const std::size_t size = static_cast<std::size_t>(fp8wire::bit_width(type)) / 8,
                      matrix = static_cast<std::size_t>(part.rows * part.cols) * size;
    std::byte* to = bytes(entry).data();
    for (std::size_t done = 0; done < sizes_[entry]; done += matrix, to += matrix)
      for (const fp8wire::slice& one : part.rectangles)
        for (fp8wire::i64 row = one.row; row < one.row + one.rows; ++row) {
          const std::size_t width = static_cast<std::size_t>(one.cols) * size;
          std::memcpy(to + static_cast<std::size_t>(row * part.cols + one.col) * size, from, width);
          from += width;
        }
  }
  std::vector<fp8wire::u64> offsets_, sizes_;
  shared_pages pages_;
};
static_assert(std::atomic<fp8wire::u32>::is_always_lock_free);

}  // namespace programs
#endif
