// SPDX-License-Identifier: Apache-2.0
// Vectors computed elsewhere: Transformer Engine's by emulation with CUDA's own casts, the E8M0 tables by exact
// rational arithmetic, and the worked cases of docs/numerics.md.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <utility>

#include <fp8wire/quant/presets/all.hpp>

#include "tensors.hpp"

using namespace fp8wire;
using test::bits;
using test::hex_list;
using test::quantized;

template <class Visit> static int each_line(const char* path, Visit visit) {
  std::ifstream file(path);
  REQUIRE(file);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    CAPTURE(line);
    std::istringstream words(line);
    visit(words);
    ++lines;
  }
  return lines;
}

template <any_recipe Recipe, class In>
static void check_block(const std::vector<u32>& inputs, float floor, u32 scale, const std::vector<u32>& codes) {
  constexpr i64 width = Recipe::block::cols;
  std::vector<In> weights(static_cast<std::size_t>(width), In{});
  for (std::size_t i = 0; i < inputs.size(); ++i) weights[i] = test::exactly<In>(inputs[i]);
  auto got = quantized<Recipe, In>(weights, 1, width, floor);
  CHECK(bits(got.scales[0]) == scale);
  for (std::size_t i = 0; i < got.codes.size(); ++i) CHECK(got.codes[i] == (i < codes.size() ? codes[i] : 0u));
}
template <any_recipe Recipe>
static void check_block(const std::string& input, const std::vector<u32>& inputs, u32 floor, u32 scale,
                        const std::vector<u32>& codes) {
  if (input == "f32") check_block<Recipe, float>(inputs, float_of(floor), scale, codes);
  else if (input == "bf16") check_block<Recipe, bf16>(inputs, float_of(floor), scale, codes);
  else check_block<Recipe, fp16>(inputs, float_of(floor), scale, codes);
}

TEST_CASE("Transformer Engine's block scaling vectors") {
  const int lines = each_line("vectors/te_block.txt", [](std::istringstream& words) {
    std::string id, input, element, mode, floor, inputs, scale, codes;
    words >> id >> input >> element >> mode >> floor >> inputs >> scale >> codes;
    const auto check = [&]<class Recipe>(Recipe) {
      check_block<Recipe>(input, hex_list(inputs), hex_list(floor)[0], hex_list(scale)[0], hex_list(codes));
    };
    if (element == "E4M3" && mode == "pow2") {
      check(presets::te_block_pow2::recipe{});
      check(presets::te_row_block_pow2::recipe{});
    } else if (element == "E4M3") {
      check(presets::te_block::recipe{});
      check(presets::te_row_block::recipe{});
    } else if (mode == "pow2") {
      check(presets::te_block_e5m2_pow2::recipe{});
    } else {
      check(presets::te_block_e5m2::recipe{});
    }
  });
  CHECK(lines == 44);
}

TEST_CASE("Transformer Engine's scales from an amax, direct and sharded") {
  const int lines = each_line("vectors/te_scales.txt", [](std::istringstream& words) {
    std::string id, mode;
    u32 n[8];
    words >> id >> mode >> std::hex;
    for (u32& number : n) words >> number;
    const auto check = [&]<class Direct, class Sharded>(Direct, Sharded) {
      const auto from_f32 = reference::block_scale<Direct, float>(n[1], float_of(n[0]));
      const auto from_bf16 = reference::block_scale<Direct, bf16>(n[1], float_of(n[0]));
      const auto sharded = reference::block_scale<Sharded, bf16>(n[1], float_of(n[0]));
      CHECK(bits_of(from_f32.operand) == n[2]);
      CHECK(bits_of(from_f32.stored) == n[3]);
      CHECK(bits_of(from_bf16.operand) == n[4]);
      CHECK(bits_of(from_bf16.stored) == n[5]);
      CHECK(bits_of(sharded.operand) == n[6]);
      CHECK(bits_of(sharded.stored) == n[7]);
    };
    if (mode == "pow2") check(presets::te_block_pow2::recipe{}, presets::te_sharded_pow2::recipe{});
    else check(presets::te_block::recipe{}, presets::te_sharded::recipe{});
  });
  CHECK(lines == 15);
}

