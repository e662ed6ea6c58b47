// SPDX-License-Identifier: Apache-2.0
/// The pairs of layouts that engines read, by name: the one list that programs, docs and tests share.
///
/// A name covers several pairs where an engine stores scales by block shape, or fused gate/up weights differently.
#ifndef FP8WIRE_LAYOUT_NAMED_LAYOUTS_HPP
#define FP8WIRE_LAYOUT_NAMED_LAYOUTS_HPP
#include <fp8wire/core/dtype.hpp>
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/pair_layout.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>

FP8WIRE_ABI_BEGIN

/// gate_up: the fused [gate; up] weight of a MoE layer (w13), gate first; plain: any other.
enum class weight_role : u8 { plain, gate_up };

/// What of a quantized weight decides which pair an engine wants; a block extent of 0 covers the matrix.
struct layout_use {
  i64 block_rows = 128, block_cols = 128;
  dtype scale = dtype::f32;  // as quantized: f32, bf16 or f8_e8m0
  weight_role role = weight_role::plain;
};

namespace layouts {
namespace detail {

constexpr bool has_block(const layout_use& use, i64 rows, i64 cols, dtype scale) noexcept {
  return use.block_rows == rows && use.block_cols == cols && use.scale == scale;
}
constexpr bool is_mxfp8(const layout_use& use) noexcept { return has_block(use, 1, 32, dtype::f8_e8m0); }
constexpr bool is_block_fp8(const layout_use& use) noexcept { return has_block(use, 128, 128, dtype::f32); }
constexpr bool is_tensor_fp8(const layout_use& use) noexcept { return has_block(use, 0, 0, dtype::f32); }

constexpr shape_check check_multiples(i64 rows, i64 row_multiple, i64 cols, i64 col_multiple) noexcept {
  const i64 next_rows = ceil_div(rows, row_multiple) * row_multiple;
  const i64 next_cols = ceil_div(cols, col_multiple) * col_multiple;
  if (rows != next_rows) return {"rows are not a multiple of what the kernel needs", rows, next_rows};
  if (cols != next_cols) return {"cols are not a multiple of what the kernel needs", cols, next_cols};
  return {};
}

}  // namespace detail

/// What an entry says unless it says otherwise: scales as quantized, one per block, every shape that the layouts take.
/// scale: the dtype that scales must have before they are laid out (convert_scales), where it is not the quantized one.
template <class Codes, class Scales, i64 RowMultiple = 1, i64 ColMultiple = 1> struct entry {
  using pair = pair_layout<Codes, Scales>;
  static constexpr bool scale_per_row = false;  // true: block scales are repeated for every row of the weight first
  static constexpr dtype scale(const layout_use& use) noexcept { return use.scale; }
  /// The dtype under which the laid-out scales are stored.
  static constexpr dtype stored_scale(dtype scale) noexcept { return Scales::packed == 4 ? dtype::int32 : scale; }
  static constexpr shape_check accepts(i64 batch, i64 rows, i64 cols) noexcept {
    if (const shape_check codes = Codes::accepts(batch, rows, cols); !codes.ok()) return codes;
    return detail::check_multiples(rows, RowMultiple, cols, ColMultiple);
  }
};

/// Checkpoints; DeepGEMM and TensorRT-LLM on SM90; MXFP8 loaders that swizzle themselves.
struct canonical : entry<row_major, row_major> {
  static constexpr std::string_view name = "canonical", scale_shape = "[rows, cols] of the scale grid";
  static constexpr bool reads(const layout_use&) noexcept { return true; }
};

/// MXFP8 of cuBLASLt, CUTLASS SM100/SM120, FlashInfer, torch._scaled_mm, vLLM, torchao.
struct cublas_128x4 : entry<row_major, swizzle_128x4> {
  static constexpr std::string_view name = "cublas-128x4", scale_shape = "[ceil(N/128) * ceil(K/128) * 512]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_mxfp8(use); }
};

/// MXFP8 of the low-latency trtllm-gen GEMM.
struct cublas_8x4 : entry<row_major, swizzle_8x4> {
  static constexpr std::string_view name = "cublas-8x4", scale_shape = "[ceil(N/8) * ceil(K/128) * 32]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_mxfp8(use); }
};

/// CUTLASS blockwise FP32, MN-major (its default; K-major is canonical).
struct cutlass_mn : entry<row_major, transposed> {
  static constexpr std::string_view name = "cutlass-mn", scale_shape = "[cols, rows] of the scale grid";
  static constexpr bool reads(const layout_use& use) noexcept { return use.scale == dtype::f32; }
};

/// DeepGEMM SM90 FP32, MN-major and TMA-aligned.
struct deepgemm_fp32 : entry<row_major, fp8wire::deepgemm_fp32> {
  static constexpr std::string_view name = "deepgemm-fp32", scale_shape = "[cols, rows to 4] of the scale grid";
  static constexpr bool reads(const layout_use& use) noexcept {
    return use.scale == dtype::f32 && use.block_cols == 128;
  }
};

/// DeepGEMM SM100: E8M0 packed in int32, one scale row per weight row; MXFP8 or powers of two of 128 columns.
struct deepgemm_ue8m0 : entry<row_major, packed_ue8m0> {
  static constexpr std::string_view name = "deepgemm-ue8m0";
  static constexpr std::string_view scale_shape = "[ceil(cols/4), N to 4], cols of the scale grid";
  static constexpr bool scale_per_row = true;
  static constexpr dtype scale(const layout_use&) noexcept { return dtype::f8_e8m0; }
  static constexpr bool reads(const layout_use& use) noexcept {
    return (use.scale == dtype::f8_e8m0 || use.scale == dtype::f32) && use.block_rows > 0 &&
           (use.block_cols == 32 || use.block_cols == 128);
  }
};

/// Transformer Engine and cuBLASLt on Hopper, 128 x 128.
struct te_rowwise : entry<row_major, te_block_rowwise> {
  static constexpr std::string_view name = "te-rowwise", scale_shape = "[ceil(N/128), ceil(K/128) to 4]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_block_fp8(use); }
};
/// The same with 1 x 128 vectors.
struct te_rowwise_vector : entry<row_major, te_vector_rowwise> {
  static constexpr std::string_view name = "te-rowwise", scale_shape = "[ceil(K/128), N to 4]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::has_block(use, 1, 128, dtype::f32); }
};
/// The same for MXFP8, before the swizzle.
struct te_rowwise_mxfp8 : entry<row_major, te_mxfp8_rowwise> {
  static constexpr std::string_view name = "te-rowwise", scale_shape = "[N to 128, K/32 to 4]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_mxfp8(use); }
};

/// Transformer Engine's columnwise operand, 128 x 128: transposed codes.
struct te_columnwise : entry<transposed, te_block_columnwise> {
  static constexpr std::string_view name = "te-columnwise", scale_shape = "[ceil(K/128), ceil(N/128) to 4]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_block_fp8(use); }
};
/// The same with 128 x 1 vectors: transposed codes.
struct te_columnwise_vector : entry<transposed, te_vector_columnwise> {
  static constexpr std::string_view name = "te-columnwise", scale_shape = "[ceil(N/128), K to 4]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::has_block(use, 128, 1, dtype::f32); }
};
/// The same for MXFP8 with 32 x 1 blocks: codes are not transposed.
struct te_columnwise_mxfp8 : entry<row_major, te_mxfp8_columnwise> {
  static constexpr std::string_view name = "te-columnwise", scale_shape = "[N/32 to 4, K to 128]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::has_block(use, 32, 1, dtype::f8_e8m0); }
};

/// FlashInfer mm_mxfp8 with the trtllm backend: N a multiple of 32, K of 256.
struct trtllm_mxfp8 : entry<trtllm_mxfp8_codes, trtllm_mxfp8_scales, 32, 256> {
  static constexpr std::string_view name = "trtllm-mxfp8", scale_shape = "[ceil(N/128) * ceil(K/128) * 512]";
  static constexpr bool reads(const layout_use& use) noexcept { return detail::is_mxfp8(use); }
};

/// trtllm-gen MXFP8 MoE, w13: 2I and H multiples of 128.
struct trtllm_mxfp8_moe_w13 : entry<trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales, 128, 128> {
  static constexpr std::string_view name = "trtllm-mxfp8-moe", scale_shape = "[2I * H/32], swizzled per expert";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_mxfp8(use) && use.role == weight_role::gate_up;
  }
};
/// The same, w2: H and I multiples of 128.
struct trtllm_mxfp8_moe_w2 : entry<trtllm_mxfp8_codes, trtllm_mxfp8_scales, 128, 128> {
  static constexpr std::string_view name = "trtllm-mxfp8-moe", scale_shape = "[H * I/32], swizzled per expert";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_mxfp8(use) && use.role == weight_role::plain;
  }
};

