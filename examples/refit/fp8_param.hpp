// SPDX-License-Identifier: Apache-2.0
/// `--fp8-param on`: the learners keep E4M3 parameters and FP32 masters, and nothing in between.
///
/// A round has two passes over the parameters, with a meeting of all learners after each: masters step and leave the
/// amaxes of their blocks; then, under scales made once from all amaxes, they become codes in memory that all share.
/// What is sent are those codes and scales as they lie there.
#ifndef FP8WIRE_EXAMPLES_REFIT_FP8_PARAM_HPP
#define FP8WIRE_EXAMPLES_REFIT_FP8_PARAM_HPP
#include <algorithm>
#include <array>
#include <atomic>

#include <fp8wire/model/masters.hpp>
#include <fp8wire/model/shards.hpp>
#include <fp8wire/quant/shard/refresh.hpp>

#include "../common/options.hpp"
#include "shared_pages.hpp"
#include "training.hpp"
#include "update_source.hpp"

namespace programs {

/// quant/shard of one preset over untyped memory.
struct shard_functions {
  const quantizer* row = nullptr;
  fp8wire::i64 (*amax)(fp8wire::dtype, const fp8wire::matrix_extents&, fp8wire::flat_range, const void* values,
                       fp8wire::u32* amaxes) = nullptr;
  fp8wire::scale_changes (*scales)(fp8wire::dtype, const fp8wire::matrix_extents&, const fp8wire::u32* amaxes,
                                   void* scales, float* operands, float amax_floor) = nullptr;
  fp8wire::i64 (*cast)(fp8wire::dtype, const fp8wire::matrix_extents&, fp8wire::flat_range, const void* values,
                       const float* operands, fp8wire::u8* codes) = nullptr;
};
shard_functions shard_functions_of(const quantizer& row);

/// Everything that a run's learners keep of the quantized tensors. Made before they are forked; off: holds nothing.
class fp8_parameters {
 public:
  fp8_parameters() = default;
  fp8_parameters(const std::vector<source_tensor>& source, const format& chosen, const refit_settings& settings)
      : source_(&source),
        chosen_(&chosen),
        functions_(shard_functions_of(*chosen.preset)),
        seed_(settings.seed),
        learners_(settings.learners),
        at_(source.size(), -1) {
    std::size_t total = align(sizeof(fp8wire::refresh_counts) * static_cast<std::size_t>(learners_));
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (!source[i].quantized) continue;
      parameter one;
      one.source = i;
      one.of = must(fp8wire::extents_of(source[i].spec.name, source[i].spec.shape));
      one.elements = one.of.batch * one.of.rows * one.of.cols;
      const quantizer& preset = *chosen.preset;
      one.blocks = one.of.batch * preset.scale_rows(one.of.rows) * preset.scale_cols(one.of.cols);
      one.scale_bytes = one.blocks * fp8wire::bit_width(preset.stored) / 8;
      // What a model of another dtype would hold: FP32 checkpoints of BF16 models are rounded first.
      one.model_dtype =
          chosen.via_bf16 && source[i].spec.dtype == fp8wire::dtype::f32 ? fp8wire::dtype::bf16 : source[i].spec.dtype;
      const auto take = [&](fp8wire::i64 bytes) {
        const std::size_t offset = total;
        total += align(static_cast<std::size_t>(bytes));
        return offset;
      };
      one.codes = take(one.elements);
      one.scales = take(one.scale_bytes);
      one.operands = take(one.blocks * 4);
      one.amaxes = take(one.blocks * 4 * learners_);
      for (fp8wire::i64 rank = 0; rank < learners_; ++rank) {
        const fp8wire::i64 share = one.elements / learners_, start = share * rank;
        one.ranges.push_back({start, rank + 1 == learners_ ? one.elements - start : share});
      }
      must(fp8wire::check_shards(source[i].spec.name, one.elements, one.ranges));
      at_[i] = static_cast<std::ptrdiff_t>(parameters_.size());
      parameters_.push_back(std::move(one));
    }
    memory_ = shared_pages(total);
  }
  bool on() const noexcept { return functions_.amax != nullptr; }

