// SPDX-License-Identifier: Apache-2.0
/// A configuration's share of the environment: read from and written to the variables that people set.
#ifndef FP8WIRE_MODEL_ENVIRONMENT_HPP
#define FP8WIRE_MODEL_ENVIRONMENT_HPP
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/model/configuration.hpp>

FP8WIRE_ABI_BEGIN

namespace environment {
inline constexpr const char* fp32_scales = "NVTE_FP8_BLOCK_SCALING_FP32_SCALES";
inline constexpr const char* amax_floor = "NVTE_FP8_BLOCK_AMAX_EPSILON";
inline constexpr const char* deep_gemm_e8m0 = "VLLM_USE_DEEP_GEMM_E8M0";
}  // namespace environment

/// An amax floor as people write it: a decimal number, finite, >= 0, that fits FP32, and nothing around it.
/// Errors: bad_argument, which names `option` and says which of these it is not.
inline result<float> parse_amax_floor(std::string_view option, std::string_view text) {
  const auto refuse = [&](const char* what) {
    return make_error(errc::bad_argument, std::string(option), std::string(what) + ": '" + std::string(text) + "'");
  };
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc::result_out_of_range && stopped == end) return refuse("does not fit FP32");
  if (text.empty() || fault != std::errc{} || stopped != end) return refuse("is not a number");
  if (f32::is_nan(bits_of(value))) return refuse("is NaN");
  if ((bits_of(value) & f32::sign_mask) != 0) return refuse("is negative");
  if (!f32::is_finite(bits_of(value))) return refuse("is infinite");
  return value;
}

/// Reads the three variables into a configuration; those that are not set, or wrong, leave it alone. `variable(name)`
/// gives the text, or null where it is not set: std::getenv, or what another process was started with.
/// Returns every refusal at once: bad_argument, under the variable's name.
template <class Variable> std::vector<error> read_environment(const Variable& variable, configuration& into) {
  std::vector<error> wrong;
  const auto read_toggle = [&](const char* name, toggle& out) {
    const char* const text = variable(name);
    if (text == nullptr) return;
    const std::string_view said(text);
    if (said == "0" || said == "1") out = said == "1" ? toggle::on : toggle::off;
    else wrong.push_back(make_error(errc::bad_argument, name, "must be '0' or '1': '" + std::string(said) + "'"));
  };
  read_toggle(environment::fp32_scales, into.fp32_scales);
  read_toggle(environment::deep_gemm_e8m0, into.deep_gemm_e8m0);
  if (const char* const text = variable(environment::amax_floor); text != nullptr) {
    const auto value = parse_amax_floor(environment::amax_floor, text);
    if (value) into.amax_floor = *value;
    else wrong.push_back(value.error());
  }
  return wrong;
}

/// Names and values that read_environment turns into the same configuration; what is unset is not there.
inline std::vector<std::pair<std::string, std::string>> environment_of(const configuration& of) {
  std::vector<std::pair<std::string, std::string>> made;
  const auto add = [&](const char* name, toggle value) {
    if (value != toggle::unset) made.emplace_back(name, value == toggle::on ? "1" : "0");
  };
  add(environment::fp32_scales, of.fp32_scales);
  add(environment::deep_gemm_e8m0, of.deep_gemm_e8m0);
  if (!f32::is_zero(bits_of(of.amax_floor))) {
    char digits[32];
    made.emplace_back(environment::amax_floor,
                      std::string(digits, std::to_chars(digits, digits + sizeof(digits), of.amax_floor).ptr));
  }
  return made;
}

FP8WIRE_ABI_END
#endif