TEST_CASE("Transformer Engine's MXFP8 vectors, generic, fma and sharded") {
  const int lines = each_line("vectors/te_mxfp8.txt", [](std::istringstream& words) {
    std::string id, element, inputs, byte, codes, fma_codes, sharded_byte, sharded_codes;
    words >> id >> element >> inputs >> byte >> codes >> fma_codes >> sharded_byte >> sharded_codes;
    const std::vector<u32> in = hex_list(inputs);
    if (element == "E5M2")
      return check_block<presets::te_mxfp8_e5m2::recipe, float>(in, 0, hex_list(byte)[0], hex_list(codes));
    check_block<presets::te_mxfp8::recipe, float>(in, 0, hex_list(byte)[0], hex_list(codes));
    check_block<presets::te_mxfp8_fma::recipe, float>(in, 0, hex_list(byte)[0], hex_list(fma_codes));
    // The sharded path multiplies in FTZ only for BF16 amax; the vectors name the bytes where that shows.
    check_block<presets::te_mxfp8_sharded::recipe, float>(in, 0, hex_list(sharded_byte)[0], hex_list(sharded_codes));
  });
  CHECK(lines == 30);
}

template <any_recipe Recipe> static int byte_of(u32 amax) {
  return reference::block_scale<Recipe, float>(amax, 0.0f).stored.bits;
}

TEST_CASE("the E8M0 byte of an amax under every rule") {
  const int lines = each_line("vectors/scale_bytes.txt", [](std::istringstream& words) {
    std::string amax_text, n[15];
    words >> amax_text;
    for (std::string& number : n) words >> number;
    const u32 amax = hex_list(amax_text)[0];
    const auto check = [&](const std::string& expected, int got) {
      if (expected != "-") CHECK(got == std::stoi(expected));
    };
    const bool nan = f32::is_nan(amax), infinite = f32::is_inf(amax);
    check(n[0], byte_of<presets::ocp_mxfp8::recipe>(amax));
    if (!nan) check(n[3], byte_of<presets::te_mxfp8::recipe>(amax));
    using torchao_e5m2 = recipe<e5m2, block<1, 32>, rules::torchao_mx_floor>;
    using torchao_even_e5m2 = recipe<e5m2, block<1, 32>, rules::torchao_mx_even>;
    if (!infinite) {  // the torchao of these vectors made Inf NaN; 0.18.0 counts it as 2^128
      check(n[0], byte_of<presets::torchao_mxfp8_floor::recipe>(amax));
      check(n[1], byte_of<presets::torchao_mxfp8_ceil::recipe>(amax));
      // Likewise an amax that rounds to 2^128.
      check(n[2] == "255" && !nan ? "247" : n[2], byte_of<presets::torchao_mxfp8_even::recipe>(amax));
      // The exact quotient of 04600001 and 448 is above 2^-127; the FP32 one rounds down to it.
      const std::string exact = amax == 0x04600001u ? "0" : n[4];
      check(exact, byte_of<presets::torchao_mxfp8_rceil::recipe>(amax));
      check(exact, byte_of<presets::skyrl_mxfp8::recipe>(amax));
      check(n[6], byte_of<torchao_e5m2>(amax));
      check(n[8] == "255" && !nan ? "240" : n[8], byte_of<torchao_even_e5m2>(amax));
    }
    check(n[5], byte_of<presets::compressed_tensors_mxfp8::recipe>(amax));
    if (!nan) check(n[9], byte_of<presets::te_mxfp8_e5m2::recipe>(amax));
    const float value = float_of(amax);
    using enum e8m0_rounding;
    check(n[10], to_e8m0<up>(value).bits);
    check(n[11], to_e8m0<up, false>(value).bits);
    check(n[12], to_e8m0<down>(value).bits);
    check(n[13], to_e8m0<down, false>(value).bits);
    check(n[14], to_e8m0<nearest, false>(value).bits);
    if (f32::is_normal(amax) && amax > 0x38D1B717u)
      check(n[3], reference::block_scale<presets::deepgemm_block_e8m0::recipe, float>(amax, 1e-4f).stored.bits);
  });
  CHECK(lines == 32);
}

