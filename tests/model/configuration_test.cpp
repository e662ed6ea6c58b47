// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include <fp8wire/model/environment.hpp>

using namespace fp8wire;
using rule = configuration_rule;

namespace {

// A Hopper learner with persistent parameters, as it must be.
constexpr configuration good = [] {
  configuration made;
  made.policy = {
      .present = true, .recipe = fp8_recipe::blockwise, .scale = scale_type::fp32, .persistent = true, .gather = true};
  made.sync = sync_mode::blockwise;
  made.fp32_scales = toggle::on;
  made.deep_gemm_e8m0 = toggle::off;
  return made;
}();

constexpr configuration on_blackwell = [] {
  configuration made;
  made.arch = 100;
  made.policy = {.present = true, .recipe = fp8_recipe::blockwise, .scale = scale_type::pow2};
  made.sync = sync_mode::blockwise;
  made.fp32_scales = toggle::off;
  made.deep_gemm_e8m0 = toggle::on;
  return made;
}();

constexpr configuration microscaling = [] {
  configuration made;
  made.arch = 100;
  made.policy = {.present = true, .recipe = fp8_recipe::mxfp8};
  made.sync = sync_mode::automatic;
  return made;
}();

std::vector<rule> rules_of(const configuration& of) {
  std::vector<rule> found;
  for (const violation& one : check(of)) found.push_back(one.rule);
  return found;
}

struct fault {
  const configuration& of;
  std::function<void(configuration&)> change;
  std::vector<rule> expected;
};

// Compiles only where all rules hold.
static_assert(checked_configuration<good>::value.policy.persistent);
static_assert(checked_configuration<on_blackwell>::value.arch == 100);
static_assert(first_broken(microscaling) == rule::none);
static_assert(first_broken(configuration{}) == rule::none);

}  // namespace