/// The same as SGLang makes it of canonical weights, w13: the halves are not swapped.
struct sglang_mxfp8_moe_w13 : entry<sglang_w13_codes, sglang_w13_scales, 128, 128> {
  static constexpr std::string_view name = "sglang-mxfp8-moe", scale_shape = trtllm_mxfp8_moe_w13::scale_shape;
  static constexpr bool reads(const layout_use& use) noexcept { return trtllm_mxfp8_moe_w13::reads(use); }
};
/// The same, w2: as trtllm-gen's.
struct sglang_mxfp8_moe_w2 : entry<trtllm_mxfp8_codes, trtllm_mxfp8_scales, 128, 128> {
  static constexpr std::string_view name = "sglang-mxfp8-moe", scale_shape = trtllm_mxfp8_moe_w2::scale_shape;
  static constexpr bool reads(const layout_use& use) noexcept { return trtllm_mxfp8_moe_w2::reads(use); }
};

/// SGLang per-tensor FP8 MoE, w13: one scale an expert, rows a multiple of 32.
struct sglang_fp8_moe_w13 : entry<sglang_w13_codes, row_major> {
  static constexpr std::string_view name = "sglang-fp8-moe", scale_shape = "[1, 1] an expert";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_tensor_fp8(use) && use.role == weight_role::gate_up;
  }
};
/// The same, w2.
struct sglang_fp8_moe_w2 : entry<trtllm_mxfp8_codes, row_major> {
  static constexpr std::string_view name = "sglang-fp8-moe", scale_shape = sglang_fp8_moe_w13::scale_shape;
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_tensor_fp8(use) && use.role == weight_role::plain;
  }
};

