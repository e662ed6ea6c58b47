// SPDX-License-Identifier: Apache-2.0
// Weights for the tests of the kernels, and the bytes that the library's definition makes of them.
#ifndef FP8WIRE_TESTS_CUDA_SAMPLES_HPP
#define FP8WIRE_TESTS_CUDA_SAMPLES_HPP
#include <random>
#include <vector>

#include <fp8wire/quant/reference.hpp>

namespace samples {

using namespace fp8wire;

/// Memory that a kernel can reach, starting at a multiple of 256 bytes as cudaMalloc has it. The program defines both.
void* allocate(std::size_t bytes);
void release(void* data) noexcept;

template <class Value> struct device_allocator {
  using value_type = Value;
  device_allocator() = default;
  template <class Other> device_allocator(const device_allocator<Other>&) noexcept {}  // NOLINT
  Value* allocate(std::size_t count) { return static_cast<Value*>(samples::allocate(count * sizeof(Value))); }
  void deallocate(Value* data, std::size_t) noexcept { samples::release(data); }
  bool operator==(const device_allocator&) const = default;
};
template <class Value> using buffer = std::vector<Value, device_allocator<Value>>;

/// Weights of ordinary size with blocks of zeros, tiny and huge values; or all bit patterns that are finite.
template <class In> buffer<In> weights(i64 count, unsigned seed) {
  std::mt19937 random(seed);
  buffer<In> made(static_cast<std::size_t>(count));
  float scale = 1;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (i % 61 == 0) scale = float_of(static_cast<u32>(87 + random() % 50) << 23);
    if (i % 1277 == 0) scale = 0;
    if (i % 3001 == 0) scale = float_of(random() % 2 == 0 ? 0x00000700u : 0x7E000000u);
    const float unit = (static_cast<float>(random() % 4001) - 2000.0f) / 2000.0f;
    float value = ieee::mul(unit, scale);
    if (random() % 97 == 0) value = -0.0f;
    made[i] = from_float<In>(value);
    if (!f32::is_finite(bits_of(to_float(made[i])))) made[i] = from_float<In>(1.0f);
  }
  return made;
}

/// Codes and scales of the definition, one block row after another.
template <class Recipe, class In> struct expected {
  buffer<u8> codes;
  buffer<stored_t<Recipe>> scales;
  i64 first_nonfinite = -1;

  explicit expected(matrix_view<const In> in, float amax_floor = Recipe::num.amax_floor) {
    const i64 rows = scale_rows<typename Recipe::block>(in.rows), cols = scale_cols<typename Recipe::block>(in.cols);
    codes.resize(static_cast<std::size_t>(in.size()));
    scales.resize(static_cast<std::size_t>(in.batch * rows * cols));
    const auto to = dense(codes.data(), in.rows, in.cols, in.batch);
    const auto scale = dense(scales.data(), rows, cols, in.batch);
    if (in.size() == 0) return;
    for (i64 b = 0; b < in.batch; ++b)
      for (i64 row = 0; row < rows; ++row)
        reference::quantize_block_row<Recipe, In>(in.slice_of(b), row, to.slice_of(b), scale.slice_of(b), amax_floor);
    for (i64 i = 0; i < in.size() && first_nonfinite < 0; ++i)
      if (!f32::is_finite(bits_of(to_float(in(i / in.cols / in.rows, i / in.cols % in.rows, i % in.cols)))))
        first_nonfinite = i;
  }
};

}  // namespace samples
#endif
