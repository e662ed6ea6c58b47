// SPDX-License-Identifier: Apache-2.0
/// The library's sender behind any_sender: the types that a pair has in memory are all that it is compiled for.
#ifndef FP8WIRE_EXAMPLES_REFIT_TYPED_SENDER_HPP
#define FP8WIRE_EXAMPLES_REFIT_TYPED_SENDER_HPP
#include <cstddef>
#include <utility>

#include <fp8wire/wire/sender.hpp>

#include "../common/layouts.hpp"
#include "any_sender.hpp"

namespace programs {

/// Stands for every rule that stores that type. Nobody asks it for a scale: the table's functions make them.
template <class Scale> struct any_rule : fp8wire::rules::multiplies {
  using stored = Scale;
  static constexpr std::string_view id = "any";
  static constexpr bool nan_poisons_amax = true;
  static constexpr fp8wire::scale_pair<Scale> make(float, fp8wire::limits) noexcept { return {}; }
};

/// chosen_layout, which only the backend looks at: layouts do not multiply the senders.
struct layout_by_name {};

/// The wire format of all presets with such blocks and such scales: one sender serves them, and only what encoding_of
/// says of the chosen one tells them apart. NaN and Inf are judged by the backend.
template <class Block, class Scale> struct program_wire {
  using recipe =
      fp8wire::recipe<fp8wire::e4m3, Block, any_rule<Scale>, fp8wire::numerics{.bad = fp8wire::nonfinite::as_tool}>;
  using layout = layout_by_name;
  struct described {
    std::string text;
    std::string_view view() const noexcept { return text; }
  };
  /// Of the preset whose sender was made last; a program makes one.
  static inline const quantizer* row = nullptr;
  static described encoding(float amax_floor) { return {encoding_of(*row, amax_floor).text}; }
  static fp8wire::u64 id(float amax_floor) { return encoding_of(*row, amax_floor).wire_id; }
  static auto tensors(std::string_view weight, const std::vector<fp8wire::i64>& shape) {
    return row->tensors(weight, shape);
  }
  template <class Function> static decltype(auto) with_layout(std::string_view, Function&& function) {
    return function.template operator()<layout_by_name>();
  }
};

/// A host backend that quantizes through the table's functions, which are compiled once for all programs.
class table_backend : public fp8wire::serial_backend {
 public:
  /// Expects: `seconds` outlives the backend; quantizing adds to it.
  table_backend(const sender_setup& setup, double& seconds) : setup_(setup), seconds_(&seconds) {}

  template <fp8wire::any_recipe Recipe, class In>
  fp8wire::error quantize(const fp8wire::quantize_job& job, fp8wire::matrix_view<const In> in,
                          fp8wire::pair_view<Recipe> out, float amax_floor, fp8wire::host_stream) {
    const auto start = std::chrono::steady_clock::now();
    const weights dense{fp8wire::input_traits<In>::stored_as, in.data, {in.batch, in.rows, in.cols}};
    const bool finite =
        setup_.row->quantize(dense, out.codes.data, out.scales.data, amax_floor, chosen_via_bf16, *setup_.threads);
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    record<Recipe>(job, out, {finite ? -1 : fp8wire::detail::first_nonfinite<In>(in)});
    return {};
  }
  /// Straight into the slot, unless another layout stands in between.
  template <fp8wire::any_recipe Recipe, class Layout, class In>
  fp8wire::error quantize_into(const fp8wire::quantize_job& job, fp8wire::matrix_view<const In> in, fp8wire::u8* codes,
                               std::byte* scales, float amax_floor, fp8wire::host_stream s) {
    if (chosen_layout == "canonical")
      return quantize<Recipe>(job, in, pair_at<Recipe>(in, codes, scales), amax_floor, s);
    const fp8wire::pair_view<Recipe> made = scratch_for<Recipe>(in);
    if (fp8wire::error wrong = quantize<Recipe>(job, in, made, amax_floor, s)) return wrong;
    return lay_out(job, made.codes.data, made.scales.data, {in.batch, in.rows, in.cols}, codes, scales);
  }
  template <fp8wire::any_recipe Recipe, class Layout>
  fp8wire::error forward_into(const fp8wire::quantize_job& job, fp8wire::const_pair_view<Recipe> pair,
                              fp8wire::u8* codes, std::byte* scales, fp8wire::host_stream s) {
    const bool canonical = chosen_layout == "canonical";
    const auto made = canonical ? pair_at<Recipe>(pair.codes, codes, scales) : scratch_for<Recipe>(pair.codes);
    if (fp8wire::error wrong = copy(job.codes_piece, made.codes.data, pair.codes, s)) return wrong;
    if (fp8wire::error wrong = copy(job.scales_piece, made.scales.data, pair.scales, s)) return wrong;
    if (canonical) return {};
    return lay_out(job, made.codes.data, made.scales.data, {pair.codes.batch, pair.codes.rows, pair.codes.cols}, codes,
                   scales);
  }
  fp8wire::error collect(fp8wire::host_stream) {
    for (std::size_t item = 0; item < statuses().size() && setup_.refuse_nonfinite; ++item)
      if (statuses()[item] >= 0)
        return fp8wire::make_error(fp8wire::errc::nonfinite, std::string(setup_.tensors->item_name(item)),
                                   "holds NaN or Inf, first at element " + std::to_string(statuses()[item]),
                                   fp8wire::condition::c9_scale_sanity);
    return {};
  }

