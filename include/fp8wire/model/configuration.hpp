// SPDX-License-Identifier: Apache-2.0
/// What a training run says about FP8, as one value, and the rules that keep it from silently not learning.
///
/// The rules are those that SkyRL and NeMo-RL check, and what Transformer Engine and vLLM do with what nobody checks.
/// Sources: SkyRL pull request 2072 (configuration checks), NeMo-RL nccl_reshard_utils.py:562-754 and vllm/config.py at
/// 7ea279a and pull request 3294, Transformer Engine common/recipe/__init__.py:391-485 and
/// pytorch/quantization.py:149-185 at d0067d0.
#ifndef FP8WIRE_MODEL_CONFIGURATION_HPP
#define FP8WIRE_MODEL_CONFIGURATION_HPP
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

enum class fp8_recipe : u8 { off, automatic, tensorwise, blockwise, mxfp8 };
enum class scale_type : u8 { unset, fp32, pow2, e8m0 };
/// In what form weights travel to the engine: BF16, or quantized by the learner's side.
enum class sync_mode : u8 { bf16, automatic, blockwise, mxfp8 };
enum class lora_mode : u8 { none, merged, adapter_only };
/// An environment variable that is "0", "1" or not there.
enum class toggle : u8 { unset, off, on };

/// One model of a run. An absent section breaks no rule.
struct role_configuration {
  bool present = false;
  bool megatron = true;  // the training strategy
  fp8_recipe recipe = fp8_recipe::off;
  scale_type scale = scale_type::unset;
  bool persistent = false;  // fp8_param: parameters live in E4M3
  bool gather = false;  // fp8_param_gather: refreshed from FP32 masters after each step
  lora_mode lora = lora_mode::none;
  bool operator==(const role_configuration&) const = default;
};

/// All of it. Scalars only: it is a template argument too.
struct configuration {
  int arch = 90;  // of the GPUs, learner and engine: 90 Hopper, 100 Blackwell, 120 its consumer form
  role_configuration policy, reference;
  sync_mode sync = sync_mode::bf16;
  bool prequantize = false;  // BF16 exports are quantized before they are sent
  bool reshard = false;  // weights are resharded on the way (nccl_reshard)
  bool fake_quant = false;  // the engine keeps BF16 weights and imitates FP8
  toggle fp32_scales = toggle::unset;  // NVTE_FP8_BLOCK_SCALING_FP32_SCALES
  toggle deep_gemm_e8m0 = toggle::unset;  // VLLM_USE_DEEP_GEMM_E8M0
  float amax_floor = 0;  // NVTE_FP8_BLOCK_AMAX_EPSILON
  bool operator==(const configuration&) const = default;
};

/// What can be wrong, in the order in which it is reported.
enum class configuration_rule : u8 {
  none,
  architecture_without_fp8,
  blockwise_before_hopper,
  mxfp8_outside_blackwell,
  mxfp8_with_fp32_scales,
  blockwise_with_e8m0_scales,
  fp32_scales_on_blackwell,
  scales_differ_from_environment,
  persistent_without_blockwise,
  persistent_mxfp8,
  persistent_with_power_of_two_scales,
  persistent_without_gather,
  gather_without_persistent,
  sync_outside_megatron,
  sync_of_adapters_only,
  automatic_sync_of_automatic_recipe,
  persistent_synced_as_other,
  sync_to_fake_quant,
  fp32_scales_with_deep_gemm_e8m0,
  power_of_two_without_deep_gemm_e8m0,
  prequantize_without_mxfp8,
  prequantize_of_persistent,
  prequantize_with_reshard,
  reshard_of_unquantized_blockwise,
  amax_floor_not_a_floor,
  count
};

