// SPDX-License-Identifier: Apache-2.0
/// What a stored tensor is without its bytes: name, dtype and shape.
#ifndef FP8WIRE_MODEL_TENSOR_SPEC_HPP
#define FP8WIRE_MODEL_TENSOR_SPEC_HPP
#include <span>
#include <string>
#include <vector>

#include <fp8wire/core/dtype.hpp>

FP8WIRE_ABI_BEGIN

struct tensor_spec {
  std::string name;
  fp8wire::dtype dtype = fp8wire::dtype::uint8;
  std::vector<i64> shape;  // empty: one element

  bool operator==(const tensor_spec&) const = default;
};

/// Bits of a dense tensor, or -1 where a dimension is negative or the number does not fit.
///
/// Multiplies in the order of the shape, as the safetensors reader does, so that both refuse the same shapes: a zero
/// behind a product that overflowed does not save it.
constexpr i64 bit_count(dtype type, std::span<const i64> shape) noexcept {
  i64 bits = 1;
  for (const i64 extent : shape) {
    if (!multiply_checked(bits, extent, bits)) return -1;
  }
  return !multiply_checked(bits, i64{bit_width(type)}, bits) ? -1 : bits;
}

/// Bytes of a dense tensor, or -1 where bit_count is -1 or packed elements do not fill whole bytes.
constexpr i64 byte_count(dtype type, std::span<const i64> shape) noexcept {
  const i64 bits = bit_count(type, shape);
  return bits < 0 || bits % 8 != 0 ? -1 : bits / 8;
}

FP8WIRE_ABI_END
#endif
