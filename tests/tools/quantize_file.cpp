// SPDX-License-Identifier: Apache-2.0
// Our side of every comparison with somebody else's quantizer: raw weights in, raw codes and scales out, by the scalar
// definition of a preset.
//   quantize_file --list                                                  one preset a line, tab-separated
//   quantize_file NAME SCALE ELEMENT BLOCK DTYPE ROWS COLS [FLOOR] < weights > codes then scales
//   quantize_file --encode CONVERTER < FP32 numbers > codes              e4m3, e5m2-ml_dtypes, e4m3fnuz-torch ...
//   quantize_file --digest                                                one hash a preset, over edge cases and noise
//   quantize_file --digest-ftz                                            the same with FTZ and DAZ set
// "-" for SCALE, ELEMENT or BLOCK is the preset's default; DTYPE: f32, bf16 or f16; FLOOR: hexadecimal FP32 bits.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fp8wire/format/fnuz.hpp>
#include <fp8wire/quant/presets/all.hpp>
#include <fp8wire/quant/reference.hpp>

#include "flush_subnormals.hpp"

using namespace fp8wire;

static std::string_view word(const char* argument) { return std::strcmp(argument, "-") == 0 ? "" : argument; }
static void print(std::string_view text, char after) {
  std::printf("%.*s%c", static_cast<int>(text.size()), text.data(), after);
}

template <any_recipe Recipe> struct outputs {
  std::vector<u8> codes;
  std::vector<stored_t<Recipe>> scales;
};

template <any_recipe Recipe, class In>
static outputs<Recipe> run(const std::vector<In>& weights, i64 rows, i64 cols, float floor) {
  const i64 down = scale_rows<typename Recipe::block>(rows), across = scale_cols<typename Recipe::block>(cols);
  outputs<Recipe> out{std::vector<u8>(static_cast<std::size_t>(rows * cols)),
                      std::vector<stored_t<Recipe>>(static_cast<std::size_t>(down * across))};
  for (i64 row = 0; row < down; ++row)
    reference::quantize_block_row<Recipe, In>(dense(weights.data(), rows, cols), row,
                                              dense(out.codes.data(), rows, cols),
                                              dense(out.scales.data(), down, across), floor);
  return out;
}

template <any_recipe Recipe, class In> static int convert(i64 rows, i64 cols, float floor) {
  std::vector<In> weights(static_cast<std::size_t>(rows * cols));
  if (std::fread(weights.data(), sizeof(In), weights.size(), stdin) != weights.size()) {
    std::fputs("too few weights on stdin\n", stderr);
    return 1;
  }
  const auto out = run<Recipe, In>(weights, rows, cols, floor);
  std::fwrite(out.codes.data(), 1, out.codes.size(), stdout);
  std::fwrite(out.scales.data(), sizeof(out.scales[0]), out.scales.size(), stdout);
  return 0;
}

static int list() {
  presets::for_each([]<class Preset>() {
    using recipe = typename Preset::recipe;
    print(Preset::name, '\t');
    print(Preset::scale, '\t');
    print(recipe::element::id, '\t');
    print(block_name<typename recipe::block>(), '\t');
    print(name_of(input_traits<stored_t<recipe>>::stored_as), '\t');
    std::printf("%08X\t%016llX\t%d\n", bits_of(recipe::num.amax_floor),
                static_cast<unsigned long long>(grid_id<recipe>()), Preset::modelled ? 1 : 0);
  });
  return 0;
}

// Edge cases in every position that matters, then noise of all magnitudes: 256 rows of 160 columns.
static std::vector<float> edge_weights() {
  const u32 edges[] = {0,          0x80000000, 1,          0x80000001, 0x00400000, 0x007FFFFF, 0x00800000, 0x03E00000,
                       0x03E00001, 0x04600000, 0x04600001, 0x04DFFFFF, 0x04E00000, 0x2EDBE6FF, 0x38D1B717, 0x3A800000,
                       0x3B124925, 0x3F800000, 0x3F880000, 0x3F880001, 0x3FE00000, 0x3FE00001, 0x3FF80000, 0x43E00000,
                       0x43E80000, 0x43E80001, 0x477FE000, 0x7F600000, 0x7F780000, 0x7F7F0000, 0x7F7FFFFF, 0x7F800000,
                       0x7FC00000, 0xFFC00000, 0xFF800000, 0x02000000};
  constexpr std::size_t edge_count = sizeof(edges) / sizeof(edges[0]);
  std::vector<float> weights(256 * 160);
  u64 state = 0x9E3779B97F4A7C15u;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const u32 random = static_cast<u32>(state >> 32);
    const std::size_t row = i / 160;
    // Rows 0..127: blocks of 32 around one edge value. The others: random signs and mantissas, exponents of one row
    // alike.
    if (row < 128)
      weights[i] = i % 32 < 3 ? float_of(edges[(i / 32) % edge_count]) : float_of((random & 0x807FFFFFu) | 0x00800000u);
    else weights[i] = float_of((random & 0x807FFFFFu) | ((static_cast<u32>(row - 128) + (random >> 23) % 4) << 23));
  }
  return weights;
}

