// SPDX-License-Identifier: Apache-2.0
// A kernel that reads swizzled scales cannot be handed canonical ones, nor canonical code be handed swizzled ones.
// EXPECT-gcc: could not convert .*row_major.* to .*laid_out<.*tiled_scales<128, 32>
// EXPECT-clang: no known conversion from .*row_major.* to .*swizzle_128x4
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/swizzle.hpp>

using fp8wire::u8;
void kernel(fp8wire::laid_out<fp8wire::swizzle_128x4, const u8> scales);

void serve(fp8wire::laid_out<fp8wire::row_major, u8> scales, u8* scratch) {
#ifdef FIXED
  kernel(fp8wire::relayout_in_place<fp8wire::swizzle_128x4>(scales, scratch));
#else
  static_cast<void>(scratch);
  kernel(scales);
#endif
}