TEST_CASE("each rule is broken by the one setting that it is about") {
  const fault faults[] = {
      {good, [](auto& c) { c.arch = 80; }, {rule::architecture_without_fp8}},
      {good, [](auto& c) { c.arch = 89; }, {rule::blockwise_before_hopper}},
      {microscaling, [](auto& c) { c.arch = 90; }, {rule::mxfp8_outside_blackwell}},
      {microscaling, [](auto& c) { c.arch = 120; }, {rule::mxfp8_outside_blackwell}},
      {microscaling, [](auto& c) { c.policy.scale = scale_type::fp32; }, {rule::mxfp8_with_fp32_scales}},
      {on_blackwell, [](auto& c) { c.policy.scale = scale_type::e8m0; }, {rule::blockwise_with_e8m0_scales}},
      {good, [](auto& c) { c.arch = 100; }, {rule::fp32_scales_on_blackwell}},
      {good, [](auto& c) { c.fp32_scales = toggle::off; }, {rule::scales_differ_from_environment}},
      {good, [](auto& c) { c.fp32_scales = toggle::unset; }, {rule::scales_differ_from_environment}},
      {on_blackwell, [](auto& c) { c.fp32_scales = toggle::on; }, {rule::scales_differ_from_environment}},
      {good, [](auto& c) { c.policy.recipe = fp8_recipe::tensorwise; }, {rule::persistent_without_blockwise}},
      {good, [](auto& c) { c.policy.recipe = fp8_recipe::off; }, {rule::persistent_without_blockwise}},
      {microscaling,
       [](auto& c) {
         c.policy.persistent = c.policy.gather = true;
         c.sync = sync_mode::bf16;
       },
       {rule::persistent_mxfp8}},
      {good,
       [](auto& c) {
         c.policy.scale = scale_type::pow2;
         c.fp32_scales = toggle::off;
       },
       {rule::persistent_with_power_of_two_scales}},
      {good,
       [](auto& c) {
         c.policy.scale = scale_type::unset;
         c.fp32_scales = toggle::unset;
       },
       {rule::persistent_with_power_of_two_scales}},
      {good, [](auto& c) { c.policy.gather = false; }, {rule::persistent_without_gather}},
      {on_blackwell, [](auto& c) { c.policy.gather = true; }, {rule::gather_without_persistent}},
      {good, [](auto& c) { c.policy.megatron = false; }, {rule::sync_outside_megatron}},
      {good, [](auto& c) { c.policy.lora = lora_mode::adapter_only; }, {rule::sync_of_adapters_only}},
      {microscaling,
       [](auto& c) { c.policy.recipe = fp8_recipe::automatic; },
       {rule::automatic_sync_of_automatic_recipe}},
      {good, [](auto& c) { c.sync = sync_mode::mxfp8; }, {rule::persistent_synced_as_other}},
      {good, [](auto& c) { c.fake_quant = true; }, {rule::sync_to_fake_quant}},
      {good, [](auto& c) { c.deep_gemm_e8m0 = toggle::on; }, {rule::fp32_scales_with_deep_gemm_e8m0}},
      {good, [](auto& c) { c.deep_gemm_e8m0 = toggle::unset; }, {rule::fp32_scales_with_deep_gemm_e8m0}},
      {on_blackwell, [](auto& c) { c.deep_gemm_e8m0 = toggle::off; }, {rule::power_of_two_without_deep_gemm_e8m0}},
      {on_blackwell, [](auto& c) { c.deep_gemm_e8m0 = toggle::unset; }, {rule::power_of_two_without_deep_gemm_e8m0}},
      {on_blackwell, [](auto& c) { c.prequantize = true; }, {rule::prequantize_without_mxfp8}},
      {good, [](auto& c) { c.prequantize = true; }, {rule::prequantize_without_mxfp8, rule::prequantize_of_persistent}},
      {microscaling, [](auto& c) { c.prequantize = c.reshard = true; }, {rule::prequantize_with_reshard}},
      {on_blackwell, [](auto& c) { c.reshard = true; }, {rule::reshard_of_unquantized_blockwise}},
      {good, [](auto& c) { c.amax_floor = -1.0f; }, {rule::amax_floor_not_a_floor}},
      {good, [](auto& c) { c.amax_floor = float_of(f32::nan); }, {rule::amax_floor_not_a_floor}},
      {good, [](auto& c) { c.amax_floor = float_of(f32::infinity); }, {rule::amax_floor_not_a_floor}},
  };
  std::vector<bool> seen(static_cast<std::size_t>(rule::count));
  for (const fault& one : faults) {
    CHECK(check(one.of).empty());
    configuration changed = one.of;
    one.change(changed);
    std::string said;
    for (const violation& wrong : check(changed)) said += wrong.message() + "\n";
    CAPTURE(said);
    CHECK(rules_of(changed) == one.expected);
    CHECK(first_broken(changed) == one.expected.front());
    for (const rule which : one.expected) seen[static_cast<std::size_t>(which)] = true;
  }
  for (std::size_t which = 1; which < seen.size(); ++which) {
    CAPTURE(which);
    CHECK(seen[which]);
  }
}

TEST_CASE("what is allowed: merged LoRA, adapters without FP8 sync, resharded FP8 parameters") {
  configuration one = good;
  one.policy.lora = lora_mode::merged;
  CHECK(check(one).empty());
  one = good;
  one.reshard = true;
  CHECK(check(one).empty());
  one = good;
  one.sync = sync_mode::bf16;
  one.policy.lora = lora_mode::adapter_only;
  one.deep_gemm_e8m0 = toggle::unset;
  CHECK(check(one).empty());
  one = microscaling;
  one.prequantize = true;
  CHECK(check(one).empty());
}

