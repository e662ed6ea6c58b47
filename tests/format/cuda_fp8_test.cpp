// SPDX-License-Identifier: Apache-2.0
// The codecs against the host emulation that ships with the CUDA toolkit; a plain C++ compiler builds it. Without the
// toolkit the test says so and counts as skipped.
#include <cstdio>

#if __has_include(<cuda_fp8.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <cuda_fp8.h>
#pragma GCC diagnostic pop

#include <fp8wire/format/e4m3.hpp>
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/format/e8m0.hpp>
#include <fp8wire/format/fp16.hpp>

#include "float_oracle.hpp"

using namespace fp8wire;

static long long wrong = 0;
static void compare(const char* what, u32 bits, int got, int expected) {
  if (got == expected) return;
  if (++wrong <= 20) std::printf("%s of %08X: got %02X, CUDA says %02X\n", what, bits, got, expected);
}

static void compare_all(u32 bits) {
  const float x = oracle::as_float(bits);
  using not_saturating_4 = e4m3_as<casts::cuda_not_saturating>;
  using not_saturating_5 = e5m2_as<casts::cuda_not_saturating>;
  compare("E4M3", bits, e4m3::encode(x), __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
  compare("E4M3 nosat", bits, not_saturating_4::encode(x), __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3));
  compare("E5M2", bits, e5m2::encode(x), __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2));
  compare("E5M2 nosat", bits, not_saturating_5::encode(x), __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2));
  using enum e8m0_rounding;
  compare("E8M0 up", bits, to_e8m0<up>(x).bits, __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf));
  compare("E8M0 up nosat", bits, to_e8m0<up, false>(x).bits, __nv_cvt_float_to_e8m0(x, __NV_NOSAT, cudaRoundPosInf));
  compare("E8M0 down", bits, to_e8m0<down>(x).bits, __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundZero));
  compare("E8M0 down nosat", bits, to_e8m0<down, false>(x).bits, __nv_cvt_float_to_e8m0(x, __NV_NOSAT, cudaRoundZero));
}

int main() {
  // Around every boundary of either format and of every power of two, and then every 509th float, a prime.
  for (const auto& f : {oracle::e4m3, oracle::e5m2})
    for (int code = 1; code <= f.largest_code() + 1; ++code)
      for (u32 near = f.first_bits(code) - 3; near <= f.first_bits(code) + 3; ++near)
        for (const u32 sign : {0u, 0x80000000u}) compare_all(near | sign);
  for (u32 field = 0; field < 256; ++field)
    for (const u32 mantissa :
         {0u, 1u, 2u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x5FFFFFu, 0x600000u, 0x600001u, 0x7FFFFEu, 0x7FFFFFu})
      for (const u32 sign : {0u, 0x80000000u}) compare_all(sign | field << 23 | mantissa);
  for (u64 bits = 0; bits < u64{1} << 32; bits += 509) compare_all(static_cast<u32>(bits));
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<u8>(code);
    const auto half4 = __nv_cvt_fp8_to_halfraw(byte, __NV_E4M3), half5 = __nv_cvt_fp8_to_halfraw(byte, __NV_E5M2);
    if (!e4m3::is_nan(byte)) compare("E4M3 decode", byte, to_fp16(e4m3::decode(byte)).bits, half4.x);
    if (!e5m2::is_nan(byte)) compare("E5M2 decode", byte, to_fp16(e5m2::decode(byte)).bits, half5.x);
  }
  std::printf("%lld differences\n", wrong);
  return wrong == 0 ? 0 : 1;
}
#else
int main() {
  std::puts("skipped: there is no cuda_fp8.h to compare with");
  return 77;
}
#endif