/// trtllm-gen DeepSeek block FP8 MoE, w13: I and H multiples of 128, codes [H/128, 2I, 128] per expert.
struct trtllm_fp8_block_w13 : entry<trtllm_fp8_block_w13_codes, up_first, 256, 128> {
  static constexpr std::string_view name = "trtllm-fp8-block", scale_shape = "[2I/128, H/128], up half first";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_block_fp8(use) && use.role == weight_role::gate_up;
  }
};
/// The same, w2: codes [I/128, H, 128] per expert.
struct trtllm_fp8_block_w2 : entry<trtllm_fp8_block_codes, row_major, 128, 128> {
  static constexpr std::string_view name = "trtllm-fp8-block", scale_shape = "[H/128, I/128]";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_block_fp8(use) && use.role == weight_role::plain;
  }
};

/// TensorRT-LLM w3_w1 and FlashInfer CUTLASS block FP8 MoE, w13: nothing but the halves swapped, I a multiple of 128.
struct up_first_w13 : entry<up_first, up_first, 256, 1> {
  static constexpr std::string_view name = "up-first", scale_shape = "[2I/128, ceil(H/128)], up half first";
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_block_fp8(use) && use.role == weight_role::gate_up;
  }
};
/// The same, every other weight: canonical.
struct up_first_w2 : entry<row_major, row_major> {
  static constexpr std::string_view name = "up-first", scale_shape = canonical::scale_shape;
  static constexpr bool reads(const layout_use& use) noexcept {
    return detail::is_block_fp8(use) && use.role == weight_role::plain;
  }
};

template <class... Entries> struct list {};

using all = list<canonical, cublas_128x4, cublas_8x4, cutlass_mn, deepgemm_fp32, deepgemm_ue8m0,  //
                 te_rowwise, te_rowwise_vector, te_rowwise_mxfp8,  //
                 te_columnwise, te_columnwise_vector, te_columnwise_mxfp8,  //
                 trtllm_mxfp8, trtllm_mxfp8_moe_w13, trtllm_mxfp8_moe_w2,  //
                 sglang_mxfp8_moe_w13, sglang_mxfp8_moe_w2, sglang_fp8_moe_w13, sglang_fp8_moe_w2,  //
                 trtllm_fp8_block_w13, trtllm_fp8_block_w2, up_first_w13, up_first_w2>;

namespace detail {
template <class Function, class... Entries> constexpr void each(list<Entries...>, Function&& function) {
  (function.template operator()<Entries>(), ...);
}
template <class Function, class... Entries>
constexpr bool first(list<Entries...>, std::string_view name, const layout_use& use, Function&& function) {
  return ((Entries::name == name && Entries::reads(use) && (function.template operator()<Entries>(), true)) || ...);
}
}  // namespace detail

/// Calls function.operator()<Entry>() for every entry, in the list's order.
template <class Function> constexpr void for_each(Function&& function) { detail::each(all{}, function); }

/// Calls function.operator()<Entry>() for the entry of that name that reads such a weight.
/// Returns false, calling nothing, where the name is unknown or its engine reads no such weight.
template <class Function> constexpr bool visit(std::string_view name, const layout_use& use, Function&& function) {
  return detail::first(all{}, name, use, function);
}

/// Whether any entry has that name.
constexpr bool is_known(std::string_view name) noexcept {
  bool known = false;
  for_each([&]<class Entry>() { known = known || Entry::name == name; });
  return known;
}

}  // namespace layouts
FP8WIRE_ABI_END
#endif
