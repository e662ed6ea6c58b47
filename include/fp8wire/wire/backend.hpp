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
#include <fp8wire/quant/quantize.hpp>

FP8WIRE_ABI_BEGIN

/// What a backend is told about one pair it quantizes.
struct quantize_job {
  u32 item = 0;  // whose status word it is
  u32 codes_piece = 0, scales_piece = 0;  // whose checksums they are
  i64 index_base = 0;  // logical index of the first element, where the pair is a piece of a tensor
};

/// prepare: once, with the numbers of pieces and items. begin: a new update; sums and statuses are those of no update
/// yet.
/// quantize: weights into a slot (template over recipe and input). copy: bytes that are ready into a slot.
/// seal: everything enqueued so far is on the stream when it returns. collect: waits for the stream; then sums() and
/// statuses() hold. Expects: collect once an update, after every piece was written.
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
  Executor run_;
  std::vector<u64> sums_;
  std::vector<i64> statuses_;
};

using serial_backend = host_backend<serial>;

FP8WIRE_ABI_END
#endif
