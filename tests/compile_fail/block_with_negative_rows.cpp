// SPDX-License-Identifier: Apache-2.0
// -1 is no way to say "all rows".
// EXPECT: a block has positive extents: use fp8wire::block<128, 128>, or fp8wire::whole
#include <fp8wire/quant/block.hpp>

#ifdef FIXED
inline constexpr int rows = fp8wire::block<fp8wire::whole, 1>::rows;
#else
inline constexpr int rows = fp8wire::block<-1, 1>::rows;
#endif