 private:
  template <class Recipe, class View>
  static fp8wire::pair_view<Recipe> pair_at(const View& of, fp8wire::u8* codes, std::byte* scales) {
    using block = typename Recipe::block;
    return {fp8wire::dense(codes, of.rows, of.cols, of.batch),
            fp8wire::dense(reinterpret_cast<fp8wire::stored_t<Recipe>*>(scales), fp8wire::scale_rows<block>(of.rows),
                           fp8wire::scale_cols<block>(of.cols), of.batch)};
  }
  /// Kept from weight to weight.
  template <class Recipe, class View> fp8wire::pair_view<Recipe> scratch_for(const View& of) {
    const auto shape = pair_at<Recipe>(of, nullptr, nullptr);
    const std::size_t words =
        static_cast<std::size_t>(shape.scales.size()) * sizeof(fp8wire::stored_t<Recipe>) / sizeof(fp8wire::u64) + 1;
    if (codes_.size() < static_cast<std::size_t>(shape.codes.size()))
      codes_.resize(static_cast<std::size_t>(shape.codes.size()));
    if (scales_.size() < words) scales_.resize(words);
    return pair_at<Recipe>(of, codes_.data(), reinterpret_cast<std::byte*>(scales_.data()));
  }
  fp8wire::error lay_out(const fp8wire::quantize_job& job, const void* from_codes, const void* from_scales,
                         const fp8wire::matrix_extents& m, fp8wire::u8* codes, std::byte* scales) {
    const fp8wire::manifest_entry* entry = &setup_.tensors->entries()[setup_.tensors->items()[job.item].first_entry];
    const std::span<std::byte> codes_out{reinterpret_cast<std::byte*>(codes), static_cast<std::size_t>(entry[0].bytes)},
        scales_out{scales, static_cast<std::size_t>(entry[1].bytes)};
    if (fp8wire::error wrong =
            lay_out_pair(chosen_layout, *setup_.row, entry[0].name, m, from_codes, from_scales, codes_out, scales_out))
      return wrong;
    sum(job.codes_piece, codes_out);
    sum(job.scales_piece, scales_out);
    return {};
  }
  sender_setup setup_;
  double* seconds_;
  std::vector<fp8wire::u8> codes_;
  std::vector<fp8wire::u64> scales_;
};

template <class Wire> class typed_sender final : public any_sender {
 public:
  explicit typed_sender(const sender_setup& setup)
      : sender_(*setup.tensors, *setup.wire, *setup.transport, setup.amax_floor, table_backend(setup, seconds_)) {}
  fp8wire::error begin(fp8wire::u64 version) override { return sender_.begin(version); }
  fp8wire::error put(std::string_view weight, const weights& in) override {
    switch (in.type) {
      case fp8wire::dtype::bf16: return put_as<fp8wire::bf16>(weight, in);
      case fp8wire::dtype::f16: return put_as<fp8wire::fp16>(weight, in);
      default: return put_as<float>(weight, in);
    }
  }
  fp8wire::error forward(std::string_view weight, const fp8wire::matrix_extents& of, const fp8wire::u8* codes,
                         const void* scales) override {
    using recipe = typename Wire::recipe;
    using block = typename recipe::block;
    const fp8wire::const_pair_view<recipe> pair{
        fp8wire::dense(codes, of.rows, of.cols, of.batch),
        fp8wire::dense(static_cast<const fp8wire::stored_t<recipe>*>(scales), fp8wire::scale_rows<block>(of.rows),
                       fp8wire::scale_cols<block>(of.cols), of.batch)};
    return sender_.forward(weight, pair, {});
  }
  fp8wire::error keep(std::string_view name, std::span<const std::byte> bytes) override {
    return sender_.keep(name, bytes.data(), bytes.size(), {});
  }
  fp8wire::error finish() override { return sender_.finish({}); }
  void abort(const fp8wire::error& why) noexcept override { sender_.abort(why); }
  double quantize_seconds() noexcept override { return std::exchange(seconds_, 0.0); }

 private:
  template <class In> fp8wire::error put_as(std::string_view weight, const weights& in) {
    const auto& m = in.extents;
    return sender_.put(weight, fp8wire::dense(static_cast<const In*>(in.data), m.rows, m.cols, m.batch), {});
  }
  double seconds_ = 0;
  fp8wire::sender<Wire, fp8wire::shm_publisher, table_backend> sender_;
};

}  // namespace programs
#endif