TEST_CASE("zero blocks have the scale that each tool gives them") {
  const auto zero = []<class Preset>(Preset) {
    using recipe = typename Preset::recipe;
    return bits(reference::block_scale<recipe, bf16>(0, recipe::num.amax_floor).stored);
  };
  CHECK(zero(presets::te_mxfp8{}) == 0);
  CHECK(zero(presets::torchao_mxfp8_floor{}) == 0);
  CHECK(zero(presets::compressed_tensors_mxfp8{}) == 0);
  CHECK(zero(presets::vllm_mxfp8_fallback{}) == 1);
  CHECK(zero(presets::deepgemm_block_e8m0{}) == 105);
  CHECK(zero(presets::vllm_block_pow2{}) == 94u << 23);
  CHECK(zero(presets::skyrl_block_pow2{}) == 85u << 23);
  CHECK(zero(presets::te_block{}) == f32::one);
  CHECK(zero(presets::nemo_block{}) == f32::one);
  CHECK(zero(presets::nemo_block_pow2{}) == f32::one);
  CHECK(zero(presets::vllm_block{}) == bits_of(ieee::div(1e-10f, 448.0f)));
  CHECK(bits(reference::block_scale<presets::vllm_block::recipe, bf16>(0, 0.0f).stored) == f32::one);
  CHECK(zero(presets::compressed_tensors_block{}) == 0x3C00);
  CHECK(zero(presets::compressed_tensors_block_fp32{}) == 0x34000000);
  CHECK(reference::block_scale<presets::skyrl_mxfp8::recipe, bf16>(0, 1e-10f).stored.bits == 85);
}

template <any_recipe Recipe> static void check_case(u16 amax, u16 x, u32 scale, int code) {
  const std::vector<bf16> weights{{amax}, {x}};
  auto got = quantized<Recipe, bf16>(weights, 1, 2);
  CHECK(bits(got.scales[0]) == scale);
  CHECK(got.codes[1] == code);
}

TEST_CASE("one BF16 weight tells the orders of operations apart") {
  using v1 = presets::vllm_block::recipe;
  using v2 = presets::deepgemm_block_cpu::recipe;
  using v3 = presets::deepgemm_block::recipe;
  using v5 = presets::te_block::recipe;
  using v6 = presets::nemo_block::recipe;
  check_case<v1>(0x3F9A, 0x39D1, 0x3B300000, 0x22);
  check_case<v3>(0x3F9A, 0x39D1, 0x3B300001, 0x21);
  check_case<v1>(0x3F9A, 0x39FD, 0x3B300000, 0x24);
  check_case<v3>(0x3F9A, 0x39FD, 0x3B300001, 0x23);
  check_case<v1>(0x3FA8, 0x398A, 0x3B400000, 0x1C);
  check_case<v3>(0x3FA8, 0x398A, 0x3B400001, 0x1B);
  check_case<v1>(0x3FC4, 0x39AF, 0x3B600000, 0x1C);
  check_case<v5>(0x3FC4, 0x39AF, 0x3B5FFFFF, 0x1D);
  check_case<v1>(0x3FCC, 0x3999, 0x3B692492, 0x1A);
  check_case<v5>(0x3FCC, 0x3999, 0x3B692492, 0x1B);
  check_case<v1>(0x3F8A, 0x39CF, 0x3B1DB6DB, 0x22);
  check_case<v2>(0x3F8A, 0x39CF, 0x3B1DB6DB, 0x23);
  check_case<v5>(0x3F8A, 0x39CF, 0x3B1DB6DC, 0x22);
  check_case<v6>(0x3F8A, 0x39CF, 0x3B1DB6DB, 0x23);
  check_case<v1>(0x3FB8, 0x398A, 0x3B524925, 0x1A);
  check_case<v5>(0x3FB8, 0x398A, 0x3B524925, 0x1A);
  check_case<v6>(0x3FB8, 0x398A, 0x3B524924, 0x1B);
  check_case<v2>(0x3F98, 0x39E4, 0x3B2DB6DB, 0x23);
  check_case<v5>(0x3F98, 0x39E4, 0x3B2DB6DC, 0x22);
}