  /// In a learner's own process: its masters, exactly the checkpoint's weights.
  fp8wire::error start(int rank) {
    rank_ = rank;
    std::vector<fp8wire::master_shard> shards;
    for (parameter& one : parameters_) {
      one.masters.resize(static_cast<std::size_t>(one.mine(rank_).length));
      shards.push_back({name(one), one.elements, one.mine(rank_), one.masters, {}, one.elements + one.scale_bytes});
    }
    fp8wire::exact_start exact(std::move(shards));
    for (const parameter& one : parameters_) {
      const source_tensor& from = (*source_)[one.source];
      if (fp8wire::error wrong = exact.copy(from.spec.name, from.spec.dtype, from.bytes)) return wrong;
    }
    started_ = exact.report();
    return exact.finish();
  }
  /// What this learner's start cost.
  const fp8wire::start_report& started() const noexcept { return started_; }

  /// First pass: steps the masters up to a version and leaves this learner's amaxes.
  /// Errors: nonfinite, unless the tool's bytes for NaN and Inf are wanted.
  fp8wire::error step(fp8wire::u64 version, double rate, workers& threads) {
    std::atomic<fp8wire::i64> changed = 0;
    std::vector<fp8wire::i64> nonfinite(parameters_.size(), -1);
    threads.run(static_cast<fp8wire::i64>(parameters_.size()), [&](fp8wire::i64 job) {
      parameter& one = parameters_[static_cast<std::size_t>(job)];
      fp8wire::u32* amaxes = at<fp8wire::u32>(one.amaxes) + one.blocks * rank_;
      std::fill(amaxes, amaxes + one.blocks, fp8wire::u32{0});
      const fp8wire::i64 first = one.mine(rank_).start;
      fp8wire::i64 moved = 0;
      for (std::size_t i = 0; i < one.masters.size() && rate != 0; ++i) {
        float master = one.masters[i];
        for (fp8wire::u64 s = version_; s < version; ++s)
          master = stepped(master, rate, seed_, one.source, s, static_cast<fp8wire::u64>(first) + i);
        moved += fp8wire::bits_of(master) != fp8wire::bits_of(one.masters[i]) ? 1 : 0;
        one.masters[i] = master;
      }
      changed += moved;
      fp8wire::i64& bad = nonfinite[static_cast<std::size_t>(job)];
      for (fp8wire::i64 piece = 0; piece < pieces(one); ++piece)
        in_model_dtype(one, piece, [&](fp8wire::flat_range range, const void* values) {
          const fp8wire::i64 found = functions_.amax(one.model_dtype, one.of, range, values, amaxes);
          if (bad < 0) bad = found;
        });
    });
    version_ = version;
    counts(rank_) = {};
    counts(rank_).masters_changed = changed;
    for (const parameter& one : parameters_) counts(rank_).masters += one.mine(rank_).length;
    for (std::size_t i = 0; i < parameters_.size() && chosen_->refuse_nonfinite; ++i)
      if (nonfinite[i] >= 0)
        return fp8wire::make_error(fp8wire::errc::nonfinite, name(parameters_[i]),
                                   "holds NaN or Inf, first at element " + std::to_string(nonfinite[i]),
                                   fp8wire::condition::c9_scale_sanity);
    return {};
  }
  /// The leader, after everybody's first pass: the maximum of all amaxes, and scales of all blocks.
  void make_scales() {
    for (const parameter& one : parameters_) {
      fp8wire::u32* amaxes = at<fp8wire::u32>(one.amaxes);
      for (fp8wire::i64 other = 1; other < learners_; ++other)
        for (fp8wire::i64 i = 0; i < one.blocks; ++i) amaxes[i] = (std::max)(amaxes[i], amaxes[one.blocks * other + i]);
      const fp8wire::scale_changes found = functions_.scales(one.model_dtype, one.of, amaxes, at<std::byte>(one.scales),
                                                             at<float>(one.operands), chosen_->amax_floor);
      counts(0).scales += one.blocks;
      counts(0).scales_changed += found.changed;
      counts(0).blocks_moved += found.moved;
    }
  }
  /// Second pass, after make_scales: this learner's codes of one tensor of the checkpoint.
  void cast(std::size_t tensor, workers& threads) {
    const parameter& one = of_tensor(tensor);
    std::atomic<fp8wire::i64> changed = 0;
    threads.run(pieces(one), [&](fp8wire::i64 piece) {
      in_model_dtype(one, piece, [&](fp8wire::flat_range range, const void* values) {
        changed += functions_.cast(one.model_dtype, one.of, range, values, at<float>(one.operands),
                                   at<fp8wire::u8>(one.codes) + range.start);
      });
    });
    counts(rank_).codes_changed += changed;
  }