TEST_CASE("every violation is reported at once, under its full path, with what to set") {
  configuration wrong = good;
  wrong.policy.gather = false;
  wrong.policy.lora = lora_mode::adapter_only;
  wrong.deep_gemm_e8m0 = toggle::on;
  wrong.reference = {.present = true, .recipe = fp8_recipe::mxfp8, .persistent = true};
  const std::vector<violation> found = check(wrong, "trainer.");
  REQUIRE(found.size() == 5);
  CHECK(found[0].path == "trainer.policy.fp8_param_gather");
  CHECK(found[0].remedy == "set trainer.policy.fp8_param_gather=true");
  CHECK(found[1].path == "trainer.policy.lora");
  CHECK(found[2].path == "VLLM_USE_DEEP_GEMM_E8M0");
  CHECK(found[3].path == "trainer.reference.fp8_recipe");
  CHECK(found[4].path == "trainer.reference.fp8_param");
  for (const violation& one : found) {
    CHECK_FALSE(one.what.empty());
    CHECK(one.remedy.starts_with("set "));
    CHECK(one.message().find('@') == std::string::npos);
  }
}

TEST_CASE("a reference model never steps: it needs no gather and no sync, and absent sections break nothing") {
  configuration one = good;
  one.reference = one.policy;
  one.reference.gather = false;
  one.reference.lora = lora_mode::adapter_only;
  CHECK(check(one).empty());
  one.policy = {.present = false, .recipe = fp8_recipe::mxfp8, .persistent = true};
  one.reference = {.present = false, .recipe = fp8_recipe::mxfp8, .persistent = true};
  CHECK(check(one).empty());
}

TEST_CASE("the environment is read, and written as it was read") {
  std::map<std::string, std::string> set = {
      {environment::fp32_scales, "1"}, {environment::deep_gemm_e8m0, "0"}, {environment::amax_floor, "1e-10"}};
  const auto variable = [&](const char* name) { return set.contains(name) ? set[name].c_str() : nullptr; };
  configuration read;
  CHECK(read_environment(variable, read).empty());
  CHECK(read.fp32_scales == toggle::on);
  CHECK(read.deep_gemm_e8m0 == toggle::off);
  CHECK(read.amax_floor == 1e-10f);
  const auto written = environment_of(read);
  CHECK(std::map<std::string, std::string>(written.begin(), written.end()) == set);
  CHECK(environment_of(configuration{}).empty());
  set.clear();
  configuration untouched = good;
  CHECK(read_environment(variable, untouched).empty());
  CHECK(untouched == good);
}

TEST_CASE("malformed values are refused by name, all of them, and change nothing") {
  for (const char* text :
       {"", "yes", "-1", "-0", "nan", "-nan", "inf", "1e40", "1e-60", " 1", "1 ", "0x1p-3", "+1", "1,5", "1e-10x"}) {
    CAPTURE(text);
    configuration read = good;
    const auto wrong = read_environment([&](const char*) { return text; }, read);
    REQUIRE(wrong.size() == 3);
    CHECK(read == good);
    CHECK(wrong[0].tensor == "NVTE_FP8_BLOCK_SCALING_FP32_SCALES");
    CHECK(wrong[1].tensor == "VLLM_USE_DEEP_GEMM_E8M0");
    CHECK(wrong[2].tensor == "NVTE_FP8_BLOCK_AMAX_EPSILON");
    for (const error& one : wrong) CHECK(one.code == errc::bad_argument);
  }
  CHECK(parse_amax_floor("floor", "1e40").error().message() == "floor: does not fit FP32: '1e40'");
  CHECK(parse_amax_floor("floor", "-1").error().message() == "floor: is negative: '-1'");
  CHECK(parse_amax_floor("floor", "nan").error().message() == "floor: is NaN: 'nan'");
  CHECK(parse_amax_floor("floor", "inf").error().message() == "floor: is infinite: 'inf'");
  CHECK(parse_amax_floor("floor", "0").value() == 0.0f);
  CHECK(parse_amax_floor("floor", "0.0001").value() == 1e-4f);
}