template <class Preset, class In> static u64 digest(const std::vector<float>& weights, u64 state) {
  using recipe = typename Preset::recipe;
  std::vector<In> in(weights.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = from_float<In>(weights[i]);
  const auto out = run<recipe, In>(in, 255, 160, recipe::num.amax_floor);
  for (const u8 code : out.codes) state = hash(u64{code}, state);
  for (const auto& scale : out.scales) {
    if constexpr (std::same_as<stored_t<recipe>, float>) state = hash(u64{bits_of(scale)}, state);
    else state = hash(u64{scale.bits}, state);
  }
  // And back: dequantizing is a product as well.
  for (std::size_t i = 0; i < out.codes.size(); i += 37)
    state = hash(u64{bits_of(reference::decode<recipe>(out.codes[i], out.scales[i % out.scales.size()]))}, state);
  return state;
}

static int digests() {
  const std::vector<float> weights = edge_weights();
  presets::for_each([&]<class Preset>() {
    print(Preset::name, ' ');
    print(Preset::scale, ' ');
    print(Preset::recipe::element::id, ' ');
    print(block_name<typename Preset::recipe::block>(), ' ');
    std::printf("%016llX\n",
                static_cast<unsigned long long>(digest<Preset, bf16>(weights, digest<Preset, float>(weights, 1))));
  });
  return 0;
}

template <class Format> static int encode_stdin() {
  std::vector<u32> block(1 << 16);
  std::vector<u8> codes(block.size());
  while (const std::size_t count = std::fread(block.data(), 4, block.size(), stdin)) {
    for (std::size_t i = 0; i < count; ++i) codes[i] = Format::encode(float_of(block[i]));
    std::fwrite(codes.data(), 1, count, stdout);
  }
  return 0;
}

static int encode(std::string_view converter) {
  if (converter == "e4m3") return encode_stdin<e4m3>();
  if (converter == "e5m2") return encode_stdin<e5m2>();
  if (converter == "e4m3-torch") return encode_stdin<e4m3_as<casts::torch_saturating>>();
  if (converter == "e4m3-torch-2.11") return encode_stdin<e4m3_as<casts::torch_before_2_12>>();
  if (converter == "e5m2-torch") return encode_stdin<e5m2_as<casts::torch_before_2_12>>();
  if (converter == "e4m3fnuz-torch") return encode_stdin<e4m3fnuz_as<casts::torch_before_2_12>>();
  if (converter == "e5m2fnuz-torch") return encode_stdin<e5m2fnuz_as<casts::torch_before_2_12>>();
  if (converter == "e4m3-ml_dtypes") return encode_stdin<e4m3_as<casts::ml_dtypes>>();
  if (converter == "e5m2-ml_dtypes") return encode_stdin<e5m2_as<casts::ml_dtypes>>();
  if (converter == "e4m3fnuz-ml_dtypes") return encode_stdin<e4m3fnuz_as<casts::ml_dtypes>>();
  if (converter == "e5m2fnuz-ml_dtypes") return encode_stdin<e5m2fnuz_as<casts::ml_dtypes>>();
  if (converter == "e8m0-torch") {
    struct byte {
      static u8 encode(float x) { return to_e8m0<e8m0_rounding::nearest, false>(x).bits; }
    };
    return encode_stdin<byte>();
  }
  std::fputs("no such converter\n", stderr);
  return 2;
}

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--encode") == 0) return encode(argv[2]);
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) return list();
  if (argc == 2 && std::strcmp(argv[1], "--digest") == 0) return digests();
  if (argc == 2 && std::strcmp(argv[1], "--digest-ftz") == 0) {
    flush_subnormals();
    return digests();
  }
  if (argc < 8) {
    std::fputs(
        "usage: quantize_file --list | --encode CONVERTER | --digest | --digest-ftz | NAME SCALE ELEMENT BLOCK DTYPE "
        "ROWS COLS [FLOOR]\n",
        stderr);
    return 2;
  }
  const i64 rows = std::atoll(argv[6]), cols = std::atoll(argv[7]);
  const std::string_view type = argv[5];
  int status = 2;
  const bool found = presets::visit({word(argv[1]), word(argv[2]), word(argv[3]), word(argv[4])}, [&]<class Preset>() {
    using recipe = typename Preset::recipe;
    const float floor =
        argc > 8 ? float_of(static_cast<u32>(std::strtoul(argv[8], nullptr, 16))) : recipe::num.amax_floor;
    if (type == "f32") status = convert<recipe, float>(rows, cols, floor);
    if (type == "bf16") status = convert<recipe, bf16>(rows, cols, floor);
    if (type == "f16") status = convert<recipe, fp16>(rows, cols, floor);
  });
  if (!found) std::fprintf(stderr, "%s: no such preset\n", argv[1]);
  return status;
}