  const fp8wire::matrix_extents& extents(std::size_t tensor) const { return of_tensor(tensor).of; }
  const fp8wire::u8* codes(std::size_t tensor) const { return at<fp8wire::u8>(of_tensor(tensor).codes); }
  const std::byte* scales(std::size_t tensor) const { return at<std::byte>(of_tensor(tensor).scales); }
  /// Of all learners, once they have done both passes.
  fp8wire::refresh_counts counted() const {
    fp8wire::refresh_counts sum;
    for (int rank = 0; rank < learners_; ++rank) {
      const fp8wire::refresh_counts& one = counts(rank);
      sum += one;
    }
    return sum;
  }

 private:
  struct parameter {
    std::size_t source = 0;
    fp8wire::matrix_extents of;
    fp8wire::dtype model_dtype{};
    fp8wire::i64 elements = 0, blocks = 0, scale_bytes = 0;
    std::size_t codes = 0, scales = 0, operands = 0, amaxes = 0;  // offsets into the shared memory
    std::vector<fp8wire::flat_range> ranges;                     // by learner
    std::vector<float> masters;                                  // of this learner's range
    const fp8wire::flat_range& mine(int rank) const { return ranges[static_cast<std::size_t>(rank)]; }
  };
  static constexpr fp8wire::i64 piece_elements = 16384;

  static std::size_t align(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  fp8wire::i64 pieces(const parameter& one) const { return fp8wire::ceil_div(one.mine(rank_).length, piece_elements); }
  /// Calls use(range, values) with a piece of the masters as the model's dtype has them.
  template <class Use> void in_model_dtype(const parameter& one, fp8wire::i64 piece, const Use& use) const {
    const fp8wire::flat_range& mine = one.mine(rank_);
    const fp8wire::i64 from = piece * piece_elements;
    const fp8wire::flat_range range{mine.start + from, (std::min)(piece_elements, mine.length - from)};
    const auto rounded = [&]<class Value>(Value) {
      std::array<Value, static_cast<std::size_t>(piece_elements)> values;
      for (std::size_t i = 0; i < static_cast<std::size_t>(range.length); ++i)
        values[i] = fp8wire::from_float<Value>(one.masters[static_cast<std::size_t>(from) + i]);
      use(range, values.data());
    };
    if (one.model_dtype == fp8wire::dtype::bf16) rounded(fp8wire::bf16{});
    else if (one.model_dtype == fp8wire::dtype::f16) rounded(fp8wire::fp16{});
    else rounded(float{});
  }
  const std::string& name(const parameter& one) const { return (*source_)[one.source].spec.name; }
  const parameter& of_tensor(std::size_t tensor) const { return parameters_[static_cast<std::size_t>(at_[tensor])]; }
  template <class Value> Value* at(std::size_t offset) const noexcept {
    return reinterpret_cast<Value*>(memory_.data() + offset);
  }
  fp8wire::refresh_counts& counts(int rank) const noexcept { return at<fp8wire::refresh_counts>(0)[rank]; }

  const std::vector<source_tensor>* source_ = nullptr;
  const format* chosen_ = nullptr;
  shard_functions functions_;
  fp8wire::u64 seed_ = 0, version_ = 1;
  fp8wire::start_report started_;
  int learners_ = 1, rank_ = 0;
  std::vector<std::ptrdiff_t> at_;  // by tensor of the checkpoint: its parameter, or -1
  std::vector<parameter> parameters_;
  shared_pages memory_;
};

}  // namespace programs
#endif
