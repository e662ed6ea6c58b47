// SPDX-License-Identifier: Apache-2.0
/// An engine that believes everything it is sent: fused parameters, shuffled codes, swizzled scales, captured pointers.
///
/// It loads by name, fuses, derives kernel layouts and serves, checking nothing, as engines do; whoever tests a check
/// points it at this one. Its layouts are the library's own.
#ifndef FP8WIRE_TESTING_TOY_ENGINE_HPP
#define FP8WIRE_TESTING_TOY_ENGINE_HPP
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/testing/toy_model.hpp>
#include <fp8wire/wire/conditions/derived_state.hpp>
#include <fp8wire/wire/conditions/geometry.hpp>
#include <fp8wire/wire/conditions/self_check.hpp>

FP8WIRE_ABI_BEGIN
namespace testing {

/// Names of the pair that an engine keeps a tensor in: fused, or its own.
inline std::string engine_name(std::string_view sent) {
  std::string fused = fused_with(sent);
  return fused.empty() ? std::string(sent) : fused;
}

/// One engine parameter of several parts, canonical and as its kernel reads it.
template <any_recipe Recipe, layout Codes, layout Scales> class toy_parameter {
 public:
  using stored = stored_t<Recipe>;

  toy_parameter(std::string name, i64 batch, i64 rows, i64 cols)
      : name_(std::move(name)),
        extents_{batch, rows, cols},
        grid_{batch, scale_rows<typename Recipe::block>(rows), scale_cols<typename Recipe::block>(cols)},
        codes_(static_cast<std::size_t>(batch * rows * cols)),
        scales_(static_cast<std::size_t>(grid_.batch * grid_.rows * grid_.cols)),
        kernel_codes_(static_cast<std::size_t>(laid_codes().size())),
        kernel_scales_(static_cast<std::size_t>(laid_scales().size())) {}

  const std::string& name() const noexcept { return name_; }

  /// `weight` becomes rows [row, row + its rows) of matrix `batch`.
  void take(const manifest& tensors, const std::string& weight, i64 batch, i64 row) {
    const std::size_t entry = static_cast<std::size_t>(tensors.find(weight));
    parts_.push_back({static_cast<u32>(entry), batch, row, tensors.entries()[entry].shape[0]});
  }
  void list(derived_state& book) {
    code_number_ = book.list(name_ + " (codes)");
    scale_number_ = book.list(name_ + " (scales)");
  }

  /// From checkpoint tensors to the fused canonical pair; here geometry goes wrong.
  void fuse(const entry_bytes& loaded, fault kind) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const part& one = parts_[p];
      const matrix_view<const u8> codes = codes_of(loaded, one);
      const matrix_view<const stored> scales = scales_of(loaded, one);
      const part& place = kind == fault::swap_gate_up && is_gate_up() ? parts_[p ^ 1] : one;
      const i64 shift = kind == fault::shift_shard && name_.find("qkv") != name_.npos && p == 0 ? 64 : 0;
      for (i64 row = 0; row < codes.rows; ++row)
        for (i64 col = 0; col < codes.cols; ++col)
          codes_[offset(extents_, place.batch, place.row + row, col)] = codes((row + shift) % codes.rows, col);
      const bool by_columns = (kind == fault::transpose && name_.find("down_proj") != name_.npos) ||
                              (kind == fault::transpose_square && name_.find("o_proj") != name_.npos);
      const i64 height = detail::block_extent(Recipe::block::rows, extents_.rows);
      for (i64 row = 0; row < scales.rows; ++row)
        for (i64 col = 0; col < scales.cols; ++col) {
          // The same bytes, taken as cols x rows: whatever its shape says afterwards, every view succeeds.
          const i64 from = by_columns ? col * scales.rows + row : row * scales.cols + col;
          scales_[offset(grid_, place.batch, place.row / height + row, col)] = scales.data[from];
        }
    }
  }

  /// From the canonical pair to what the kernel reads; here derived state goes stale. Answers what the book says.
  error derive(derived_state& book, u64 version, fault kind) {
    const bool hit = version > 1;  // the first version is always right
    if (kind == fault::moved_pointer && hit) {
      std::vector<u8> elsewhere(kernel_codes_);
      kernel_codes_.swap(elsewhere);
    }
    relayout(canonical_codes(), laid_codes());
    error wrong = book.made(code_number_, kernel_codes_.data(), version);
    if (kind == fault::double_finalize && hit &&
        laid_codes().size() == extents_.batch * extents_.rows * extents_.cols) {
      std::vector<u8> scratch(static_cast<std::size_t>(extents_.rows * extents_.cols));
      relayout_in_place<Codes>(
          laid_out<row_major, u8>{kernel_codes_.data(), extents_.batch, extents_.rows, extents_.cols}, scratch.data());
      if (error twice = book.made(code_number_, kernel_codes_.data(), version); twice && !wrong) wrong = twice;
    }
    if (kind == fault::repack && hit && extents_.rows % 16 == 0) {
      std::vector<u8> scratch(static_cast<std::size_t>(extents_.rows * extents_.cols));
      relayout_in_place<mapped_rows<row_major, shuffle_rows<16>>>(
          laid_out<row_major, u8>{kernel_codes_.data(), extents_.batch, extents_.rows, extents_.cols}, scratch.data());
    }
    if (kind == fault::stale_derived && hit) return wrong;
    relayout(canonical_scales(), laid_scales());
    if (error other = book.made(scale_number_, kernel_scales_.data(), version); other && !wrong) wrong = other;
    return wrong;
  }

  /// C5: what the kernel reads, against what was loaded, part by part.
  error check_places(const manifest& tensors, const entry_bytes& loaded) const {
    const auto live = values_of<Recipe>(laid_codes(), laid_scales());
    for (const part& one : parts_) {
      const matrix_view<const u8> codes = codes_of(loaded, one);
      const auto sent = values_of<Recipe>(codes, scales_of(loaded, one));
      const auto probes = geometry_probes({1, codes.rows, codes.cols}, Recipe::block::rows, Recipe::block::cols);
      if (error wrong = check_geometry(tensors.entries()[one.entry].name, probes, sent,
                                       [&](i64, i64 row, i64 col) { return live(one.batch, one.row + row, col); }))
        return wrong;
    }
    return {};
  }
  /// C6: what the kernel reads, against what the canonical pair gives.
  error check_layouts() const {
    if (error wrong = check_derived(name_ + " (codes)", canonical_codes(), laid_codes())) return wrong;
    return check_derived(name_ + " (scales)", canonical_scales(), laid_scales());
  }
  /// C6: the product of one part by the kernel.
  error check_product(const manifest& tensors, const entry_bytes& loaded, u32 entry) const {
    const auto live = values_of<Recipe>(laid_codes(), laid_scales());
    for (const part& one : parts_) {
      if (one.entry != entry) continue;
      const matrix_view<const u8> codes = codes_of(loaded, one);
      return self_check<Recipe>(
          tensors.entries()[entry].name, {codes, scales_of(loaded, one)},
          [&](std::span<const float> input, std::span<float> output) {
            for (i64 row = 0; row < codes.rows; ++row) {
              float sum = 0;
              for (i64 col = 0; col < codes.cols; ++col)
                sum += live(one.batch, one.row + row, col) * input[static_cast<std::size_t>(col)];
              output[static_cast<std::size_t>(row)] = sum;
            }
          },
          1e-4f);
    }
    return {};
  }

 private:
  struct part {
    u32 entry;
    i64 batch, row, rows;
  };
  bool is_gate_up() const noexcept { return parts_.size() >= 2 && name_.find("gate_up") != name_.npos; }
  static std::size_t offset(const matrix_extents& of, i64 b, i64 row, i64 col) noexcept {
    return static_cast<std::size_t>((b * of.rows + row) * of.cols + col);
  }
  matrix_view<const u8> codes_of(const entry_bytes& loaded, const part& one) const noexcept {
    return dense(reinterpret_cast<const u8*>(loaded[one.entry].data()), one.rows, extents_.cols);
  }
  matrix_view<const stored> scales_of(const entry_bytes& loaded, const part& one) const noexcept {
    return dense(reinterpret_cast<const stored*>(loaded[one.entry + 1].data()),
                 scale_rows<typename Recipe::block>(one.rows), grid_.cols);
  }
  laid_out<row_major, const u8> canonical_codes() const noexcept {
    return {codes_.data(), extents_.batch, extents_.rows, extents_.cols};
  }
  laid_out<row_major, const stored> canonical_scales() const noexcept {
    return {scales_.data(), grid_.batch, grid_.rows, grid_.cols};
  }
  laid_out<Codes, u8> laid_codes() noexcept {
    return {kernel_codes_.data(), extents_.batch, extents_.rows, extents_.cols};
  }
  laid_out<Codes, const u8> laid_codes() const noexcept {
    return {kernel_codes_.data(), extents_.batch, extents_.rows, extents_.cols};
  }
  laid_out<Scales, stored> laid_scales() noexcept {
    return {kernel_scales_.data(), grid_.batch, grid_.rows, grid_.cols};
  }
  laid_out<Scales, const stored> laid_scales() const noexcept {
    return {kernel_scales_.data(), grid_.batch, grid_.rows, grid_.cols};
  }

  std::string name_;
  matrix_extents extents_, grid_;
  std::vector<part> parts_;
  std::vector<u8> codes_;
  std::vector<stored> scales_;
  std::vector<u8> kernel_codes_;
  std::vector<stored> kernel_scales_;
  u32 code_number_ = 0, scale_number_ = 0;
};

