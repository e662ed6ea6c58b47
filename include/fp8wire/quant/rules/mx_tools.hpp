// SPDX-License-Identifier: Apache-2.0
/// The E8M0 rules of the tools, each as its fields (docs/numerics.md has the table).
#ifndef FP8WIRE_QUANT_RULES_MX_TOOLS_HPP
#define FP8WIRE_QUANT_RULES_MX_TOOLS_HPP
#include <fp8wire/quant/rules/microscaling.hpp>

FP8WIRE_ABI_BEGIN
namespace rules {

/// OCP MX v1.0 section 6.3; Inf and NaN make the block NaN.
using ocp_mx =
    mx<mx_policy{.byte = mx_policy::exponent::floor, .infinity = mx_policy::infinite::byte_255, .nan_poisons = true}>;

/// torchao's ScaleCalculationMode. Elements are divided by the scale, which below 2^-126 is 2^-126 though byte 0 says
/// 2^-127.
using torchao_mx_floor = mx<mx_policy{.byte = mx_policy::exponent::floor,
                                      .infinity = mx_policy::infinite::next_exponent,
                                      .nan_poisons = true,
                                      .element = mx_policy::operand::normal_divisor}>;
using torchao_mx_ceil = mx<mx_policy{.byte = mx_policy::exponent::ceil,
                                     .infinity = mx_policy::infinite::next_exponent,
                                     .nan_poisons = true,
                                     .element = mx_policy::operand::normal_divisor}>;
using torchao_mx_even = mx<mx_policy{.byte = mx_policy::exponent::even,
                                     .infinity = mx_policy::infinite::next_exponent,
                                     .nan_poisons = true,
                                     .element = mx_policy::operand::normal_divisor}>;
using torchao_mx_rceil = mx<mx_policy{
    .byte = mx_policy::exponent::quotient_up, .nan_poisons = true, .element = mx_policy::operand::one_for_byte_0}>;

/// ceil(log2(amax / max)) and nothing special: SkyRL, ModelOpt.
using quotient_mx = mx<mx_policy{.byte = mx_policy::exponent::quotient_up, .nan_poisons = true}>;

/// vLLM's torch fallbacks: a NaN amax becomes byte 0 by the conversion to uint8, its elements NaN.
using vllm_mx_fallback = mx<mx_policy{.byte = mx_policy::exponent::unbiased_floor,
                                      .nan_byte = 0,
                                      .smallest_byte = 1,
                                      .nan_poisons = true,
                                      .element = mx_policy::operand::nan_for_nan}>;
using vllm_mx = mx<mx_policy{.byte = mx_policy::exponent::quotient_up,
                             .nan_byte = 0,
                             .nan_poisons = true,
                             .element = mx_policy::operand::nan_for_nan}>;

using compressed_tensors_mx = mx<mx_policy{.byte = mx_policy::exponent::quarter,
                                           .infinity = mx_policy::infinite::next_exponent,
                                           .nan_poisons = true,
                                           .element = mx_policy::operand::divisor}>;

using flashinfer_mx = mx<mx_policy{.flush_product = true, .element = mx_policy::operand::flush}>;

using fbgemm_mx_even = mx<mx_policy{
    .byte = mx_policy::exponent::even_exclusive, .infinity = mx_policy::infinite::byte_255, .nan_poisons = true}>;

}  // namespace rules
FP8WIRE_ABI_END
#endif
