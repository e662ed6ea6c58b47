// SPDX-License-Identifier: Apache-2.0
/// Who does a sender's work on bytes: quantize, copy and sum where the slots lie.
///
/// A backend only enqueues until collect. A CUDA backend keeps a job table and launches once a buffer in seal; the host
/// backend works at once.
#ifndef FP8WIRE_WIRE_BACKEND_HPP
#define FP8WIRE_WIRE_BACKEND_HPP
#include <span>
#include <vector>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/core/error.hpp>
#include <fp8wire/quant/quantize_into.hpp>

FP8WIRE_ABI_BEGIN

/// What a backend is told about one pair it quantizes.
struct quantize_job {
  u32 item = 0;  // whose status word it is
  u32 codes_piece = 0, scales_piece = 0;  // whose checksums they are
  i64 index_base = 0;  // logical index of the first element, where the pair is a piece of a tensor
  std::string_view weight = {};  // its name, for messages; alive as long as the update
};

namespace detail {

/// What is said of a scale that a packed layout cannot hold.
inline error scale_refused(std::string_view weight, const index3& block) {
  return make_error(errc::bad_scale, std::string(weight),
                    "the scale of block (" + std::to_string(block.batch) + ", " + std::to_string(block.row) + ", " +
                        std::to_string(block.col) + ") is no power of two that E8M0 holds",
                    condition::c9_scale_sanity);
}

}  // namespace detail

/// prepare: once, with the numbers of pieces and items. begin: a new update; sums and statuses are those of no update
/// yet.
/// quantize: weights into a slot (template over recipe and input). quantize_into<Recipe, Layout>(job, in, codes,
/// scales, floor, s) and forward_into<Recipe, Layout>(job, pair, codes, scales, s): the same, and canonical codes and
/// scales, into a slot's bytes in a pair of layouts; asked for by wire formats that have one only. A scale that such a
/// layout cannot hold is an error of theirs, or of collect where the work was only enqueued. copy: bytes that are ready
/// into a slot. seal: everything enqueued so far is on the stream when it returns. collect: waits for the stream;
/// then sums() and statuses() hold. Expects: collect once an update, after every piece was written.
template <class Backend, class Recipe, class Stream>
concept sender_backend =
    requires(Backend& b, const Backend& c, std::size_t n, const quantize_job& job, matrix_view<const bf16> in,
             pair_view<Recipe> out, matrix_view<const u8> bytes, u32 piece, u8* to, Stream s) {
      b.prepare(n, n);
      b.begin();
      { b.template quantize<Recipe>(job, in, out, 0.0f, s) } -> std::same_as<error>;
      { b.copy(piece, to, bytes, s) } -> std::same_as<error>;
      { b.seal(s) } -> std::same_as<error>;
      { b.collect(s) } -> std::same_as<error>;
      { c.sums() } -> std::same_as<std::span<const u64>>;
      { c.statuses() } -> std::same_as<std::span<const i64>>;
    };