namespace detail {

/// The scales that a role's FP8 matrix products use: Transformer Engine's default is powers of two.
constexpr scale_type scales_in_use(const configuration& of, const role_configuration& role) noexcept {
  if (role.scale != scale_type::unset) return role.scale;
  if (role.recipe == fp8_recipe::mxfp8) return scale_type::e8m0;
  return of.fp32_scales == toggle::on ? scale_type::fp32 : scale_type::pow2;
}
/// What the engine receives.
constexpr sync_mode sync_in_use(const configuration& of) noexcept {
  if (of.sync != sync_mode::automatic) return of.sync;
  return of.policy.recipe == fp8_recipe::blockwise ? sync_mode::blockwise
         : of.policy.recipe == fp8_recipe::mxfp8   ? sync_mode::mxfp8
                                                   : sync_mode::bf16;
}

/// Where a rule looks, what it says and what helps. '@' stands for the role: "policy.".
struct rule_text {
  bool reference;  // it holds for the reference model, too
  std::string_view path, what, remedy;
};
constexpr rule_text text_of(configuration_rule rule) noexcept {
  using enum configuration_rule;
  switch (rule) {
    case architecture_without_fp8:
      return {true, "@fp8_recipe", "FP8 needs compute capability 8.9", "set @fp8_recipe=off, or use SM89 and newer"};
    case blockwise_before_hopper:
      return {true, "@fp8_recipe", "block scaling needs compute capability 9.0",
              "set @fp8_recipe=tensorwise, or use SM90 and newer"};
    case mxfp8_outside_blackwell:
      return {true, "@fp8_recipe", "MXFP8 training needs SM100 to SM119", "set @fp8_recipe=blockwise, or use SM100"};
    case mxfp8_with_fp32_scales: return {true, "@scale", "MXFP8 scales are powers of two", "set @scale=e8m0"};
    case blockwise_with_e8m0_scales:
      return {true, "@scale", "block scaling stores its scales as FP32, powers of two or not", "set @scale=pow2"};
    case fp32_scales_on_blackwell:
      return {true, "@scale", "SM100 and newer compute block scaling as MXFP8 and would drop the scales' mantissas",
              "set @scale=pow2 and NVTE_FP8_BLOCK_SCALING_FP32_SCALES=0"};
    case scales_differ_from_environment:
      return {true, "@scale", "the learner's kernels follow NVTE_FP8_BLOCK_SCALING_FP32_SCALES, which says otherwise",
              "set NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1 for fp32, 0 for pow2"};
    case persistent_without_blockwise:
      return {true, "@fp8_param", "parameters can live in FP8 under block scaling only", "set @fp8_recipe=blockwise"};
    case persistent_mxfp8:
      return {true, "@fp8_param", "MXFP8 parameters cannot be replaced in place, and loaded ones are zeroed",
              "set @fp8_param=false, or @fp8_recipe=blockwise"};
    case persistent_with_power_of_two_scales:
      return {true, "@fp8_param",
              "FP8 parameters need FP32 block scales: under powers of two no scale follows small steps",
              "set @scale=fp32 and NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1, or @fp8_param=false"};
    case persistent_without_gather:
      return {false, "@fp8_param_gather",
              "without it the steps of the FP32 masters never reach the FP8 weights that are trained and served",
              "set @fp8_param_gather=true"};
    case gather_without_persistent:
      return {true, "@fp8_param_gather", "there are no FP8 parameters to gather", "set @fp8_param=true"};
    case sync_outside_megatron:
      return {false, "@strategy", "FP8 weight sync is a matter of the Megatron strategy", "set @strategy=megatron"};
    case sync_of_adapters_only:
      return {false, "@lora", "FP8 weight sync sends whole weights, adapter-only LoRA sends none of them",
              "set @lora=merged, or sync.mode=bf16"};
    case automatic_sync_of_automatic_recipe:
      return {false, "sync.mode", "auto follows the learner's recipe, which is auto as well",
              "set sync.mode or @fp8_recipe"};
    case persistent_synced_as_other:
      return {false, "sync.mode", "FP8 parameters are sent as they are, never quantized again",
              "set sync.mode=blockwise, or @fp8_param=false"};
    case sync_to_fake_quant:
      return {false, "engine.fake_quant",
              "an engine that imitates FP8 holds BF16 weights and would quantize them again",
              "set engine.fake_quant=false, or sync.mode=bf16"};
    case fp32_scales_with_deep_gemm_e8m0:
      return {false, "VLLM_USE_DEEP_GEMM_E8M0", "the engine would round FP32 block scales to powers of two",
              "set VLLM_USE_DEEP_GEMM_E8M0=0"};
    case power_of_two_without_deep_gemm_e8m0:
      return {false, "VLLM_USE_DEEP_GEMM_E8M0", "power-of-two block scales on SM100 and newer are read as E8M0",
              "set VLLM_USE_DEEP_GEMM_E8M0=1"};
    case prequantize_without_mxfp8:
      return {false, "sync.prequantize", "it makes MXFP8", "set sync.mode=mxfp8, or sync.prequantize=false"};
    case prequantize_of_persistent:
      return {false, "sync.prequantize", "it takes BF16 exports, and FP8 parameters must not be quantized again",
              "set sync.prequantize=false"};
    case prequantize_with_reshard:
      return {false, "sync.prequantize", "resharding cuts tensors by BF16 metadata and would part codes from scales",
              "set sync.prequantize=false, or sync.nccl_reshard=false"};
    case reshard_of_unquantized_blockwise:
      return {false, "sync.nccl_reshard",
              "resharded block scales come from FP8 parameters only: a part of a BF16 tensor has other blocks",
              "set @fp8_param=true, or sync.nccl_reshard=false"};
    case amax_floor_not_a_floor:
      return {false, "NVTE_FP8_BLOCK_AMAX_EPSILON", "an amax floor is finite and not negative",
              "set NVTE_FP8_BLOCK_AMAX_EPSILON=0"};
    case none:
    case count: break;
  }
  return {false, {}, {}, {}};
}

constexpr bool breaks(configuration_rule rule, const configuration& all, const role_configuration& role) noexcept {
  using enum configuration_rule;
  const bool fp8 = role.recipe != fp8_recipe::off, blockwise = role.recipe == fp8_recipe::blockwise,
             mxfp8 = role.recipe == fp8_recipe::mxfp8;
  const scale_type scales = scales_in_use(all, role);
  const sync_mode sync = sync_in_use(all);
  const bool sends_fp8 = all.sync != sync_mode::bf16;
  const u32 floor_bits = bits_of(all.amax_floor);
  switch (rule) {
    case architecture_without_fp8: return fp8 && all.arch < 89;
    case blockwise_before_hopper: return blockwise && all.arch == 89;
    case mxfp8_outside_blackwell: return mxfp8 && all.arch >= 89 && (all.arch < 100 || all.arch >= 120);
    case mxfp8_with_fp32_scales: return mxfp8 && scales == scale_type::fp32;
    case blockwise_with_e8m0_scales: return blockwise && scales == scale_type::e8m0;
    case fp32_scales_on_blackwell: return blockwise && scales == scale_type::fp32 && all.arch >= 100;
    case scales_differ_from_environment:
      return blockwise && ((role.scale == scale_type::fp32 && all.fp32_scales != toggle::on) ||
                           (role.scale == scale_type::pow2 && all.fp32_scales == toggle::on));
    case persistent_without_blockwise: return role.persistent && !blockwise && !mxfp8;
    case persistent_mxfp8: return role.persistent && mxfp8;
    case persistent_with_power_of_two_scales: return role.persistent && blockwise && scales != scale_type::fp32;
    case persistent_without_gather: return role.persistent && !role.gather;
    case gather_without_persistent: return role.gather && !role.persistent;
    case sync_outside_megatron: return sends_fp8 && !role.megatron;
    case sync_of_adapters_only: return sends_fp8 && role.lora == lora_mode::adapter_only;
    case automatic_sync_of_automatic_recipe:
      return all.sync == sync_mode::automatic && role.recipe == fp8_recipe::automatic;
    case persistent_synced_as_other: return role.persistent && sends_fp8 && sync != sync_mode::blockwise;
    case sync_to_fake_quant: return sends_fp8 && all.fake_quant;
    case fp32_scales_with_deep_gemm_e8m0:
      return sync == sync_mode::blockwise && scales == scale_type::fp32 && all.deep_gemm_e8m0 != toggle::off;
    case power_of_two_without_deep_gemm_e8m0:
      return sync == sync_mode::blockwise && scales != scale_type::fp32 && all.arch >= 100 &&
             all.deep_gemm_e8m0 != toggle::on;
    case prequantize_without_mxfp8: return all.prequantize && sync != sync_mode::mxfp8;
    case prequantize_of_persistent: return all.prequantize && role.persistent;
    case prequantize_with_reshard: return all.prequantize && all.reshard;
    case reshard_of_unquantized_blockwise: return all.reshard && sync == sync_mode::blockwise && !role.persistent;
    case amax_floor_not_a_floor:
      return !f32::is_finite(floor_bits) || ((floor_bits & f32::sign_mask) != 0 && !f32::is_zero(floor_bits));
    case none:
    case count: break;
  }
  return false;
}

}  // namespace detail

