// SPDX-License-Identifier: Apache-2.0
// Moving between layouts: against one element at a time, with poison where nothing may be read or written.
#include "oracle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>

using namespace fp8wire;

namespace {

template <class T> T element(i64 number) {
  const auto mixed = static_cast<u32>(number) * 2654435761u + 12345u;
  T value{};
  std::memcpy(&value, &mixed, sizeof(T));
  return value;
}

// A buffer in Layout, one element at a time; padding as given.
template <class Layout, class T> std::vector<T> laid(i64 batch, i64 rows, i64 cols, T padding) {
  const typename Layout::mapping m{batch, rows, cols};
  std::vector<T> out(static_cast<std::size_t>(m.size()), padding);
  for (i64 b = 0; b < batch; ++b)
    for (i64 row = 0; row < rows; ++row)
      for (i64 col = 0; col < cols; ++col)
        out[static_cast<std::size_t>(m.offset({b, row, col}))] = element<T>((b * rows + row) * cols + col);
  return out;
}

struct batch_shape {
  i64 batch, rows, cols;
};
constexpr batch_shape shapes[] = {{1, 0, 0},    {0, 32, 4},   {1, 0, 8},    {2, 8, 0},   {1, 1, 1},
                                  {2, 3, 5},    {1, 8, 8},    {2, 32, 4},   {1, 64, 16}, {3, 32, 130},
                                  {2, 128, 16}, {1, 160, 37}, {2, 256, 40}, {1, 130, 9}, {1, 96, 300}};

// A layout without its type, so that what is checked about all pairs of them compiles once.
template <class T> struct any_layout {
  std::string_view id;
  T padding;
  bool (*takes)(const batch_shape&);
  std::vector<T> (*laid_with)(const batch_shape&, T padding);
};
template <class T, class Layout>
constexpr any_layout<T> without_type{
    Layout::id, static_cast<T>(Layout::padding_bits),
    [](const batch_shape& s) { return Layout::accepts(s.batch, s.rows, s.cols).ok(); },
    [](const batch_shape& s, T padding) { return laid<Layout, T>(s.batch, s.rows, s.cols, padding); }};

template <class T> struct way {
  any_layout<T> from, to;
  void (*move)(const T* from, T* to, const batch_shape&);
  i64 (*verify)(const T* from, const T* to, const batch_shape&);
};
template <class T, class From, class To>
constexpr way<T> way_between{without_type<T, From>, without_type<T, To>,
                             [](const T* from, T* to, const batch_shape& s) {
                               relayout(laid_out<From, const T>{from, s.batch, s.rows, s.cols},
                                        laid_out<To, T>{to, s.batch, s.rows, s.cols});
                             },
                             [](const T* from, const T* to, const batch_shape& s) {
                               return verify_relayout(laid_out<From, const T>{from, s.batch, s.rows, s.cols},
                                                      laid_out<To, const T>{to, s.batch, s.rows, s.cols});
                             }};

template <class T> void check_way(const way<T>& one) {
  CAPTURE(one.from.id);
  CAPTURE(one.to.id);
  for (const batch_shape& shape : shapes) {
    if (!one.from.takes(shape) || !one.to.takes(shape)) continue;
    CAPTURE(shape.batch);
    CAPTURE(shape.rows);
    CAPTURE(shape.cols);
    const std::vector<T> source = one.from.laid_with(shape, static_cast<T>(0x6E));  // poisoned padding
    const std::vector<T> expected = one.to.laid_with(shape, one.to.padding);
    // Old bytes everywhere, and four guards behind the end.
    std::vector<T> target(expected.size() + 4, static_cast<T>(0x2A));
    one.move(source.data(), target.data(), shape);
    CHECK(std::vector<T>(target.end() - 4, target.end()) == std::vector<T>(4, static_cast<T>(0x2A)));
    CHECK(one.verify(source.data(), target.data(), shape) == -1);
    target.resize(expected.size());
    CHECK(target == expected);
    if (!target.empty()) {
      const std::size_t at = target.size() * 2 / 3;
      target[at] = static_cast<T>(target[at] + 1);
      CHECK(one.verify(source.data(), target.data(), shape) == static_cast<i64>(at));
    }
  }
}

template <class T, class From, class... To> void check_from() {
  for (const way<T>& one : {way_between<T, From, To>...}) check_way(one);
}
template <class T, class... Layouts> void check_all() { (check_from<T, Layouts, Layouts...>(), ...); }

std::string message_of(void (*call)()) {
  try {
    call();
  } catch (const precondition_error& wrong) {
    return wrong.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every layout of bytes into every other, padding written and never read") {
  check_all<u8, row_major, transposed, te_mxfp8_rowwise, te_block_columnwise, packed_ue8m0, swizzle_128x4, swizzle_8x4,
            block_major_k<128>, trtllm_mxfp8_w13_codes, trtllm_mxfp8_w13_scales, trtllm_fp8_block_codes,
            mapped_rows<swizzle_8x4, pad_halves<16>, swap_halves>, mapped_rows<transposed, shuffle_rows<16>>>();
}

TEST_CASE_TEMPLATE("wider elements take the same ways", T, u16, u32) {
  check_all<T, row_major, transposed, te_block_columnwise, swizzle_128x4, block_major_k<128>,
            mapped_rows<transposed, shuffle_rows<16>>>();
}

TEST_CASE_TEMPLATE("squares, tiles, bands and ragged edges of larger matrices, past the caches and through them", T, u8,
                   u32) {
  constexpr T poison = static_cast<T>(0xAAAAAAAAu);
  // The last two are large enough to be streamed.
  for (const auto& shape : {std::pair<i64, i64>{512, 260}, {384, 129}, {290, 515}, {1040, 528}, {784, 340}}) {
    const i64 rows = shape.first, cols = shape.second;
    const std::vector<T> in = laid<row_major, T>(1, rows, cols, 0);
    const auto both_ways = [&]<class Layout>() {
      CAPTURE(Layout::id);
      std::vector<T> out(static_cast<std::size_t>(typename Layout::mapping{1, rows, cols}.size()), poison);
      std::vector<T> back(in.size(), poison);
      relayout(dense(in.data(), rows, cols), laid_out<Layout, T>{out.data(), 1, rows, cols});
      CHECK(out == laid<Layout, T>(1, rows, cols, static_cast<T>(Layout::padding_bits)));
      relayout(laid_out<Layout, T>{out.data(), 1, rows, cols}, dense(back.data(), rows, cols));
      CHECK(back == in);
    };
    both_ways.template operator()<transposed>();
    both_ways.template operator()<packed_ue8m0>();
    both_ways.template operator()<swizzle_128x4>();
    both_ways.template operator()<swizzle_8x4>();
    both_ways.template operator()<te_block_columnwise>();
    both_ways.template operator()<mapped_rows<swizzle_128x4, swap_halves>>();
    both_ways.template operator()<mapped_rows<transposed, swap_halves>>();
  }
}

TEST_CASE("strided views: what lies between their rows and columns is neither read nor written") {
  constexpr i64 batch = 2, rows = 37, cols = 19, row_stride = 50, batch_stride = 37 * 50 + 11;
  for (const i64 col_stride : {i64{1}, i64{2}}) {
    CAPTURE(col_stride);
    std::vector<u8> source(static_cast<std::size_t>(batch * batch_stride), 0xEE), target(source.size(), 0x55),
        kept = target;
    const matrix_view<u8> in{source.data(), rows, cols, row_stride, batch, batch_stride, col_stride};
    const matrix_view<u8> out{target.data(), rows, cols, row_stride, batch, batch_stride, col_stride};
    const matrix_view<u8> expected{kept.data(), rows, cols, row_stride, batch, batch_stride, col_stride};
    for (i64 b = 0; b < batch; ++b) {
      for (i64 row = 0; row < rows; ++row) {
        for (i64 col = 0; col < cols; ++col)
          in(b, row, col) = expected(b, row, col) = static_cast<u8>(element<u8>((b * rows + row) * cols + col) & 0x7F);
      }
    }
    const auto through = [&]<class Layout>() {
      CAPTURE(Layout::id);
      std::vector<u8> buffer(static_cast<std::size_t>(typename Layout::mapping{batch, rows, cols}.size()), 0xAA);
      const laid_out<Layout, u8> middle{buffer.data(), batch, rows, cols};
      relayout(in, middle);
      for (i64 at = 0; at < middle.size(); ++at) CHECK(buffer[static_cast<std::size_t>(at)] < 0x80);  // no poison
      std::fill(target.begin(), target.end(), u8{0x55});
      relayout(middle, out);
      CHECK(target == kept);
    };
    through.operator()<row_major>();
    through.operator()<transposed>();
    through.operator()<swizzle_128x4>();
    through.operator()<packed_ue8m0>();
    through.operator()<block_major_k<4>>();
  }
}

TEST_CASE("in place with one matrix of scratch: the bytes of one expert at a time, and of out of place") {
  constexpr i64 experts = 3, rows = 128, cols = 128;
  const std::vector<u8> in = laid<row_major, u8>(experts, rows, cols, 0);
  const auto check = [&]<class Layout>() {
    CAPTURE(Layout::id);
    std::vector<u8> batched = in, single = in, apart(in.size());
    std::vector<u8> scratch(static_cast<std::size_t>(relayout_scratch_bytes<u8>(rows, cols)), 0xAA);
    const laid_out<Layout, u8> done =
        relayout_in_place<Layout>(laid_out<row_major, u8>{batched.data(), experts, rows, cols}, scratch.data());
    for (i64 e = 0; e < experts; ++e)
      relayout_in_place<Layout>(laid_out<row_major, u8>{single.data() + e * rows * cols, 1, rows, cols},
                                scratch.data());
    relayout(laid_out<row_major, const u8>{in.data(), experts, rows, cols},
             laid_out<Layout, u8>{apart.data(), experts, rows, cols});
    CHECK(batched == single);
    CHECK(batched == apart);
    CHECK(done.data == batched.data());
    // To the layout it has already: nothing, not even scratch is asked for.
    relayout_in_place<Layout>(done, static_cast<u8*>(nullptr));
    CHECK(batched == apart);
    relayout_in_place<row_major>(done, scratch.data());
    CHECK(batched == in);
  };
  CHECK(relayout_scratch_bytes<u8>(rows, cols) == rows * cols);
  CHECK(relayout_scratch_bytes<float>(rows, cols) == 4 * rows * cols);
  check.operator()<transposed>();
  check.operator()<up_first>();
  check.operator()<trtllm_mxfp8_w13_codes>();
  check.operator()<trtllm_mxfp8_w13_scales>();
  check.operator()<trtllm_fp8_block_w13_codes>();
  check.operator()<block_major_k<128>>();
  check.operator()<swizzle_128x4>();
}

TEST_CASE("codes are transposed in place: every shape, wherever buffer and scratch begin") {
  struct row {
    i64 rows, cols;
  };
  std::vector<row> all;
  for (const i64 extent : {1, 2, 15, 16, 17, 63, 64, 65, 80, 95, 128, 145, 192, 200}) all.push_back({extent, extent});
  for (const i64 rows : {1, 2, 16, 63, 64, 65, 130, 192, 320}) {
    for (const i64 cols : {1, 3, 64, 100, 127, 128, 129, 257, 384}) all.push_back({rows, cols});
  }
  // Too large for the cache: lines are streamed where they are whole. One panel, more columns than rows, the reverse.
  for (const row& at : {row{64, 16500}, {1088, 1024}, {1024, 1090}, {1152, 960}, {2112, 520}, {1100, 1000}})
    all.push_back(at);
  for (const row& at : all) {
    for (const i64 shift : {0, 16, 37}) {
      for (const i64 scratch_shift : {shift, i64{3}}) {
        const i64 batch = at.rows * at.cols > 200000 ? 1 : 2, matrix = at.rows * at.cols;
        // Large ones are slow under sanitizers; where the scratch begins makes no difference to them.
        if (batch == 1 && scratch_shift != shift) continue;
        CAPTURE(at.rows);
        CAPTURE(at.cols);
        CAPTURE(shift);
        CAPTURE(scratch_shift);
        const std::vector<u8> in = laid<row_major, u8>(batch, at.rows, at.cols, 0);
        std::vector<u8> room(static_cast<std::size_t>(batch * matrix + 192), 0x5C), work(room.size(), 0x5C);
        // From a multiple of 64 on; guards before and behind.
        const auto begin = [](std::vector<u8>& bytes, i64 by) {
          return bytes.data() + (128 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) +
                 static_cast<std::size_t>(by);
        };
        u8 *const data = begin(room, shift), *const scratch = begin(work, scratch_shift);
        const auto guarded = [](const std::vector<u8>& bytes, const u8* from, i64 size) {
          for (const u8* byte = bytes.data(); byte != bytes.data() + bytes.size(); ++byte) {
            if ((byte < from || byte >= from + size) && *byte != 0x5C) return false;
          }
          return true;
        };
        std::copy(in.begin(), in.end(), data);
        const laid_out<row_major, u8> canonical{data, batch, at.rows, at.cols};
        const laid_out<transposed, u8> done = relayout_in_place<transposed>(canonical, scratch);
        CHECK(verify_relayout(laid_out<row_major, const u8>{in.data(), batch, at.rows, at.cols}, done) == -1);
        relayout_in_place<row_major>(done, scratch);
        CHECK(std::equal(in.begin(), in.end(), data));
        CHECK(guarded(room, data, batch * matrix));
        CHECK(guarded(work, scratch, matrix));
      }
    }
  }
}

TEST_CASE("lines that are streamed begin where cache lines do, wherever the buffer begins") {
  const auto check = [&]<class Layout>(i64 rows, i64 cols) {
    CAPTURE(Layout::id);
    const std::vector<u8> in = laid<row_major, u8>(1, rows, cols, 0), expected = laid<Layout, u8>(1, rows, cols, 0);
    for (const std::size_t shift : {0u, 1u, 16u, 48u, 63u}) {
      CAPTURE(shift);
      std::vector<u8> to(in.size() + 64, 0x5C), back(to);
      relayout(dense(in.data(), rows, cols), laid_out<Layout, u8>{to.data() + shift, 1, rows, cols});
      CHECK(std::equal(expected.begin(), expected.end(), to.begin() + static_cast<std::ptrdiff_t>(shift)));
      relayout(laid_out<Layout, u8>{to.data() + shift, 1, rows, cols}, dense(back.data() + shift, rows, cols));
      CHECK(std::equal(in.begin(), in.end(), back.begin() + static_cast<std::ptrdiff_t>(shift)));
      for (const std::vector<u8>& bytes : {to, back}) {
        for (std::size_t at = 0; at < bytes.size(); ++at)
          if (at < shift || at >= shift + in.size()) CHECK(bytes[at] == 0x5C);
      }
    }
  };
  check.operator()<transposed>(576, 640);
  check.operator()<transposed>(640, 500);
  check.operator()<mapped_rows<transposed, shuffle_rows<32>>>(576, 512);
  // Between columns and blocks of columns: a line must not reach into the next block.
  std::vector<u8> in = laid<transposed, u8>(1, 576, 640, 0);
  for (const std::size_t shift : {0u, 16u}) {
    std::vector<u8> to(in.size() + 64, 0x5C);
    const laid_out<block_major_k<128>, u8> blocks{to.data() + shift, 1, 576, 640};
    relayout(laid_out<transposed, const u8>{in.data(), 1, 576, 640}, blocks);
    CHECK(verify_relayout(laid_out<transposed, const u8>{in.data(), 1, 576, 640}, blocks) == -1);
  }
}

TEST_CASE("strips are the same in registers of every width") {
  std::vector<u8> in(64 * 80);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = element<u8>(static_cast<i64>(i));
  const auto check = [&](detail::strip_function strip) {
    alignas(64) u8 out[16 * 192];
    i64 line_at[16];
    for (i64 i = 0; i < 16; ++i) line_at[i] = (i * 5 % 16) * 192;  // lines may lie in any order
    std::fill(std::begin(out), std::end(out), u8{0x5C});
    strip(in.data() + 7, 80, out, line_at);
    for (i64 line = 0; line < 16; ++line) {
      for (i64 row = 0; row < 192; ++row)
        CHECK(out[line_at[line] + row] == (row < 64 ? in[static_cast<std::size_t>(7 + row * 80 + line)] : 0x5C));
    }
  };
  check(detail::transpose_strip<false>);
  check(detail::transpose_strip<true>);
  check(detail::best_strip<false>());
  check(detail::best_strip<true>());
}

TEST_CASE("rows in place, in the least scratch there can be, between any two orders of them") {
  const auto check = [&]<class From, class To, class Value>(i64 rows, i64 cols) {
    CAPTURE(From::id);
    CAPTURE(To::id);
    CAPTURE(rows);
    CAPTURE(cols);
    std::vector<Value> buffer = laid<From, Value>(2, rows, cols, Value{});
    std::vector<Value> scratch(static_cast<std::size_t>(rows * cols) + 4, static_cast<Value>(0x5C));
    relayout_in_place<To>(laid_out<From, Value>{buffer.data(), 2, rows, cols}, scratch.data());
    CHECK(buffer == laid<To, Value>(2, rows, cols, Value{}));
    CHECK(std::vector<Value>(scratch.end() - 4, scratch.end()) == std::vector<Value>(4, static_cast<Value>(0x5C)));
  };
  using shuffled = mapped_rows<row_major, shuffle_rows<16>>;
  for (const i64 cols : {1, 2, 3, 100}) {
    for (const i64 rows : {2, 4, 6, 34}) check.operator()<row_major, up_first, u8>(rows, cols);
    for (const i64 rows : {16, 48, 320}) {
      check.operator()<row_major, shuffled, u8>(rows, cols);
      check.operator()<shuffled, up_first, u16>(rows, cols);
      check.operator()<up_first, row_major, u32>(rows, cols);
    }
    check.operator()<row_major, trtllm_mxfp8_w13_codes, u8>(96, cols);
    check.operator()<trtllm_mxfp8_w13_codes, trtllm_mxfp8_codes, u32>(96, cols);
  }
}

TEST_CASE("what cannot be moved is refused before a byte is touched") {
  CHECK(message_of([] {
          std::vector<u8> a(64), b(64);
          relayout(laid_out<row_major, u8>{a.data(), 1, 8, 8}, laid_out<transposed, u8>{b.data(), 1, 8, 7});
        }) == "relayout: cols of source and target differ: got 7, expected 8");
  CHECK(message_of([] {
          std::vector<u8> a(64);
          relayout(laid_out<row_major, u8>{a.data(), 1, 4, 8}, laid_out<transposed, u8>{a.data() + 31, 1, 4, 8});
        }) == "relayout: source and target overlap; the second one's distance in bytes: got 31, expected 32");
  CHECK(message_of([] {
          std::vector<u8> a(64);
          relayout(laid_out<row_major, u8>{a.data(), 1, 4, 8}, laid_out<transposed, u8>{a.data() + 32, 1, 4, 8});
        }) == "");
  CHECK(message_of([] {
          std::vector<u8> a(48), b(48);
          relayout(dense(a.data(), 24, 2), laid_out<trtllm_mxfp8_codes, u8>{b.data(), 1, 24, 2});
        }) == "rows are not a multiple of the shuffle block: got 24, expected 32");
  CHECK(message_of([] {
          std::vector<u8> a(24);
          relayout(dense(a.data(), 12, 2), laid_out<row_major, u8>{nullptr, 1, 12, 2});
        }) == "laid_out: the buffer has no data: got 0, expected 24");
  CHECK(message_of([] {
          std::vector<u8> a(512), scratch(512);
          relayout_in_place<swizzle_128x4>(laid_out<row_major, u8>{a.data(), 1, 100, 4}, scratch.data());
        }) == "relayout_in_place: the target layout has padding: got 512, expected 400");
  CHECK(message_of([] {
          std::vector<u8> a(512);
          relayout_in_place<swizzle_128x4>(laid_out<row_major, u8>{a.data(), 1, 128, 4}, static_cast<u8*>(nullptr));
        }) == "relayout_in_place: there is no scratch: got 0, expected 512");
}

TEST_CASE("a buffer knows its size and elements by its type") {
  std::vector<u8> bytes(512, 0);
  const laid_out<swizzle_128x4, u8> buffer{bytes.data(), 1, 100, 3};
  CHECK(buffer.size() == 512);
  buffer(0, 33, 2) = 7;
  CHECK(bytes[16 + 4 + 2] == 7);
  const laid_out<swizzle_128x4, const u8> read_only = buffer;
  CHECK(read_only(0, 33, 2) == 7);
  CHECK(laid_out<deepgemm_fp32, float>{nullptr, 2, 5, 3}.size_bytes() == 192);
}