/// The engine of the toy model. Threads: one at a time.
class toy_engine {
 public:
  /// Expects: the manifest outlives the engine.
  explicit toy_engine(const manifest& tensors) : tensors_(tensors) {
    for (const manifest_entry& entry : tensors.entries()) loaded_.emplace_back(static_cast<std::size_t>(entry.bytes));
    const std::string at = "model.layers.0.";
    qkv_.take(tensors, at + "self_attn.q_proj.weight", 0, 0);
    qkv_.take(tensors, at + "self_attn.k_proj.weight", 0, 256);
    qkv_.take(tensors, at + "self_attn.v_proj.weight", 0, 384);
    o_.take(tensors, at + "self_attn.o_proj.weight", 0, 0);
    other_o_.take(tensors, "model.layers.1.self_attn.o_proj.weight", 0, 0);
    gate_up_.take(tensors, at + "mlp.gate_proj.weight", 0, 0);
    gate_up_.take(tensors, at + "mlp.up_proj.weight", 0, 256);
    down_.take(tensors, at + "mlp.down_proj.weight", 0, 0);
    for (i64 e = 0; e < toy_experts; ++e) {
      const std::string expert = at + "mlp.experts." + std::to_string(e) + ".";
      w13_.take(tensors, expert + "gate_proj.weight", e, 0);
      w13_.take(tensors, expert + "up_proj.weight", e, 32);
      w2_.take(tensors, expert + "down_proj.weight", e, 0);
    }
    each([&](auto& one) { one.list(book_); });
    for (std::size_t i = 0; i < std::size(rotary_); ++i) rotary_[i] = 1.0f / static_cast<float>(i + 1);
    rotary_sum_ = checksum(rotary_, sizeof(rotary_));
  }
  toy_engine(const toy_engine&) = delete;
  toy_engine& operator=(const toy_engine&) = delete;