/// The first rule that the policy breaks, then the reference; none where all is well. For compile time: see
/// checked_configuration.
constexpr configuration_rule first_broken(const configuration& all) noexcept {
  for (const bool reference : {false, true}) {
    const role_configuration& role = reference ? all.reference : all.policy;
    for (int i = 1; i < static_cast<int>(configuration_rule::count) && role.present; ++i) {
      const auto rule = static_cast<configuration_rule>(i);
      if ((!reference || detail::text_of(rule).reference) && detail::breaks(rule, all, role)) return rule;
    }
  }
  return configuration_rule::none;
}

/// One broken rule. `path` and `remedy` name options in full.
struct violation {
  configuration_rule rule = configuration_rule::none;
  std::string path, what, remedy;
  /// "policy.fp8_param_gather: without it ...: set policy.fp8_param_gather=true".
  std::string message() const { return path + ": " + what + ": " + remedy; }
  bool operator==(const violation&) const = default;
};

/// Every rule that is broken, all at once; empty: none. `prefix` is what a framework has before its role sections
/// ("trainer."). Sections that are absent break nothing. Threads: no state.
inline std::vector<violation> check(const configuration& all, std::string_view prefix = {}) {
  std::vector<violation> found;
  for (const bool reference : {false, true}) {
    const role_configuration& role = reference ? all.reference : all.policy;
    const std::string section = std::string(prefix) + (reference ? "reference." : "policy.");
    const auto full = [&](std::string_view text) {
      std::string made;
      for (const char c : text)
        if (c == '@') made += section;
        else made += c;
      return made;
    };
    for (int i = 1; i < static_cast<int>(configuration_rule::count) && role.present; ++i) {
      const auto rule = static_cast<configuration_rule>(i);
      const detail::rule_text text = detail::text_of(rule);
      if ((!reference || text.reference) && detail::breaks(rule, all, role))
        found.push_back({rule, full(text.path), full(text.what), full(text.remedy)});
    }
  }
  return found;
}

namespace detail {
template <configuration_rule First> struct satisfies {
  static_assert(First == configuration_rule::none,
                "the configuration breaks the rule that this type names: check(configuration) says what to set");
};
}  // namespace detail

/// A choice that a framework makes once: it does not compile unless check() is empty. Its error names the first rule.
template <configuration Configuration>
struct checked_configuration : detail::satisfies<first_broken(Configuration)> {
  static constexpr configuration value = Configuration;
};

FP8WIRE_ABI_END
#endif
