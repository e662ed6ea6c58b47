// SPDX-License-Identifier: Apache-2.0
/// Everything on the host that needs the standard library only; costs about half a second of compile time.
///
/// For a first program. Code that is compiled often includes what it uses; the library itself never includes this file.
#ifndef FP8WIRE_FP8WIRE_HPP
#define FP8WIRE_FP8WIRE_HPP
#include <fp8wire/core/checksum.hpp>
#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/model/wire_format.hpp>
#include <fp8wire/quant/dequantize.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/verify.hpp>
#include <fp8wire/version.hpp>
#include <fp8wire/wire/plan.hpp>
#endif
