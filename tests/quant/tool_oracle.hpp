// SPDX-License-Identifier: Apache-2.0
/// Every tool's scale rule once more, written from docs/numerics.md with the machine's own float arithmetic, frexp and
/// ldexp. Shares nothing with the library; only right in a process without FTZ and DAZ.
#ifndef FP8WIRE_TESTS_QUANT_TOOL_ORACLE_HPP
#define FP8WIRE_TESTS_QUANT_TOOL_ORACLE_HPP
#include <cmath>
#include <cstdint>
#include <string>

#include "../format/float_oracle.hpp"

namespace oracle {

// Volatile, so that no flag of the test's own build can fuse, reassociate or approximate.
inline float times(float a, float b) {
  volatile float x = a, y = b;
  return x * y;
}
inline float over(float a, float b) {
  volatile float x = a, y = b;
  return x / y;
}
inline float in_bf16(float x) {
  const std::uint32_t bits = as_bits(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return x;
  return as_float((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

struct question {
  std::string name, scale;
  format element;
  float amax;       // finite; the floor is in it
  float input_max;  // largest of the input type
};
struct answer {
  std::uint32_t stored = 0;  // FP32 bits, BF16 bits or an E8M0 byte
  float multiplier = 1, divisor = 1;
  bool quotient_in_bf16 = false, flush_inputs = false, flush_minus_zero = false, ties_away = false;
};

/// Smallest k with 2^k >= x, for x > 0.
inline int log2_up(float x) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(x), &exponent);
  return fraction == 0.5 ? exponent - 1 : exponent;
}
/// Largest k with 2^k <= x, for x > 0.
inline int log2_down(float x) {
  int exponent = 0;
  std::frexp(static_cast<double>(x), &exponent);
  return exponent - 1;
}
inline float two_to(int k) { return static_cast<float>(std::ldexp(1.0, k)); }
inline int clamp(int k, int low, int high) { return k < low ? low : k > high ? high : k; }
inline bool subnormal(float x) { return x != 0 && x < two_to(-126); }

inline answer ask(const question& q) {
  const float max = static_cast<float>(q.element.value(q.element.largest_code()));
  const float reciprocal_max = over(1, max);
  const int p = log2_down(max);
  const auto starts = [&](const char* text) { return q.name.rfind(text, 0) == 0; };
  answer a;
  const auto fp32 = [&](float s) { a.stored = as_bits(s); };
  const auto byte = [&](int exponent) {  // exponent of the scale
    a.stored = static_cast<std::uint32_t>(exponent + 127);
    a.multiplier = two_to(-exponent);
  };

  if (starts("te-block") || starts("te-sharded")) {
    const bool sharded = starts("te-sharded");
    float m = 1;
    if (q.amax != 0 && !(sharded && subnormal(q.amax))) {
      m = over(max, q.amax);
      if (std::isinf(m)) m = sharded ? as_float(0x7F7FFFFFu) : q.input_max;
      if (q.scale == "pow2") m = two_to(log2_down(m));
    }
    float s = over(1, m);
    if (sharded && subnormal(s)) s = 0;
    fp32(s);
    a.multiplier = m;
  } else if (starts("te-mxfp8")) {
    float s = times(q.amax, reciprocal_max);
    if (q.name == "te-mxfp8-sharded" && subnormal(s)) s = 0;
    byte(s == 0 ? -127 : clamp(log2_up(s), -127, 127));
    a.flush_minus_zero = q.name == "te-mxfp8-fma";
  } else if (q.name == "flashinfer-mxfp8") {
    float s = times(q.amax, reciprocal_max);
    if (subnormal(s)) s = 0;
    byte(s == 0 ? -127 : log2_up(s));
    if (s == 0) a.multiplier = 0;
    a.flush_inputs = true;
  } else if (q.name == "vllm-block" && q.scale == "pow2") {
    float s = over(q.amax, max);
    if (s < 1e-10f) s = 1e-10f;
    fp32(two_to(log2_up(s)));
    a.divisor = two_to(log2_up(s));
  } else if (starts("skyrl-block") && q.scale == "pow2") {
    const float s = two_to(log2_up(over(q.amax, max)));
    fp32(s);
    a.divisor = s;
  } else if (starts("deepgemm-block") && q.scale != "fp32") {
    const int exponent = clamp(log2_up(over(q.amax, max)), -126, 127);
    if (q.scale == "e8m0") byte(exponent);
    else fp32(two_to(exponent));
    a.multiplier = two_to(-exponent);
  } else if (q.name == "vllm-block" || q.name == "skyrl-block-cpu" ||
             (q.name == "compressed-tensors-block" && q.scale == "fp32")) {
    float s = over(q.amax, max);
    if (s == 0) s = q.name == "compressed-tensors-block" ? two_to(-23) : 1;
    fp32(s);
    a.divisor = s;
  } else if (q.name == "compressed-tensors-block") {
    float s = in_bf16(over(q.amax, max));
    if (s == 0) s = two_to(-7);
    a.stored = as_bits(s) >> 16;
    a.divisor = s;
    a.quotient_in_bf16 = true;
  } else if (q.name == "skyrl-block" || q.name == "deepgemm-block" || q.name == "triton-block" ||
             q.name == "sgl-kernel-block" || q.name == "sglang-approx-block" || q.name == "deepgemm-block-cpu") {
    const float s = q.name == "deepgemm-block-cpu" ? over(q.amax, max) : times(q.amax, reciprocal_max);
    fp32(s);
    if (q.name == "skyrl-block") a.divisor = s;
    else if (q.name == "sgl-kernel-block") a.multiplier = over(max, q.amax);
    else if (q.name == "sglang-approx-block") a.multiplier = times(max, over(1, q.amax));
    else a.multiplier = over(1, s);
  } else if (q.name == "nemo-block" && q.scale == "fp32") {
    const float m = q.amax == 0 ? 1 : times(max, over(1, q.amax));
    fp32(over(1, m));
    a.multiplier = m;
  } else if (q.name == "nemo-block") {
    const float s = over(q.amax, max);
    const int exponent = s == 0 ? -127 : clamp(log2_up(s), -127, 127);
    a.multiplier = exponent == -127 ? 1 : two_to(-exponent);
    fp32(over(1, a.multiplier));
  } else if (q.name == "torchao-block") {
    const float m = static_cast<float>(static_cast<double>(max) / static_cast<double>(q.amax));
    fp32(over(1, m));
    a.multiplier = m;
  } else if (q.name == "skyrl-mxfp8" || q.name == "vllm-mxfp8" || q.name == "torchao-mxfp8-rceil") {
    const float s = over(q.amax, max);
    byte(s == 0 ? -127 : clamp(log2_up(s), -127, 127));
    if (q.name == "torchao-mxfp8-rceil" && a.stored == 0) a.multiplier = 1;
  } else if (q.name == "vllm-mxfp8-fallback" || q.name == "nemo-mxfp8") {
    byte(q.amax < two_to(-126) ? -126 : log2_down(q.amax));
  } else {  // the exponent of amax, rounded in some way, less p
    double rounded = static_cast<double>(q.amax);
    const double unit = q.amax == 0 ? 0 : std::ldexp(1.0, q.amax < two_to(-126) ? -126 : log2_down(q.amax));
    if (q.name == "torchao-mxfp8-even" || q.name == "fbgemm-mxfp8-even")
      rounded += unit * (std::ldexp(1.0, -q.element.mantissa_bits - 1) - (starts("fbgemm") ? std::ldexp(1.0, -23) : 0));
    if (starts("compressed-tensors")) rounded += unit / 4;
    int exponent = -127;
    if (rounded >= std::ldexp(1.0, -126)) exponent = std::ilogb(rounded);
    if (q.name == "torchao-mxfp8-ceil" && q.amax != 0 && (exponent == -127 || rounded != std::ldexp(1.0, exponent)))
      ++exponent;
    exponent = exponent - p < -127 ? -127 : exponent - p;
    byte(exponent);
    if (starts("torchao") && exponent == -127) a.multiplier = two_to(126);
    a.ties_away = starts("microxcaling");
  }
  return a;
}

/// The code of one weight that is finite.
inline std::uint8_t code_of(const question& q, const answer& a, float x, std::uint8_t nan) {
  if (a.flush_inputs && subnormal(std::fabs(x))) x = std::copysign(0.0f, x);
  if (a.flush_minus_zero && x == 0) x = 0;
  float scaled = a.divisor != 1 ? over(x, a.divisor) : times(x, a.multiplier);
  if (a.quotient_in_bf16) scaled = in_bf16(scaled);
  if (!a.ties_away) return saturating(q.element, as_bits(scaled), nan);
  const int code = q.element.code(std::fabs(static_cast<double>(scaled)), true);
  const int largest = q.element.largest_code();
  return static_cast<std::uint8_t>((code > largest ? largest : code) | (std::signbit(scaled) ? 0x80 : 0));
}

}  // namespace oracle
#endif
