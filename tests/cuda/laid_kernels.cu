// SPDX-License-Identifier: Apache-2.0
// What the sender's backend launches for wire formats in engines' layouts and for scales that span tiles, compiled with
// spills as errors.
#include <fp8wire/cuda/launch.cuh>
#include <fp8wire/layout/named_layouts.hpp>
#include <fp8wire/quant/kernel/packed_scales.hpp>
#include <fp8wire/quant/kernel/quantize_both.hpp>
#include <fp8wire/quant/kernel/spanning.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

namespace laid_kernels {

using namespace fp8wire;

template <class Task> using in_table = typename kernel::body_of<Task>::template from<kernel::task_table<Task>>;
template <class Preset, class In, class Codes, class Scales>
using quantize = in_table<kernel::quantize_task<typename Preset::recipe, In, Codes, Scales>>;
using rows = matrix_view<u8>;
template <class Entry> using codes = laid_out<typename Entry::pair::codes, u8>;
template <class Entry, class Value> using scales = laid_out<typename Entry::pair::scales, Value>;
using packed = kernel::packed_scales<packed_ue8m0>;
template <class In> using both = kernel::both_task<presets::te_mxfp8::recipe, presets::te_mxfp8_columnwise::recipe, In,
                                                   laid_out<swizzle_128x4, e8m0>, laid_out<te_mxfp8_columnwise, e8m0>>;
template <class In>
using both_ways = kernel::laid_body<kernel::both_body<kernel::one_task<both<In>>, both<In>>>;
template <class In> using matrix_scaled = kernel::spanning_task<recipe<e4m3, block<whole, whole>, rules::quotient>, In>;
template <class In>
using row_scaled = kernel::spanning_task<recipe<e4m3, block<1, whole>, rules::quotient_reciprocal>, In>;
using vllm = presets::vllm_block;
using mx = presets::te_mxfp8;

}  // namespace laid_kernels

#define FP8WIRE_KERNEL(name, ...)                                                                  \
  namespace laid_kernels {                                                                         \
  using name = __VA_ARGS__;                                                                        \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(laid_kernels::name::threads,                        \
                                               fp8wire::cuda::resident_blocks<laid_kernels::name>) \
      name(const __grid_constant__ laid_kernels::name::params params) {                            \
    fp8wire::cuda::run<laid_kernels::name>(params);                                                \
  }
#define FP8WIRE_EVERY_INPUT(name, preset, ...)                     \
  FP8WIRE_KERNEL(name##_bf16, quantize<preset, bf16, __VA_ARGS__>) \
  FP8WIRE_KERNEL(name##_fp16, quantize<preset, fp16, __VA_ARGS__>) \
  FP8WIRE_KERNEL(name##_fp32, quantize<preset, float, __VA_ARGS__>)
FP8WIRE_EVERY_INPUT(block_packed, vllm, rows, packed)
FP8WIRE_EVERY_INPUT(pow2_packed, presets::te_block_pow2, rows, packed)
FP8WIRE_EVERY_INPUT(mx_packed, mx, rows, packed)
FP8WIRE_EVERY_INPUT(row_packed, presets::te_row_block_pow2, rows, packed)
FP8WIRE_EVERY_INPUT(mx_swizzled, mx, rows, scales<layouts::cublas_128x4, e8m0>)
FP8WIRE_EVERY_INPUT(mx_padded, mx, rows, scales<layouts::te_rowwise_mxfp8, e8m0>)
FP8WIRE_EVERY_INPUT(block_deepgemm, vllm, rows, scales<layouts::deepgemm_fp32, float>)
FP8WIRE_EVERY_INPUT(row_padded, presets::te_row_block, rows, scales<layouts::te_rowwise_vector, float>)
FP8WIRE_EVERY_INPUT(mx_shuffled, mx, codes<layouts::trtllm_mxfp8>, scales<layouts::trtllm_mxfp8, e8m0>)
FP8WIRE_EVERY_INPUT(mx_w13, mx, codes<layouts::trtllm_mxfp8_moe_w13>, scales<layouts::trtllm_mxfp8_moe_w13, e8m0>)
FP8WIRE_EVERY_INPUT(block_w13, vllm, codes<layouts::trtllm_fp8_block_w13>,
                    scales<layouts::trtllm_fp8_block_w13, float>)
FP8WIRE_EVERY_INPUT(block_w2, vllm, codes<layouts::trtllm_fp8_block_w2>, matrix_view<float>)
FP8WIRE_EVERY_INPUT(block_up_first, vllm, codes<layouts::up_first_w13>, scales<layouts::up_first_w13, float>)
FP8WIRE_EVERY_INPUT(block_columns, vllm, codes<layouts::te_columnwise>, scales<layouts::te_columnwise, float>)
FP8WIRE_KERNEL(repeat_packed, in_table<kernel::spread_task<kernel::no_source, packed_ue8m0>>)
FP8WIRE_KERNEL(spread_packed, in_table<kernel::spread_task<matrix_view<const float>, packed_ue8m0>>)
FP8WIRE_KERNEL(pad_deepgemm, in_table<kernel::padding_task<deepgemm_fp32, float>>)
FP8WIRE_KERNEL(move_shuffled, in_table<kernel::relayout_task<matrix_view<const u8>, trtllm_mxfp8_codes, u8>>)
FP8WIRE_KERNEL(move_swizzled, in_table<kernel::relayout_task<matrix_view<const e8m0>, trtllm_mxfp8_w13_scales, e8m0>>)
FP8WIRE_KERNEL(both_ways_bf16, both_ways<bf16>)
FP8WIRE_KERNEL(both_ways_fp16, both_ways<fp16>)
FP8WIRE_KERNEL(both_ways_fp32, both_ways<float>)
FP8WIRE_KERNEL(clear_maxima, in_table<kernel::clear_step<row_scaled<bf16>>>)
FP8WIRE_KERNEL(make_scales, in_table<kernel::scale_step<row_scaled<bf16>>>)
FP8WIRE_KERNEL(matrix_amax_bf16, in_table<kernel::amax_step<matrix_scaled<bf16>>>)
FP8WIRE_KERNEL(matrix_amax_fp16, in_table<kernel::amax_step<matrix_scaled<fp16>>>)
FP8WIRE_KERNEL(matrix_amax_fp32, in_table<kernel::amax_step<matrix_scaled<float>>>)
FP8WIRE_KERNEL(matrix_cast_bf16, in_table<kernel::cast_step<matrix_scaled<bf16>>>)
FP8WIRE_KERNEL(matrix_cast_fp16, in_table<kernel::cast_step<matrix_scaled<fp16>>>)
FP8WIRE_KERNEL(matrix_cast_fp32, in_table<kernel::cast_step<matrix_scaled<float>>>)
FP8WIRE_KERNEL(row_amax_bf16, in_table<kernel::amax_step<row_scaled<bf16>>>)
FP8WIRE_KERNEL(row_amax_fp16, in_table<kernel::amax_step<row_scaled<fp16>>>)
FP8WIRE_KERNEL(row_amax_fp32, in_table<kernel::amax_step<row_scaled<float>>>)
FP8WIRE_KERNEL(row_cast_bf16, in_table<kernel::cast_step<row_scaled<bf16>>>)
FP8WIRE_KERNEL(row_cast_fp16, in_table<kernel::cast_step<row_scaled<fp16>>>)
FP8WIRE_KERNEL(row_cast_fp32, in_table<kernel::cast_step<row_scaled<float>>>)
