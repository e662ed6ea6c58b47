// SPDX-License-Identifier: Apache-2.0
// What every layout promises, checked on every built-in one: by brute force over many shapes.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>

using namespace fp8wire;

namespace {

// A layout that no engine reads, made only of what the concept asks for: users' layouts equal built-in ones.
struct diagonal_rows {
  static constexpr std::string_view id = "test-diagonal-rows";
  FP8WIRE_HD static constexpr i64 stored_rows(i64 rows) noexcept { return rows; }
  FP8WIRE_HD static constexpr i64 to(i64 rows, i64 row) noexcept { return rows - 1 - row; }
  FP8WIRE_HD static constexpr i64 from(i64 rows, i64 stored) noexcept { return rows - 1 - stored; }
  FP8WIRE_HD static constexpr shape_check accepts_rows(i64) noexcept { return {}; }
};

constexpr i64 row_extents[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64, 96, 100, 128, 129, 256, 300};
constexpr i64 col_extents[] = {0, 1, 2, 3, 4, 5, 7, 8, 12, 90, 127, 128, 129, 256, 260};

template <class Layout, class Check> void over_shapes(Check check) {
  for (const i64 rows : row_extents) {
    for (const i64 cols : col_extents) {
      for (const i64 batch : {0, 1, 3}) {
        if (rows * cols > 20000 || !Layout::accepts(batch, rows, cols).ok()) continue;
        CAPTURE(batch);
        CAPTURE(rows);
        CAPTURE(cols);
        check(typename Layout::mapping{batch, rows, cols});
      }
    }
  }
}

}  // namespace

#define LAYOUTS                                                                                                       \
  row_major, transposed, te_block_rowwise, te_block_columnwise, te_mxfp8_rowwise, te_mxfp8_columnwise, deepgemm_fp32, \
      packed_ue8m0, swizzle_128x4, swizzle_8x4, block_major_k<128>, block_major_k<4>, trtllm_mxfp8_codes,             \
      trtllm_mxfp8_scales, trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales, trtllm_fp8_block_codes,                   \
      trtllm_fp8_block_w13_codes, up_first,                                                                           \
      mapped_rows<row_major, pad_halves<128>, swap_halves, interleave_halves, shuffle_rows<32>>,                      \
      mapped_rows<swizzle_128x4, pad_halves<128>, swap_halves, interleave_halves, shuffle_rows<32>>,                  \
      mapped_rows<transposed, pad_rows<16>>, mapped_rows<packed_ue8m0, diagonal_rows>

TEST_CASE_TEMPLATE("every element has a place of its own, every other one is padding, and index undoes offset", Layout,
                   LAYOUTS) {
  over_shapes<Layout>([](const auto& m) {
    std::vector<bool> taken(static_cast<std::size_t>(m.size()), false);
    bool inside = true, apart = true, inverse = true;
    for (i64 b = 0; b < m.batch; ++b) {
      for (i64 row = 0; row < m.rows; ++row) {
        for (i64 col = 0; col < m.cols; ++col) {
          const i64 at = m.offset({b, row, col});
          inside = inside && at >= 0 && at < m.size();
          if (!inside) break;
          apart = apart && !taken[static_cast<std::size_t>(at)];
          taken[static_cast<std::size_t>(at)] = true;
          inverse = inverse && m.index(at) == index3{b, row, col};
        }
      }
    }
    CHECK(inside);
    CHECK(apart);
    CHECK(inverse);
    bool padding = true;
    for (i64 at = 0; at < m.size(); ++at) {
      if (!taken[static_cast<std::size_t>(at)]) padding = padding && m.index(at).batch == -1;
    }
    CHECK(padding);
    CHECK(m.index(-1).batch == -1);
    CHECK(m.index(m.size()).batch == -1);
  });
}

TEST_CASE_TEMPLATE("matrices of a batch follow each other and all rows look alike", Layout, LAYOUTS) {
  over_shapes<Layout>([](const auto& m) {
    const typename Layout::mapping one{1, m.rows, m.cols};
    CHECK(m.size() == m.batch * one.size());
    CHECK(m.shape() == one.shape());
    CHECK(one.shape().size() * Layout::packed == one.size());
    bool follows = true, alike = true;
    for (i64 row = 0; row < m.rows; ++row) {
      for (i64 col = 0; col < m.cols; ++col) {
        const i64 at = one.offset({0, row, col});
        for (i64 b = 0; b < m.batch; ++b) follows = follows && m.offset({b, row, col}) == b * one.size() + at;
        alike = alike && at - one.offset({0, row, 0}) == one.offset({0, 0, col}) - one.offset({0, 0, 0});
      }
    }
    CHECK(follows);
    CHECK(alike);
  });
}

