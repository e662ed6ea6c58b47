// SPDX-License-Identifier: Apache-2.0
/// All families, found by the name on a command line or by config.json's model_type.
#ifndef FP8WIRE_MODEL_FAMILIES_HPP
#define FP8WIRE_MODEL_FAMILIES_HPP
#include <fp8wire/core/error.hpp>
#include <fp8wire/model/families/all_2d.hpp>
#include <fp8wire/model/families/bert.hpp>
#include <fp8wire/model/families/deepseek_v3.hpp>
#include <fp8wire/model/families/llama.hpp>
#include <fp8wire/model/families/nemotron_h.hpp>
#include <fp8wire/model/families/qwen3.hpp>
#include <fp8wire/model/families/qwen3_5.hpp>

FP8WIRE_ABI_BEGIN
namespace families {

inline constexpr const family* all[] = {&all_2d,      &qwen3,      &qwen3_moe, &qwen3_5,
                                        &deepseek_v3, &nemotron_h, &llama,     &bert};

/// "all-2d, qwen3, ...".
inline std::string names() {
  std::string text;
  for (const family* one : all) text.append(text.empty() ? "" : ", ").append(one->name);
  return text;
}

/// Every model_type that a family is known for, in the same form.
inline std::string model_types() {
  std::string text;
  for (const family* one : all)
    for (const std::string_view type : one->model_types) text.append(text.empty() ? "" : ", ").append(type);
  return text;
}

/// The family of that name. Errors: unsupported, with the list of those there are.
inline result<const family*> find(std::string_view name) {
  for (const family* one : all)
    if (one->name == name) return one;
  return make_error(errc::unsupported, std::string(name), "no such model family; there are: " + names());
}

/// The family of config.json's model_type. Errors: unsupported, with the list of those known: no guess, since an engine
/// that disagrees about one layer serves garbage.
inline result<const family*> of_model_type(std::string_view type) {
  for (const family* one : all)
    for (const std::string_view known : one->model_types)
      if (known == type) return one;
  return make_error(errc::unsupported, std::string(type), "unknown model_type; known are: " + model_types());
}

}  // namespace families
FP8WIRE_ABI_END
#endif
