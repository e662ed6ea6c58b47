// SPDX-License-Identifier: Apache-2.0
/// Walks codes and their scales block row by block row and lets a kernel turn them into weights.
#ifndef FP8WIRE_QUANT_HOST_DECODE_HPP
#define FP8WIRE_QUANT_HOST_DECODE_HPP
#include <fp8wire/quant/host/bands.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// How the codes of one block become weights.
template <class Out> struct alignas(64) decode_state {
  // Weights of the eight mantissas, less their exponent, and of the eight subnormal codes: for BF16 their low bytes and
  // then their high ones, for FP32 as they are.
  u8 table[8 * sizeof(float) * 2];
  float scale;
  void (*definition)(const u8* codes, Out* out, i64 count, float scale) noexcept;
  bool tabled, finite;  // finite: vectors multiply; otherwise the definition does
};

/// What a vector body does for rows of codes; as row_kernel.
template <class Out> struct decode_kernel {
  void (*row[2])(const u8* codes, Out* out, i64 cols, i64 block_cols, const decode_state<Out>* blocks) noexcept;
  void (*fence)() noexcept;
  i64 alignment;
  i64 (*octaves[2])(const u8* codes, const e8m0* scales, Out* out, i64 blocks) noexcept;  // null where there is none
};

template <any_recipe Recipe, class Out> struct decode_job {
  matrix_view<const u8> codes;
  matrix_view<const stored_t<Recipe>> scales;
  matrix_view<Out> out;
  constexpr i64 band_rows() const noexcept { return block_extent(Recipe::block::rows, out.rows); }
  constexpr i64 bands() const noexcept { return out.batch * scales.rows; }
};

template <any_recipe Recipe, class Out> struct decode_facts {
  static constexpr bool bare_e4m3 = host_facts<Recipe, bf16>::bare_e4m3;
  static constexpr bool table = std::same_as<Out, bf16> ? host_facts<Recipe, bf16>::large_block
                                                        : Recipe::block::cols == whole || Recipe::block::cols >= 128;
  static constexpr bool octaves = bare_e4m3 && std::same_as<Out, bf16> && std::same_as<stored_t<Recipe>, e8m0> &&
                                  Recipe::block::rows == 1 && Recipe::block::cols == 32;
  static constexpr bool served =
      bare_e4m3 && !std::same_as<Out, fp16> && (Recipe::block::cols == whole || Recipe::block::cols % 32 == 0);
};

namespace FP8WIRE_CG {

/// Weights of `count` codes by the definition.
template <any_recipe Recipe, class Out>
FP8WIRE_NOINLINE void decode_by_reference(const u8* codes, Out* out, i64 count, float scale) noexcept {
  for (i64 i = 0; i < count; ++i) out[i] = from_float<Out>(ieee::mul(Recipe::element::decode(codes[i]), scale));
}

/// The table of one body.
template <class Body, class Out> inline constexpr decode_kernel<Out> decode_kernel_of = Body::kernel();

template <any_recipe Recipe, class Out> struct decode_bands {
  using job = decode_job<Recipe, Out>;
  static constexpr i64 panel_blocks = 64;

  /// Bands [first, last). Expects: exact_mode, contiguous columns.
  FP8WIRE_NOINLINE static void run(const decode_kernel<Out>& kernel, const job& work, i64 first, i64 last) noexcept {
    decode_state<Out> blocks[panel_blocks];
    const bool streamed = streams(work.out, kernel.alignment);
    for (i64 band = first; band < last; ++band) {
      i64 block_col = 0;
      if constexpr (decode_facts<Recipe, Out>::octaves) {
        const i64 b = band / work.scales.rows, row = band % work.scales.rows, whole_blocks = work.out.cols / 32;
        const auto octaves = kernel.octaves[streamed ? 1 : 0];
        while (octaves != nullptr && work.scales.col_stride == 1 && block_col < whole_blocks) {
          const i64 col = block_col * 32;
          block_col += octaves(&work.codes(b, row, col), &work.scales(b, row, block_col), &work.out(b, row, col),
                               whole_blocks - block_col);
          if (block_col == whole_blocks) break;
          panel(kernel, work, band, block_col++, 1, blocks, streamed);
        }
      }
      for (; block_col < work.scales.cols; block_col += panel_blocks) {
        const i64 left = work.scales.cols - block_col;
        panel(kernel, work, band, block_col, left < panel_blocks ? left : panel_blocks, blocks, streamed);
      }
    }
    kernel.fence();
  }

 private:
  /// `count` blocks of a band.
  static void panel(const decode_kernel<Out>& kernel, const job& work, i64 band, i64 block_col, i64 count,
                    decode_state<Out>* blocks, bool streamed) noexcept {
    const i64 block_cols = block_extent(Recipe::block::cols, work.out.cols), height = work.band_rows();
    const i64 b = band / work.scales.rows, block_row = band % work.scales.rows, row = block_row * height;
    const i64 rows = work.out.rows - row < height ? work.out.rows - row : height, col = block_col * block_cols;
    const i64 cols = work.out.cols - col < count * block_cols ? work.out.cols - col : count * block_cols;
    for (i64 i = 0; i < count; ++i) prepare(blocks[i], to_float(work.scales(b, block_row, block_col + i)));
    for (i64 r = row; r < row + rows; ++r)
      kernel.row[streamed ? 1 : 0](&work.codes(b, r, col), &work.out(b, r, col), cols, block_cols, blocks);
  }
  static void prepare(decode_state<Out>& state, float scale) noexcept {
    const u32 bits = bits_of(scale);
    state.scale = scale;
    state.definition = decode_by_reference<Recipe, Out>;
    state.finite = f32::is_finite(bits);
    state.tabled = false;
    if constexpr (decode_facts<Recipe, Out>::table) {
      // Between these every weight is a normal number in both formats, so that an octave's mantissas serve all.
      const u32 field = bits >> 23;
      state.tabled = field >= 16 && field <= 240;
      if (!state.tabled) return;
      for (u32 i = 0; i < 16; ++i) {
        const u8 code = static_cast<u8>(i < 8 ? i + 8 : i - 8);
        const float image = ieee::mul(Recipe::element::decode(code), scale);
        if constexpr (std::same_as<Out, float>) {
          const u32 weight = bits_of(image) - (i < 8 ? 1u << 23 : 0u);
          __builtin_memcpy(state.table + 4 * i, &weight, 4);
        } else {
          const u32 weight = to_bf16(image).bits - (i < 8 ? 0x80u : 0u);
          state.table[i] = static_cast<u8>(weight);
          state.table[16 + i] = static_cast<u8>(weight >> 8);
        }
      }
    }
  }
};

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