TEST_CASE_TEMPLATE("runs are as long as a layout says", Layout, LAYOUTS) {
  over_shapes<Layout>([](const auto& m) {
    bool cols_adjacent = true, rows_adjacent = true;
    const i64 unit = Layout::col_run == whole_run ? (m.cols > 0 ? m.cols : 1) : Layout::col_run;
    for (i64 row = 0; row < m.rows; ++row) {
      for (i64 col = 0; col < m.cols; ++col) {
        const i64 at = m.offset({0, row, col});
        if (col % unit != 0) cols_adjacent = cols_adjacent && at == m.offset({0, row, col - 1}) + 1;
        // The next row of the band's run: row + row_step, while both lie in one run.
        if (Layout::row_run == 1) continue;
        const i64 next = row + Layout::row_step;
        const bool same_run = Layout::row_run == whole_run ||
                              row / (Layout::row_run * Layout::row_step) == next / (Layout::row_run * Layout::row_step);
        if (same_run && next < m.rows) rows_adjacent = rows_adjacent && m.offset({0, next, col}) == at + unit;
      }
    }
    CHECK(cols_adjacent);
    CHECK(rows_adjacent);
  });
}

TEST_CASE_TEMPLATE("shapes that cannot be are refused before a size overflows", Layout, LAYOUTS) {
  constexpr i64 huge = i64{1} << 62;
  CHECK(!Layout::accepts(-1, 32, 128).ok());
  CHECK(!Layout::accepts(1, -32, 128).ok());
  CHECK(!Layout::accepts(1, 32, -128).ok());
  CHECK(!Layout::accepts(1, huge, 128).ok());
  CHECK(!Layout::accepts(1, 32, huge).ok());
  CHECK(!Layout::accepts(huge, 256, 128).ok());
  CHECK(!Layout::accepts(1, i64{1} << 32, i64{1} << 32).ok());
  CHECK(!Layout::accepts(i64{1} << 30, i64{1} << 20, i64{1} << 20).ok());
  const shape_check large = Layout::accepts(1, i64{1} << 28, i64{1} << 28);
  REQUIRE(large.ok());
  const typename Layout::mapping m{1, i64{1} << 28, i64{1} << 28};
  CHECK(m.size() == i64{1} << 56);  // 64 bits all the way
  const index3 last{0, (i64{1} << 28) - 1, (i64{1} << 28) - 1};
  CHECK(m.index(m.offset(last)) == last);
}

TEST_CASE("ids are pinned, since wire ids hash them") {
  CHECK(row_major::id == "row-major");
  CHECK(transposed::id == "col-major");
  CHECK(te_block_rowwise::id == "row-major-pad-1x4-fill-3F800000");
  CHECK(te_block_columnwise::id == "col-major-pad-4x1-fill-3F800000");
  CHECK(te_mxfp8_rowwise::id == "row-major-pad-128x4");
  CHECK(te_mxfp8_columnwise::id == "row-major-pad-4x128");
  CHECK(deepgemm_fp32::id == "col-major-pad-4x1");
  CHECK(packed_ue8m0::id == "packed-ue8m0");
  CHECK(swizzle_128x4::id == "swizzle-128x4");
  CHECK(swizzle_8x4::id == "swizzle-8x4");
  CHECK(block_major_k<128>::id == "block-major-k-128");
  CHECK(trtllm_mxfp8_w13_scales::id == "swap-halves>interleave-halves>shuffle-rows-32>swizzle-128x4");
  CHECK(trtllm_fp8_block_codes::id == "shuffle-rows-16>block-major-k-128");
  CHECK(mapped_rows<row_major, pad_halves<128>, pad_rows<16>>::id == "pad-halves-128>pad-rows-16>row-major");
}

TEST_CASE("no two layouts share an id") {
  std::set<std::string_view> ids;
  std::size_t count = 0;
  const auto add = [&]<class... Layouts>() { ((ids.insert(Layouts::id), ++count), ...); };
  add.operator()<LAYOUTS>();
  CHECK(ids.size() == count);
}

// Everything is a constant where its arguments are.
static_assert(row_major::mapping{2, 3, 4}.offset({1, 2, 3}) == 23);
static_assert(swizzle_128x4::mapping{1, 130, 6}.index(533) == index3{0, 33, 5});
static_assert(mapped_rows<swizzle_128x4, interleave_halves, shuffle_rows<32>>::mapping{1, 128, 4}.offset({0, 64, 0}) ==
              128);
static_assert(!block_major_k<128>::accepts(1, -1, 0).ok());
