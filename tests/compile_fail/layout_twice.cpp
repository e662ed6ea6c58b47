// SPDX-License-Identifier: Apache-2.0
// A shuffle is part of a layout's type, and no layout has it twice.
// EXPECT: rows are mapped by this map already, and twice is not once
#include <fp8wire/layout/trtllm.hpp>

#ifdef FIXED
using shuffled = fp8wire::trtllm_mxfp8_codes;
#else
using shuffled = fp8wire::mapped_rows<fp8wire::trtllm_mxfp8_codes, fp8wire::swap_halves, fp8wire::shuffle_rows<32>>;
#endif
static_assert(shuffled::mapping{1, 32, 1}.size() == 32);
