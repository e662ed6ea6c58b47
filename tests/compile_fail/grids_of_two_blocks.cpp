// SPDX-License-Identifier: Apache-2.0
// Grids of different blocks have no scales in common to compare.
// EXPECT: grid_difference compares recipes of one block shape: give both the same block<Rows, Cols>
#include <fp8wire/quant/grid_difference.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>

using namespace fp8wire;
#ifdef FIXED
using other = presets::te_block_pow2::recipe;
#else
using other = presets::te_mxfp8::recipe;
#endif
bool same(matrix_view<const float> in) { return grid_difference<presets::te_block::recipe, other, float>(in).same(); }