/// On the host, block rows shared out by an executor.
template <executor Executor = serial> class host_backend {
 public:
  explicit host_backend(Executor run = Executor{}) : run_(std::move(run)) {}

  void prepare(std::size_t pieces, std::size_t items) {
    sums_.assign(pieces, 0);
    statuses_.assign(items, -1);
  }
  void begin() noexcept {
    for (i64& status : statuses_) status = -1;
  }
  template <any_recipe Recipe, class In, class Stream>
  error quantize(const quantize_job& job, matrix_view<const In> in, pair_view<Recipe> out, float amax_floor, Stream) {
    record<Recipe>(job, out, fp8wire::quantize<Recipe, In>(in, out, amax_floor, run_));
    return {};
  }
  /// The sum of a piece that lies in its slot.
  void sum(u32 piece, std::span<const std::byte> bytes) noexcept {
    sums_[piece] = checksum(bytes.data(), bytes.size());
  }
  /// Into another pair of layouts; scratch is kept for the next weight. Errors: bad_scale (C9) where E8M0 cannot hold a
  /// scale of a packed layout.
  template <any_recipe Recipe, class Layout, class In, class Stream>
  error quantize_into(const quantize_job& job, matrix_view<const In> in, u8* codes, std::byte* scales, float amax_floor,
                      Stream) {
    using scale = laid_scale_t<Recipe, Layout>;
    const auto out = laid_pair<Recipe, Layout>::of(codes, reinterpret_cast<scale*>(scales), in.batch, in.rows, in.cols);
    const std::size_t bytes = static_cast<std::size_t>(quantize_scratch_bytes<Recipe, Layout>(in.rows, in.cols));
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    const laid_status seen = fp8wire::quantize_into<Recipe, Layout, In>(in, out, scratch_, amax_floor, run_);
    if (!seen.finite() && statuses_[job.item] < 0) statuses_[job.item] = seen.first_nonfinite;
    sum_laid(job, out);
    return refused(job, seen.refused_scale);
  }
  template <any_recipe Recipe, class Layout, class Stream>
  error forward_into(const quantize_job& job, const_pair_view<Recipe> pair, u8* codes, std::byte* scales, Stream) {
    using scale = laid_scale_t<Recipe, Layout>;
    const auto& from = pair.codes;
    const auto out =
        laid_pair<Recipe, Layout>::of(codes, reinterpret_cast<scale*>(scales), from.batch, from.rows, from.cols);
    const std::size_t bytes = static_cast<std::size_t>(quantize_scratch_bytes<Recipe, Layout>(from.rows, from.cols));
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    relayout(from, out.codes);
    const index3 wrong = relayout_scales<Recipe, Layout>(pair, out.scales, scratch_);
    sum_laid(job, out);
    return refused(job, wrong);
  }
  /// Status and sums of a pair that lies in its slot, whoever quantized it.
  template <any_recipe Recipe> void record(const quantize_job& job, pair_view<Recipe> out, status seen) noexcept {
    if (!seen.finite() && statuses_[job.item] < 0) statuses_[job.item] = job.index_base + seen.first_nonfinite;
    sums_[job.codes_piece] = checksum(out.codes.data, static_cast<std::size_t>(out.codes.size()));
    sums_[job.scales_piece] =
        checksum(out.scales.data, static_cast<std::size_t>(out.scales.size()) * sizeof(stored_t<Recipe>));
  }
  /// Rows of any stride become dense bytes.
  template <class Value, class Stream> error copy(u32 piece, Value* to, matrix_view<const Value> from,
                                                  Stream) noexcept {
    const std::size_t bytes = static_cast<std::size_t>(from.size()) * sizeof(Value);
    const bool dense = from.col_stride == 1 && (from.rows <= 1 || from.row_stride == from.cols) &&
                       (from.batch <= 1 || from.batch_stride == from.rows * from.cols);
    if (dense) {
      sums_[piece] = copy_and_checksum(to, from.data, bytes);
      return {};
    }
    Value* at = to;
    for (i64 b = 0; b < from.batch; ++b)
      for (i64 row = 0; row < from.rows; ++row)
        for (i64 col = 0; col < from.cols; ++col) *at++ = from(b, row, col);
    sums_[piece] = checksum(to, bytes);
    return {};
  }
  template <class Stream> error seal(Stream) noexcept { return {}; }
  template <class Stream> error collect(Stream) noexcept { return {}; }
  std::span<const u64> sums() const noexcept { return sums_; }
  std::span<const i64> statuses() const noexcept { return statuses_; }

 private:
  template <class Pair> void sum_laid(const quantize_job& job, const Pair& out) noexcept {
    sums_[job.codes_piece] = checksum(out.codes.data, static_cast<std::size_t>(out.codes.size_bytes()));
    sums_[job.scales_piece] = checksum(out.scales.data, static_cast<std::size_t>(out.scales.size_bytes()));
  }
  static error refused(const quantize_job& job, const index3& block) {
    return block.batch < 0 ? error{} : detail::scale_refused(job.weight, block);
  }

  Executor run_;
  std::vector<std::byte> scratch_;
  std::vector<u64> sums_;
  std::vector<i64> statuses_;
};

using serial_backend = host_backend<serial>;

FP8WIRE_ABI_END
#endif
