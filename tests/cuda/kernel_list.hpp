// SPDX-License-Identifier: Apache-2.0
// The kernels that tests, budgets and the benchmark compile: one list, a name and a body each.
#ifndef FP8WIRE_TESTS_CUDA_KERNEL_LIST_HPP
#define FP8WIRE_TESTS_CUDA_KERNEL_LIST_HPP
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/swizzle.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/quant/kernel/checksum.hpp>
#include <fp8wire/quant/kernel/compare.hpp>
#include <fp8wire/quant/kernel/dequantize.hpp>
#include <fp8wire/quant/kernel/partial.hpp>
#include <fp8wire/quant/kernel/quantize_both.hpp>
#include <fp8wire/quant/kernel/quantize_bulk.hpp>
#include <fp8wire/quant/kernel/relayout.hpp>
#include <fp8wire/quant/presets/nemo.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/quant/rules/quotient.hpp>

namespace kernels {

using namespace fp8wire;

template <class Preset, class In, class Scales = matrix_view<stored_t<typename Preset::recipe>>>
using quantize_task = kernel::quantize_task<typename Preset::recipe, In, matrix_view<u8>, Scales>;
template <class Task> using one = kernel::quantize_body<kernel::one_task<Task>, Task>;
template <class Task> using table = kernel::quantize_body<kernel::task_table<Task>, Task>;
template <class Preset, class In> using one_of = one<quantize_task<Preset, In>>;
template <class Preset, class In> using table_of = table<quantize_task<Preset, In>>;
template <class Layout, class Preset, class In>
using fused_of = one<quantize_task<Preset, In, laid_out<Layout, stored_t<typename Preset::recipe>>>>;

using block_bf16 = one_of<presets::te_block, bf16>;
using block_bf16_table = table_of<presets::te_block, bf16>;
using block_pow2_bf16_table = table_of<presets::te_block_pow2, bf16>;
using block_fp16 = one_of<presets::te_block, fp16>;
using block_fp32 = one_of<presets::te_block, float>;
using block_e5m2_bf16 = one_of<presets::te_block_e5m2, bf16>;
using nemo_bf16 = one_of<presets::nemo_block, bf16>;
using vllm_fp32 = one_of<presets::vllm_block, float>;
using row_bf16 = one_of<presets::te_row_block, bf16>;
using mx_bf16 = one_of<presets::te_mxfp8, bf16>;
using mx_bf16_table = table_of<presets::te_mxfp8, bf16>;
using mx_fp32 = one_of<presets::te_mxfp8, float>;
using mx_fma_fp16 = one_of<presets::te_mxfp8_fma, fp16>;
using mx_column_bf16 = one_of<presets::te_mxfp8_columnwise, bf16>;
using mx_swizzled_bf16 = fused_of<swizzle_128x4, presets::te_mxfp8, bf16>;
using block_padded_bf16 = fused_of<te_block_rowwise, presets::te_block, bf16>;

using mx_bulk_bf16 = kernel::bulk_body<kernel::bulk_task<presets::te_mxfp8::recipe, bf16>>;
using mx_bulk_fp32 = kernel::bulk_body<kernel::bulk_task<presets::te_mxfp8::recipe, float>>;

using both_task = kernel::both_task<presets::te_mxfp8::recipe, presets::te_mxfp8_columnwise::recipe, bf16>;
using mx_both_bf16 = kernel::both_body<kernel::one_task<both_task>, both_task>;
using mx_both_bf16_table = kernel::both_body<kernel::task_table<both_task>, both_task>;

using tensor_recipe = recipe<e4m3, block<whole, whole>, rules::quotient>;
using tensor_task = kernel::partial_task<tensor_recipe, bf16>;
using tensor_amax_bf16 = kernel::partial_amax_body<kernel::one_task<tensor_task>, tensor_task>;
using tensor_cast_bf16 = kernel::partial_cast_body<kernel::one_task<tensor_task>, tensor_task>;
using tensor_scales = kernel::scales_body<kernel::scales_task<tensor_recipe, bf16>>;
using shard_task = kernel::partial_task<presets::te_sharded::recipe, float>;
using shard_amax_fp32 = kernel::partial_amax_body<kernel::one_task<shard_task>, shard_task>;
using shard_cast_fp32 = kernel::partial_cast_body<kernel::one_task<shard_task>, shard_task>;

using dequantize_task = kernel::dequantize_task<presets::te_block::recipe, bf16>;
using dequantize_block_bf16 = kernel::dequantize_body<kernel::one_task<dequantize_task>, dequantize_task>;
using dequantize_mx_task = kernel::dequantize_task<presets::te_mxfp8::recipe, float>;
using dequantize_mx_fp32 = kernel::dequantize_body<kernel::one_task<dequantize_mx_task>, dequantize_mx_task>;

template <class Layout, class Value> using relayout_to =
    kernel::relayout_body<kernel::relayout_task<matrix_view<const Value>, Layout, Value>>;
using relayout_swizzle = relayout_to<swizzle_128x4, e8m0>;
using relayout_packed = relayout_to<packed_ue8m0, e8m0>;
using relayout_deepgemm = relayout_to<deepgemm_fp32, float>;
using relayout_trtllm = relayout_to<trtllm_mxfp8_codes, u8>;
using padding_swizzle = kernel::padding_body<swizzle_128x4, e8m0>;

using compare_codes = kernel::compare_body<kernel::one_task<kernel::compare_task>>;
using checksum_pieces = kernel::checksum_body<kernel::one_task<kernel::checksum_task>>;

// clang-format off
#define FP8WIRE_TEST_KERNELS(K) \
  K(block_bf16) K(mx_bulk_bf16) K(mx_bulk_fp32) K(block_bf16_table) K(block_pow2_bf16_table) K(block_fp16) \
  K(block_fp32) K(block_e5m2_bf16) K(nemo_bf16) K(vllm_fp32) K(row_bf16) K(mx_bf16) K(mx_bf16_table) K(mx_fp32) \
  K(mx_fma_fp16) K(mx_column_bf16) K(mx_swizzled_bf16) K(block_padded_bf16) K(mx_both_bf16) K(mx_both_bf16_table) \
  K(tensor_amax_bf16) K(tensor_cast_bf16) K(tensor_scales) K(shard_amax_fp32) K(shard_cast_fp32) \
  K(dequantize_block_bf16) K(dequantize_mx_fp32) K(relayout_swizzle) K(relayout_packed) K(relayout_deepgemm) \
  K(relayout_trtllm) K(padding_swizzle) K(compare_codes) K(checksum_pieces)
// clang-format on

}  // namespace kernels
#endif
