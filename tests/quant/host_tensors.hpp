// SPDX-License-Identifier: Apache-2.0
// Tensors of random and hostile values, and their quantization by every body compared with the definition, byte for
// byte.
#ifndef FP8WIRE_TESTS_QUANT_HOST_TENSORS_HPP
#define FP8WIRE_TESTS_QUANT_HOST_TENSORS_HPP
#include <doctest/doctest.h>

#include <cstring>
#include <fp8wire/quant/quantize.hpp>
#include <initializer_list>
#include <random>
#include <vector>

namespace host_tensors {

using namespace fp8wire;

inline std::vector<isa> bodies() {
  std::vector<isa> found;
  for (const isa body : {isa::scalar, isa::portable, isa::avx2, isa::avx512})
    if (can_run(body)) found.push_back(body);
  return found;
}

struct shape {
  i64 batch, rows, cols;
  i64 in_gap = 0, out_gap = 0;  // between rows, in elements
  i64 in_offset = 0, out_offset = 0;
};

/// What the elements of a tensor look like.
enum class pattern { gaussian, any_bits, any_finite, wide, small_blocks, zeros, few, subnormal, hostile };
constexpr pattern patterns[] = {pattern::gaussian, pattern::any_bits,     pattern::any_finite,
                                pattern::wide,     pattern::small_blocks, pattern::zeros,
                                pattern::few,      pattern::subnormal,    pattern::hostile};

template <class In> In from_bits(u32 bits) {
  if constexpr (std::same_as<In, float>) return float_of(bits);
  else return In{static_cast<u16>(bits >> 16)};
}

template <class In> In draw(pattern kind, std::mt19937& random, i64 row, i64 col) {
  std::normal_distribution<float> normal(0, 0.02f);
  const u32 any = static_cast<u32>(random());
  const u32 sign = any & f32::sign_mask;
  switch (kind) {
    case pattern::gaussian: return from_float<In>(normal(random));
    case pattern::any_bits: return from_bits<In>(any);
    case pattern::any_finite: {
      const In value = from_bits<In>(any);
      return f32::is_finite(bits_of(to_float(value))) ? value : from_float<In>(1.0f);
    }
    case pattern::wide:  // all mantissas over twenty octaves, as the codes of one block span
      return from_float<In>(float_of(sign | (((112 + (any >> 24) % 20) & 0xFF) << 23) | (any & f32::mantissa_mask)));
    case pattern::small_blocks: {  // one magnitude a block, from far below to far above the normal numbers
      const u32 field = static_cast<u32>((row / 16 * 37 + col / 32 * 11) % 255);
      const In value = from_float<In>(float_of(sign | (field << 23) | (any & f32::mantissa_mask)));
      return f32::is_finite(bits_of(to_float(value))) ? value : from_float<In>(2.0f);
    }
    case pattern::zeros: return from_bits<In>(sign);
    case pattern::few: return any % 97 == 0 ? from_float<In>(normal(random)) : from_bits<In>(sign);
    case pattern::subnormal:
      return from_bits<In>(sign | ((any & 0x3FF) << 16) | (std::same_as<In, float> ? any & 0x1FFF : 0));
    case pattern::hostile: {
      const u32 values[] = {f32::nan, f32::infinity, f32::infinity | f32::sign_mask, 0xFFC00000u, 0x7F800001u,
                            0,        f32::sign_mask};
      return any % 401 == 0 ? from_bits<In>(values[any / 401 % 7]) : from_float<In>(normal(random));
    }
  }
  return In{};
}

template <class T> bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Quantizes into buffers that are larger than needed, so that a stray write shows.
template <class Recipe, class In> struct output {
  std::vector<u8> codes;
  std::vector<stored_t<Recipe>> scales;
  status answer;
};

template <class Recipe, class In> struct tensor {
  shape size;
  std::vector<In> elements;
  float floor;

  tensor(shape s, pattern kind, unsigned seed, float amax_floor) : size(s), floor(amax_floor) {
    const i64 stride = s.cols + s.in_gap;
    elements.resize(static_cast<std::size_t>(s.batch * s.rows * stride + s.in_offset + 64));
    std::mt19937 random(seed);
    // Padding holds values that would change every scale if they were read.
    for (In& element : elements) element = from_bits<In>(f32::nan);
    for (i64 b = 0; b < s.batch; ++b)
      for (i64 row = 0; row < s.rows; ++row)
        for (i64 col = 0; col < s.cols; ++col)
          elements[static_cast<std::size_t>(s.in_offset + (b * s.rows + row) * stride + col)] =
              draw<In>(kind, random, row, col);
  }
  matrix_view<const In> view() const {
    const i64 stride = size.cols + size.in_gap;
    return {elements.data() + size.in_offset, size.rows, size.cols, stride, size.batch, size.rows * stride, 1};
  }
  template <class Quantize> output<Recipe, In> run(const Quantize& quantize_into) const {
    const i64 stride = size.cols + size.out_gap;
    const i64 scale_rows_ = scale_rows<typename Recipe::block>(size.rows),
              scale_cols_ = scale_cols<typename Recipe::block>(size.cols);
    output<Recipe, In> out;
    out.codes.assign(static_cast<std::size_t>(size.batch * size.rows * stride + size.out_offset + 64), u8{0xA5});
    out.scales.resize(static_cast<std::size_t>(size.batch * scale_rows_ * scale_cols_));
    const pair_view<Recipe> pair = {
        {out.codes.data() + size.out_offset, size.rows, size.cols, stride, size.batch, size.rows * stride, 1},
        dense(out.scales.data(), scale_rows_, scale_cols_, size.batch)};
    out.answer = quantize_into(pair);
    return out;
  }
  output<Recipe, In> by_definition() const {
    return run([&](const pair_view<Recipe>& pair) {
      bool bad = false;
      for (i64 b = 0; b < size.batch; ++b)
        for (i64 row = 0; row < pair.scales.rows; ++row)
          bad |= reference::quantize_block_row<Recipe, In>(view().slice_of(b), row, pair.codes.slice_of(b),
                                                           pair.scales.slice_of(b), floor);
      return status{bad ? detail::first_nonfinite<In>(view()) : -1};
    });
  }
  output<Recipe, In> by(isa body) const {
    return run(
        [&](const pair_view<Recipe>& pair) { return quantize<Recipe, In>(view(), pair, floor, serial{}, body); });
  }
};

template <class Recipe, class In> void compare(shape size, pattern kind, unsigned seed,
                                               float floor = Recipe::num.amax_floor) {
  const tensor<Recipe, In> given(size, kind, seed, floor);
  const auto expected = given.by_definition();
  for (const isa body : bodies()) {
    const auto got = given.by(body);
    CAPTURE(static_cast<int>(body));
    CAPTURE(static_cast<int>(kind));
    CAPTURE(size.batch);
    CAPTURE(size.rows);
    CAPTURE(size.cols);
    CHECK(same_bytes(got.codes, expected.codes));
    CHECK(same_bytes(got.scales, expected.scales));
    CHECK(got.answer.first_nonfinite == expected.answer.first_nonfinite);
  }
}

template <class Recipe> constexpr i64 unit = std::same_as<stored_t<Recipe>, e8m0> && Recipe::block::cols == 32 ? 32 : 1;

template <class Recipe, class In> void all_patterns(std::initializer_list<shape> shapes) {
  unsigned seed = 7;
  for (shape size : shapes) {
    size.cols = ceil_div(size.cols, unit<Recipe>) * unit<Recipe>;
    for (const pattern kind : patterns) compare<Recipe, In>(size, kind, ++seed);
  }
}

}  // namespace host_tensors
#endif
