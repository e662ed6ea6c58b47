// SPDX-License-Identifier: Apache-2.0
/// FP32 under the same names as the other input types, so that code over inputs needs no special case.
#ifndef FP8WIRE_FORMAT_FP32_HPP
#define FP8WIRE_FORMAT_FP32_HPP
#include <fp8wire/format/bf16.hpp>
#include <fp8wire/format/fp16.hpp>

FP8WIRE_ABI_BEGIN

FP8WIRE_HD constexpr float to_float(float value) noexcept { return value; }

/// Facts about a type that weights come in: its dtype and its largest finite value as FP32.
template <class Value> struct input_traits {
  static constexpr dtype stored_as = Value::stored_as;
  static constexpr float largest = float_of(Value::largest);
};
template <> struct input_traits<float> {
  static constexpr dtype stored_as = dtype::f32;
  static constexpr float largest = float_of(f32::largest);
};

/// `value` as Out, rounded to nearest even.
template <class Out> FP8WIRE_HD constexpr Out from_float(float value) noexcept;
template <> FP8WIRE_HD constexpr float from_float<float>(float value) noexcept { return value; }
template <> FP8WIRE_HD constexpr bf16 from_float<bf16>(float value) noexcept { return to_bf16(value); }
template <> FP8WIRE_HD constexpr fp16 from_float<fp16>(float value) noexcept { return to_fp16(value); }

FP8WIRE_ABI_END
#endif