TEST_CASE("worked numeric cases") {
  using v1 = presets::vllm_block::recipe;
  // The floor is a maximum, not an addend.
  auto floored = quantized<v1, float>({float_of(0x38D1B717u)}, 1, 1, float_of(0x38D1B717u));
  CHECK(bits(floored.scales[0]) == 0x346FACADu);
  CHECK(floored.codes[0] == 0x7E);
  // A true division: the weight sits on a midpoint once it is scaled.
  auto division = quantized<v1, bf16>({{0x3F8A}, {0x3F4F}}, 1, 2);
  CHECK(bits(division.scales[0]) == 0x3B1DB6DBu);
  CHECK((division.codes[0] == 0x7E && division.codes[1] == 0x7A));
  // The scale is rounded to a power of two before anything is divided by it: 300 becomes 288.
  auto rounded = quantized<presets::skyrl_block_pow2::recipe, float>({300.0f, 100.0f}, 1, 2);
  CHECK(rounded.scales[0] == 1.0f);
  CHECK((rounded.codes[0] == 0x79 && rounded.codes[1] == 0x6C));
  // Scales are positive whatever the sign of the largest weight.
  auto positive = quantized<v1, float>({448.0f, -448.0f, -1.0f}, 1, 3);
  CHECK(positive.scales[0] == 1.0f);
  CHECK((positive.codes[0] == 0x7E && positive.codes[1] == 0xFE && positive.codes[2] == 0xB8));
  // The largest FP32 amax whose 448/amax overflows.
  CHECK(bits_of(ieee::div(448.0f, float_of(0x03E00000u))) == f32::infinity);
  CHECK(bits_of(ieee::div(448.0f, float_of(0x03E00001u))) < f32::infinity);
  // A scale one unit above 2^20: bits say 2^21, ceil(log2f()) would say 2^20.
  CHECK(byte_of<presets::skyrl_mxfp8::recipe>(0x4DE00001u) == 148);
  const std::pair<u32, int> table[] = {{0x3FDFFFFFu, 119}, {0x3FE00000u, 119}, {0x3FE00001u, 120},
                                       {0x43DFFFFFu, 127}, {0x43E00000u, 127}, {0x43E00001u, 128},
                                       {0x455FFFFFu, 130}, {0x45600000u, 130}, {0x45600001u, 131}};
  for (const auto& [amax, byte] : table) {
    CHECK(byte_of<presets::skyrl_mxfp8::recipe>(amax) == byte);
    CHECK(byte_of<presets::te_mxfp8::recipe>(amax) == byte);
  }
  // The exponent without the 8 is 7 or 8 above the others'.
  CHECK(byte_of<presets::nemo_mxfp8::recipe>(bits_of(1.0f)) == 127);
  CHECK(byte_of<presets::nemo_mxfp8::recipe>(bits_of(448.0f)) == 135);
  CHECK(byte_of<presets::nemo_mxfp8::recipe>(bits_of(1.9f)) - byte_of<presets::te_mxfp8::recipe>(bits_of(1.9f)) == 7);
}

TEST_CASE("tiny MXFP8 blocks keep their values down to byte 0") {
  std::vector<bf16> tiny(32);
  const u16 first[] = {0x8335, 0x83D5, 0x0437, 0x046F, 0x000A, 0x82D3};
  for (std::size_t i = 0; i < 6; ++i) tiny[i].bits = first[i];
  auto got = quantized<presets::te_mxfp8::recipe, bf16>(tiny, 1, 32);
  CHECK(got.scales[0].bits == 1);
  const u8 codes[] = {0xE3, 0xED, 0x73, 0x77, 0x1A, 0xDD};
  for (std::size_t i = 0; i < 6; ++i) CHECK(got.codes[i] == codes[i]);
  std::vector<bf16> smaller(32);
  const u16 second[] = {0x03AA, 0x837F, 0x0123, 0x8000};
  for (std::size_t i = 0; i < 4; ++i) smaller[i].bits = second[i];
  auto zero = quantized<presets::te_mxfp8::recipe, bf16>(smaller, 1, 32);
  CHECK(zero.scales[0].bits == 0);
  const u8 zero_codes[] = {0x73, 0xF0, 0x4A, 0x80};
  for (std::size_t i = 0; i < 4; ++i) CHECK(zero.codes[i] == zero_codes[i]);
  using at_least_one = recipe<e4m3, block<1, 32>, rules::mx<mx_policy{.smallest_byte = 1}>>;
  auto one = quantized<at_least_one, bf16>(smaller, 1, 32);
  CHECK(one.scales[0].bits == 1);
  const u8 one_codes[] = {0x6B, 0xE8, 0x42, 0x80};
  for (std::size_t i = 0; i < 4; ++i) CHECK(one.codes[i] == one_codes[i]);
}

