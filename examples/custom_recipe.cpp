// SPDX-License-Identifier: Apache-2.0
// A scale rule and an element format of one's own, used like the built-in ones: converts a safetensors file with them.
// Usage: custom_recipe INPUT.safetensors OUTPUT.safetensors
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <fp8wire/format/minifloat.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors.hpp>
#include <fp8wire/io/safetensors_writer.hpp>
#include <fp8wire/quant/quantize.hpp>
#include <fp8wire/quant/verify.hpp>

namespace mine {

/// Three exponent and four mantissa bits: half the error of E4M3, a fourth of its range. Encode, decode and constexpr
/// come with minifloat; a format that is no minifloat gives the same five names itself.
struct e3m4 : fp8wire::minifloat<fp8wire::minifloat_shape{3, 4, 3, fp8wire::specials::fn}> {
  static constexpr std::string_view id = "mine-e3m4";  // goes into the grid id
  static constexpr fp8wire::dtype stored_as = fp8wire::dtype::uint8;  // no dtype of safetensors says E3M4
};

/// The scale is a power of two that leaves one binade free above the largest weight, so that an optimizer's next steps
/// need no new scale. It is stored as BF16, which holds every power of two.
struct headroom {
  using stored = fp8wire::bf16;
  static constexpr std::string_view id = "mine-headroom";
  static constexpr bool nan_poisons_amax = false;  // NaN weights leave the scale alone
  FP8WIRE_HD static constexpr fp8wire::scale_pair<stored> make(float amax, fp8wire::limits bounds) noexcept {
    // Total: zero gives byte 0, Inf the largest; ieee::div has the same bits under every compiler flag.
    const fp8wire::e8m0 byte = fp8wire::e8m0_round_up(fp8wire::ieee::div(amax, bounds.element_max));
    const fp8wire::e8m0 above{static_cast<fp8wire::u8>(byte.bits < 253 ? byte.bits + 1 : 253)};
    return {fp8wire::to_bf16(fp8wire::to_float(above)), fp8wire::reciprocal(above)};
  }
  FP8WIRE_HD static constexpr float apply(float element, float operand) noexcept {
    return fp8wire::ieee::mul(element, operand);
  }
};

using recipe = fp8wire::recipe<e3m4, fp8wire::block<64, 64>, headroom>;

}  // namespace mine

using namespace fp8wire;

static bool is_quantized(const safetensors_entry& tensor) {
  const std::string_view name = tensor.name, suffix = ".weight";
  const bool floating = tensor.dtype == dtype::f32 || tensor.dtype == dtype::bf16 || tensor.dtype == dtype::f16;
  return floating && tensor.shape.size() == 2 && name.size() > suffix.size() && name.ends_with(suffix);
}

/// Quantizes one matrix of the file into its codes and scales in the output. Returns whether all weights are finite.
template <class In> static bool convert(const std::byte* weights, i64 rows, i64 cols, std::byte* codes,
                                        std::byte* scales) {
  // Nothing in a safetensors file is aligned for sure: weights and scales pass through memory that is.
  std::vector<In> in(static_cast<std::size_t>(rows * cols));
  const i64 down = scale_rows<mine::recipe::block>(rows), across = scale_cols<mine::recipe::block>(cols);
  std::vector<bf16> out(static_cast<std::size_t>(down * across));
  if (!in.empty()) std::memcpy(in.data(), weights, in.size() * sizeof(In));
  const auto view = dense<const In>(in.data(), rows, cols);
  const pair_view<mine::recipe> pair{dense(reinterpret_cast<u8*>(codes), rows, cols), dense(out.data(), down, across)};
  const status found = quantize<mine::recipe, In>(view, pair);
  if (verify<mine::recipe, In>(view, pair).found) std::abort();  // what a fast path wrote is what the rule says
  if (!out.empty()) std::memcpy(scales, out.data(), out.size() * sizeof(bf16));
  return found.finite();
}

static int fail(const error& failure) {
  std::fprintf(stderr, "custom_recipe: %s\n", failure.message().c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s INPUT.safetensors OUTPUT.safetensors\n", argv[0]), 2;
  const auto input = mapped_file::open(argv[1]);
  if (!input) return fail(input.error());
  const auto header = read_safetensors(input->bytes(), argv[1]);
  if (!header) return fail(header.error());

  std::vector<tensor_spec> specs;
  for (const safetensors_entry& tensor : header->tensors) {
    if (!is_quantized(tensor)) {
      specs.push_back(tensor);
      continue;
    }
    specs.push_back({tensor.name, mine::recipe::element::stored_as, tensor.shape});
    specs.push_back(
        {tensor.name + "_scale",
         dtype::bf16,
         {scale_rows<mine::recipe::block>(tensor.shape[0]), scale_cols<mine::recipe::block>(tensor.shape[1])}});
  }
  const auto layout = lay_out_safetensors(std::move(specs), header->metadata, argv[2]);
  if (!layout) return fail(layout.error());
  const auto output = mapped_output::create(argv[2], layout->header.file_bytes());
  if (!output) return fail(output.error());

  std::byte* const to = output->bytes().data() + layout->header.data_begin;
  const std::byte* const from = input->bytes().data() + header->data_begin;
  std::memcpy(output->bytes().data(), layout->head.data(), layout->head.size());
  int quantized = 0;
  for (const safetensors_entry& tensor : header->tensors) {
    const std::byte* const weights = from + tensor.begin;
    std::byte* const codes = to + layout->header.find(tensor.name)->begin;
    if (!is_quantized(tensor)) {
      std::memcpy(codes, weights, static_cast<std::size_t>(tensor.end - tensor.begin));
      continue;
    }
    std::byte* const scales = to + layout->header.find(tensor.name + "_scale")->begin;
    const i64 rows = tensor.shape[0], cols = tensor.shape[1];
    const bool finite = tensor.dtype == dtype::f32    ? convert<float>(weights, rows, cols, codes, scales)
                        : tensor.dtype == dtype::bf16 ? convert<bf16>(weights, rows, cols, codes, scales)
                                                      : convert<fp16>(weights, rows, cols, codes, scales);
    if (!finite) {
      std::remove(argv[2]);
      return fail(make_error(errc::nonfinite, tensor.name, "holds NaN or Inf"));
    }
    ++quantized;
  }
  std::printf("%d of %zu tensors on grid %016llx\n", quantized, header->tensors.size(),
              static_cast<unsigned long long>(grid_id<mine::recipe>()));
}
