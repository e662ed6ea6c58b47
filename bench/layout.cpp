// SPDX-License-Identifier: Apache-2.0
// Rows of the layout floor: each relayout beside memcpy of the same live bytes, on one thread.
#include <fp8wire/layout/deepgemm.hpp>
#include <fp8wire/layout/relayout.hpp>
#include <fp8wire/layout/transformer_engine.hpp>
#include <fp8wire/layout/trtllm.hpp>

#include "common.hpp"

namespace bench {
namespace {

using namespace fp8wire;

/// Repeats work and copy in turn. Counters: of_copy (median of the ratios), GB/s of both.
void against_copy(benchmark::State& state, i64 bytes, const std::function<void()>& copy,
                  const std::function<void()>& work) {
  std::vector<double> ratios, works, copies;
  copy();
  work();
  for (auto _ : state) {
    for (int i = 0; i < repetitions(); ++i) {
      copies.push_back(seconds(copy));
      works.push_back(seconds(work));
      ratios.push_back(copies.back() / works.back());
    }
    state.SetIterationTime(median(works));
  }
  state.counters["of_copy"] = median(ratios);
  state.counters["GB/s"] = static_cast<double>(bytes) / median(works) / 1e9;
  state.counters["copy_GB/s"] = static_cast<double>(bytes) / median(copies) / 1e9;
}

/// As many matrices of rows x cols as fill an eighth of the input size, into Layout, back, and in place.
template <class Layout, class Value> void add_rows(const char* kind, i64 rows, i64 cols) {
  const i64 matrix = rows * cols * static_cast<i64>(sizeof(Value));
  const i64 batch = std::max<i64>(1, input_bytes() / 8 / matrix);
  const std::string name = std::string("layout/").append(kind).append("/").append(Layout::id);
  const auto row = [=](bool there, bool in_place) {
    return [=](benchmark::State& state) {
      const typename Layout::mapping m{batch, rows, cols};
      const buffer plain(batch * matrix), laid(m.size() * static_cast<i64>(sizeof(Value))), other(batch * matrix),
          scratch(matrix);
      const laid_out<row_major, Value> canonical{plain.as<Value>(), batch, rows, cols};
      const laid_out<Layout, Value> stored{laid.as<Value>(), batch, rows, cols};
      const auto copy = [&] {
        std::memcpy(other.as(), plain.as(), static_cast<std::size_t>(batch * matrix));
        benchmark::ClobberMemory();
      };
      against_copy(state, batch * matrix, copy, [&] {
        if (in_place) relayout_in_place<Layout>(canonical, scratch.as<Value>());
        else if (there) relayout(canonical, stored);
        else relayout(stored, canonical);
      });
    };
  };
  add(name + "/to", row(true, false));
  add(name + "/from", row(false, false));
  if (typename Layout::mapping{batch, rows, cols}.size() == batch * rows * cols)
    add(name + "/in_place", row(true, true));
}

}  // namespace

void add_layout() {
  add_rows<up_first, u8>("codes", 2048, 4096);
  add_rows<trtllm_mxfp8_codes, u8>("codes", 2048, 4096);
  add_rows<trtllm_mxfp8_w13_codes, u8>("codes", 2048, 4096);
  add_rows<block_major_k<128>, u8>("codes", 2048, 4096);
  add_rows<trtllm_fp8_block_w13_codes, u8>("codes", 2048, 4096);
  add_rows<transposed, u8>("codes", 2048, 4096);
  add_rows<swizzle_128x4, u8>("scales", 4096, 128);
  add_rows<swizzle_8x4, u8>("scales", 4096, 128);
  add_rows<trtllm_mxfp8_w13_scales, u8>("scales", 4096, 128);
  add_rows<packed_ue8m0, u8>("scales", 4096, 128);
  add_rows<te_mxfp8_rowwise, u8>("scales", 4096, 128);
  add_rows<fp8wire::deepgemm_fp32, float>("scales", 4096, 32);
}

}  // namespace bench