  u64 serving() const noexcept { return serving_; }
  const entry_bytes& loaded() const noexcept { return loaded_; }
  const derived_state& derived() const noexcept { return book_; }
  /// The loader: overwrites the checkpoint tensor, whatever version and whoever's it is.
  void load(u32 entry, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size() && i < loaded_[entry].size(); ++i) loaded_[entry][i] = bytes[i];
  }
  /// Fuses, derives and serves. Answers what its own book of derived state says, and serves all the same.
  error finalize(u64 version, fault kind = fault::none) {
    error first;
    each([&](auto& one) {
      one.fuse(loaded_, kind);
      if (error wrong = one.derive(book_, version, kind); wrong && !first) first = std::move(wrong);
    });
    if (kind == fault::changed_constant) rotary_[3] += 1.0f;
    serving_ = version;
    return first;
  }
  /// Graphs are captured: derived buffers must stay where they are.
  void capture() noexcept { book_.capture(); }

  /// Calls see(parameter) for each of the engine's FP8 parameters.
  template <class See> void each(const See& see) {
    see(qkv_), see(o_), see(other_o_), see(gate_up_), see(down_), see(w13_), see(w2_);
  }
  template <class See> void each(const See& see) const {
    see(qkv_), see(o_), see(other_o_), see(gate_up_), see(down_), see(w13_), see(w2_);
  }

  /// Parameters and buffers by their live names and dtypes.
  std::vector<tensor_spec> state(fault kind = fault::none) const {
    std::vector<tensor_spec> live;
    for (const manifest_entry& entry : tensors_.entries()) {
      std::string name = engine_name(entry.name);
      bool known = false;
      for (const tensor_spec& one : live) known = known || one.name == name;
      if (known) continue;
      const bool swallowed = kind == fault::swallowed_layer && name.find("mlp.gate_up") != name.npos;
      live.push_back(
          {std::move(name), swallowed && entry.what == role::codes ? dtype::bf16 : entry.dtype, entry.shape});
    }
    live.push_back({"model.rotary_emb.inv_freq", dtype::f32, {static_cast<i64>(std::size(rotary_))}});
    live.push_back({"model.layers.0.mlp.w13_scale_swizzled", dtype::uint8, {toy_experts, 512}});
    if (kind == fault::unlisted_buffer)
      live.push_back({"model.layers.0.mlp.gate.e_score_bias", dtype::f32, {toy_experts}});
    return live;
  }
  std::span<const std::byte> rotary() const noexcept { return std::as_bytes(std::span(rotary_)); }
  u64 rotary_sum() const noexcept { return rotary_sum_; }

 private:
  template <class Codes, class Scales> using block_parameter = toy_parameter<toy_block, Codes, Scales>;
  template <class Codes, class Scales> using mx_parameter = toy_parameter<toy_mx, Codes, Scales>;

  const manifest& tensors_;
  entry_bytes loaded_;
  derived_state book_;
  block_parameter<row_major, row_major> qkv_{"model.layers.0.self_attn.qkv_proj.weight", 1, 512, 256};
  block_parameter<row_major, deepgemm_fp32> o_{"model.layers.0.self_attn.o_proj.weight", 1, 256, 256};
  block_parameter<row_major, deepgemm_fp32> other_o_{"model.layers.1.self_attn.o_proj.weight", 1, 256, 256};
  block_parameter<trtllm_fp8_block_w13_codes, up_first> gate_up_{"model.layers.0.mlp.gate_up_proj.weight", 1, 512, 256};
  block_parameter<row_major, row_major> down_{"model.layers.0.mlp.down_proj.weight", 1, 192, 320};
  mx_parameter<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales> w13_{"model.layers.0.mlp.experts.gate_up", toy_experts,
                                                                     64, 64};
  mx_parameter<trtllm_mxfp8_codes, trtllm_mxfp8_scales> w2_{"model.layers.0.mlp.experts.down", toy_experts, 64, 32};
  float rotary_[16] = {};
  u64 rotary_sum_ = 0, serving_ = 0;
};

}  // namespace testing
FP8WIRE_ABI_END
#endif