TEST_CASE("Inf and NaN in a block become what each tool makes of them") {
  const float inf = float_of(f32::infinity), nan = float_of(f32::nan);
  const auto check = []<class Preset>(Preset, std::vector<float> weights, u32 scale, std::vector<u32> codes) {
    using recipe = typename Preset::recipe;
    weights.resize(32);
    auto got = quantized<recipe, float>(weights, 1, 32);
    CAPTURE(std::string(Preset::name));
    CHECK(bits(got.scales[0]) == scale);
    for (std::size_t i = 0; i < codes.size(); ++i) CHECK(got.codes[i] == codes[i]);
  };
  check(presets::vllm_block{}, {1.0f, inf, 2.0f}, f32::infinity, {0x00, 0xFE, 0x00});
  check(presets::te_block{}, {1.0f, inf, 500.0f}, f32::one, {0x38, 0x7E, 0x7E});
  check(presets::nemo_block{}, {1.0f, -inf, 500.0f}, f32::one, {0x38, 0xFE, 0x7E});
  check(presets::torchao_mxfp8_floor{}, {1.0f, inf, 0.0f}, 247, {0x00, 0x7E, 0x00});
  check(presets::torchao_mxfp8_rceil{}, {1.0f, inf, 0.0f}, 254, {0x00, 0x7E, 0x00});
  check(presets::ocp_mxfp8{}, {1.0f, inf, 0.0f}, 255, {0x7F, 0x7F, 0x7F});
  check(presets::flashinfer_mxfp8{}, {1.0f, inf, 0.0f}, 254, {0x00, 0x7F, 0x00});
  check(presets::te_block{}, {448.0f, nan, 1.0f}, f32::one, {0x7E, 0x7F, 0x38});
  check(presets::vllm_block{}, {448.0f, nan, 1.0f}, f32::one, {0x7E, 0xFE, 0x38});
  check(presets::torchao_block{}, {448.0f, nan, 1.0f}, f32::nan, {0x7F, 0x7F, 0x7F});
  check(presets::torchao_mxfp8_floor{}, {448.0f, nan, 1.0f}, 255, {0x00, 0x7F, 0x00});
  check(presets::vllm_mxfp8_fallback{}, {448.0f, nan, 1.0f}, 0, {0x7F, 0x7F, 0x7F});
  check(presets::nemo_block_pow2{}, {448.0f, nan, 1.0f}, f32::one, {0x7E, 0x7F, 0x38});
  check(presets::deepgemm_block_pow2{}, {448.0f, nan, 1.0f}, 254u << 23, {0x00, 0x7F, 0x00});
}

TEST_CASE("NeMo's scale is zero, and zeros become NaN, where 448/amax overflows") {
  const float tiny = float_of(0x03800000u);
  auto got = quantized<presets::nemo_block::recipe, float>({tiny, 0.0f, -tiny}, 1, 3);
  CHECK(bits(got.scales[0]) == 0);
  CHECK((got.codes[0] == 0x7E && got.codes[1] == 0x7F && got.codes[2] == 0xFE));
}

TEST_CASE("NeMo's edge blocks see the matrix's last element, the others see zeros") {
  std::vector<float> weights(130 * 130, 1.0f);
  weights.back() = 64.0f;
  auto nemo = quantized<presets::nemo_block::recipe, float>(weights, 130, 130);
  auto te = quantized<presets::te_block::recipe, float>(weights, 130, 130);
  const float one = te.scales[0], large = te.scales[3];
  CHECK(large == 64 * one);
  CHECK((te.scales[1] == one && te.scales[2] == one));
  CHECK((nemo.scales[0] == one && nemo.scales[1] == large && nemo.scales[2] == large && nemo.scales[3] == large));
}
