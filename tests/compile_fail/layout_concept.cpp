// SPDX-License-Identifier: Apache-2.0
// A layout of one's own that forgets to say what its padding holds.
// EXPECT-gcc: padding_bits
// EXPECT-clang: padding_bits
// EXPECT-nvcc: type constraint failed for "two_rows_apart"
#include <fp8wire/layout/pair_layout.hpp>

struct two_rows_apart {
  static constexpr std::string_view id = "mine";
#ifdef FIXED
  static constexpr fp8wire::u32 padding_bits = 0;
#endif
  static constexpr fp8wire::i64 packed = 1, col_run = fp8wire::whole_run, row_run = 1, row_step = 1;
  using mapping = fp8wire::row_major::mapping;
  static constexpr fp8wire::shape_check accepts(fp8wire::i64, fp8wire::i64, fp8wire::i64) noexcept { return {}; }
};
static_assert(fp8wire::pair_layout<fp8wire::row_major, two_rows_apart>::id == "row-major;mine");
