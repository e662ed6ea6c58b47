// SPDX-License-Identifier: Apache-2.0
/// The scale shapes that Transformer Engine keeps for its GEMMs, before any swizzle.
///
/// The engine allocates the padding uninitialised; its sharded cast fills the padding of FP32 scales with 1.0. These
/// write 1.0 (FP32) and 00 (E8M0), so that equal weights give equal buffers. A checkpoint wants the padding cropped:
/// relayout into row_major.
/// Source: Transformer Engine pytorch/tensor/float8_blockwise_tensor.py:162-211, mxfp8_tensor.py:139-176 at d0067d0.
#ifndef FP8WIRE_LAYOUT_TRANSFORMER_ENGINE_HPP
#define FP8WIRE_LAYOUT_TRANSFORMER_ENGINE_HPP
#include <fp8wire/layout/padded.hpp>

FP8WIRE_ABI_BEGIN

/// 128 x 128 blocks, FP32: [ceil(M/128), ceil(K/128) to 4].
using te_block_rowwise = row_major_padded<1, 4, f32::one>;
/// 128 x 128 blocks, FP32: [ceil(K/128), ceil(M/128) to 4]; the codes beside them are transposed.
using te_block_columnwise = col_major<4, 1, f32::one>;
/// 1 x 128 vectors, FP32: [ceil(K/128), M to 4], stored transposed.
using te_vector_rowwise = col_major<4, 1, f32::one>;
/// 128 x 1 vectors, FP32: [ceil(M/128), K to 4]; the codes beside them are transposed.
using te_vector_columnwise = row_major_padded<1, 4, f32::one>;
/// MXFP8, 1 x 32, E8M0: [M to 128, K/32 to 4]; swizzle_128x4 is a step of its own.
using te_mxfp8_rowwise = row_major_padded<128, 4>;
/// MXFP8, 32 x 1, E8M0: [M/32 to 4, K to 128]; the codes beside them are not transposed.
using te_mxfp8_columnwise = row_major_padded<4, 128>;

FP8WIRE_ABI_END
#endif
