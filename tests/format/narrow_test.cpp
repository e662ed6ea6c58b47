// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include <fp8wire/format/e8m0.hpp>
#include <fp8wire/format/fp32.hpp>

#include "float_oracle.hpp"

using namespace fp8wire;

// A 16-bit float as the oracle's format: BF16 has 8 exponent bits, which double covers too.
static constexpr oracle::format bf16_oracle{8, 7, 127, oracle::nans::ieee}, fp16_oracle{5, 10, 15, oracle::nans::ieee};

TEST_CASE("all BF16 and FP16 numbers widen exactly and come back") {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const u32 sign = bits & 0x8000u, magnitude = bits & 0x7FFFu;
    const float wide_bf16 = to_float(bf16{static_cast<u16>(bits)}), wide_fp16 = to_float(fp16{static_cast<u16>(bits)});
    if (magnitude <= 0x7F7Fu) {
      const double value = bf16_oracle.value(static_cast<int>(magnitude));
      if (static_cast<double>(wide_bf16) != (sign ? -value : value)) FAIL_CHECK("bf16 " << bits);
      if (to_bf16(wide_bf16).bits != bits) FAIL_CHECK("bf16 back " << bits);
    } else {
      if (oracle::as_bits(wide_bf16) != bits << 16) FAIL_CHECK("bf16 special " << bits);
      if (magnitude > 0x7F80u && to_bf16(wide_bf16).bits != (sign | 0x7FC0u)) FAIL_CHECK("bf16 NaN " << bits);
    }
    if (magnitude <= 0x7BFFu) {
      const double value = fp16_oracle.value(static_cast<int>(magnitude));
      if (static_cast<double>(wide_fp16) != (sign ? -value : value)) FAIL_CHECK("fp16 " << bits);
      if (oracle::as_bits(wide_fp16) >> 31 != sign >> 15) FAIL_CHECK("fp16 sign " << bits);
      if (to_fp16(wide_fp16).bits != bits) FAIL_CHECK("fp16 back " << bits);
    } else if (magnitude == 0x7C00u) {
      if (oracle::as_bits(wide_fp16) != (sign << 16 | 0x7F800000u) || to_fp16(wide_fp16).bits != bits)
        FAIL_CHECK("fp16 inf");
    } else if ((oracle::as_bits(wide_fp16) & 0x7FFFFFFFu) <= 0x7F800000u ||
               to_fp16(wide_fp16).bits != (sign | 0x7E00u)) {
      FAIL_CHECK("fp16 NaN " << bits);
    }
  }
}

TEST_CASE("floats narrow to the nearest BF16 and FP16, ties to even, next to every boundary") {
  const auto check = [](const oracle::format& f, auto narrow) {
    for (int code = 1; code <= f.largest_code() + 1; ++code) {
      const double middle = (f.value(code - 1) + f.value(code)) / 2;
      const u32 tie = oracle::as_bits(static_cast<float>(middle));
      if (static_cast<double>(oracle::as_float(tie)) != middle)
        continue;  // between BF16 subnormals FP32 is exact as well
      const int at_tie = code % 2 == 0 ? code : code - 1;
      if (narrow(oracle::as_float(tie)) != at_tie) FAIL_CHECK("tie " << code);
      if (narrow(oracle::as_float(tie - 1)) != code - 1) FAIL_CHECK("below " << code);
      if (narrow(oracle::as_float(tie + 1)) != code) FAIL_CHECK("above " << code);
      if (narrow(oracle::as_float(tie | 0x80000000u)) != (at_tie | 0x8000)) FAIL_CHECK("negative " << code);
    }
  };
  check(bf16_oracle, [](float x) { return to_bf16(x).bits; });
  check(fp16_oracle, [](float x) { return to_fp16(x).bits; });
}

TEST_CASE("random floats narrow as the oracle says") {
  std::mt19937 random(7);
  for (int i = 0; i < 400000; ++i) {
    const u32 bits = static_cast<u32>(random());
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) continue;
    const double magnitude = std::fabs(static_cast<double>(oracle::as_float(bits)));
    const int sign = static_cast<int>(bits >> 16 & 0x8000u);
    if (to_bf16(oracle::as_float(bits)).bits != (bf16_oracle.code(magnitude) | sign)) FAIL_CHECK("bf16 " << bits);
    if (to_fp16(oracle::as_float(bits)).bits != (fp16_oracle.code(magnitude) | sign)) FAIL_CHECK("fp16 " << bits);
  }
  CHECK(from_float<float>(1.5f) == 1.5f);
  CHECK(from_float<bf16>(1.5f).bits == 0x3FC0);
  CHECK(from_float<fp16>(1.5f).bits == 0x3E00);
}

TEST_CASE("E8M0 decodes to 2^(byte - 127), byte 0 included, and its reciprocal is exact") {
  for (int byte = 0; byte < 255; ++byte) {
    const e8m0 scale{static_cast<u8>(byte)};
    CHECK(static_cast<double>(to_float(scale)) == std::ldexp(1.0, byte - 127));
    CHECK(static_cast<double>(reciprocal(scale)) == std::ldexp(1.0, 127 - byte));
    CHECK(e8m0_round_up(to_float(scale)).bits == byte);
  }
  CHECK(oracle::as_bits(to_float(e8m0{255})) == 0x7FC00000u);
  CHECK(oracle::as_bits(reciprocal(e8m0{255})) == 0x7FC00000u);
}

TEST_CASE("E8M0 rounds up, down, to nearest and to nearest even as the tools do") {
  using enum e8m0_rounding;
  const u32 inputs[] = {0x40400000u, 0x3F400000u, 0x40C00000u, 0x3F000000u, 0x3F800000u, 0x3FA00000u,
                        0x3FE00000u, 0x00400000u, 0x00500000u, 0x00000001u, 0x7F000000u, 0x7F400000u};
  const int ups[] = {129, 127, 130, 126, 127, 128, 128, 0, 1, 0, 254, 254};
  const int downs[] = {128, 126, 129, 126, 127, 127, 127, 0, 0, 0, 254, 254};
  const int evens[] = {128, 126, 130, 126, 127, 127, 128, 0, 0, 0, 254, 254};
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    const float x = oracle::as_float(inputs[i]);
    CHECK(to_e8m0<up>(x).bits == ups[i]);
    CHECK(to_e8m0<down>(x).bits == downs[i]);
    CHECK(to_e8m0<nearest_even>(x).bits == evens[i]);
  }
  // torch.Tensor.to(float8_e8m0fnu), as 2.15.0 prints it.
  const u32 torch_inputs[] = {0x00000000u, 0x00400000u, 0x00400001u, 0x00800000u, 0x3FC00000u, 0x3FBFFFFFu,
                              0x40400000u, 0x7F400000u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u};
  const int torch_bytes[] = {0, 0, 1, 1, 128, 127, 129, 255, 255, 255, 255};
  for (int i = 0; i < 11; ++i) CHECK(to_e8m0<nearest, false>(oracle::as_float(torch_inputs[i])).bits == torch_bytes[i]);
}
