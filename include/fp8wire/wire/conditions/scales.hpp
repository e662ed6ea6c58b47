// SPDX-License-Identifier: Apache-2.0
/// Condition C9 on live data: scales and codes that no quantizer of this grid would have made.
#ifndef FP8WIRE_WIRE_CONDITIONS_SCALES_HPP
#define FP8WIRE_WIRE_CONDITIONS_SCALES_HPP
#include <span>
#include <string>

#include <fp8wire/core/error.hpp>
#include <fp8wire/quant/reference.hpp>
#include <fp8wire/wire/sanity.hpp>

FP8WIRE_ABI_BEGIN

/// Zero, negative, infinite, NaN, E8M0 255; with `refuse_byte_zero` also E8M0 0, which some kernels cannot read.
/// Errors: bad_scale (C9) with the first element. Cost: one read.
inline error check_scales(std::string_view tensor, dtype type, std::span<const std::byte> bytes,
                          bool refuse_byte_zero = false) {
  i64 bad = first_bad_scale(type, bytes.data(), bytes.size());
  const char* what = "a scale is zero, negative or not finite; element";
  if (bad < 0 && refuse_byte_zero && (type == dtype::uint8 || type == dtype::f8_e8m0)) {
    bad = detail::first_of<u8>(bytes.data(), bytes.size(), [](u8 bits) { return bits == 0; });
    what = "a scale is byte 0, which this kernel does not take; element";
  }
  if (bad < 0) return {};
  return make_error(errc::bad_scale, std::string(tensor), what, bad,
                    static_cast<i64>(bytes.size()) * 8 / bit_width(type), condition::c9_scale_sanity);
}

/// NaN codes, in E5M2 Inf too. Errors: nonfinite (C9) with the first element. Cost: one read, eight bytes at a time.
inline error check_codes(std::string_view tensor, dtype type, std::span<const std::byte> bytes) {
  const i64 bad = first_bad_code(type, bytes.data(), bytes.size());
  if (bad < 0) return {};
  return make_error(errc::nonfinite, std::string(tensor), "a code is not finite; element", bad,
                    static_cast<i64>(bytes.size()), condition::c9_scale_sanity);
}

/// A block whose codes are all small wastes its scale: another grid made it, or another block's scale came with it.
/// `least`: the smallest code magnitude that the largest element of a block has under this grid: 0x76 (224) where
/// scales are rounded up to powers of two (RCEIL), 0x7E (448) where they are exact, 0x38 (1.0) for the floor without
/// the 8. Blocks of zeros and blocks at the amax floor are passed over.
/// Errors: bad_scale (C9) naming the block and its largest code. Cost: one read of the codes.
template <any_recipe Recipe>
error check_block_range(std::string_view tensor, const_pair_view<Recipe> pair, u8 least,
                        float amax_floor = Recipe::num.amax_floor) {
  const u32 at_floor = bits_of(to_float(reference::block_scale<Recipe, bf16>(0, amax_floor).stored));
  const i64 height = detail::block_extent(Recipe::block::rows, pair.codes.rows);
  const i64 width = detail::block_extent(Recipe::block::cols, pair.codes.cols);
  for (i64 b = 0; b < pair.codes.batch; ++b)
    for (i64 row = 0; row < pair.scales.rows; ++row)
      for (i64 col = 0; col < pair.scales.cols; ++col) {
        if (bits_of(to_float(pair.scales(b, row, col))) == at_floor) continue;
        u8 largest = 0;
        for (i64 r = row * height; r < (row + 1) * height && r < pair.codes.rows; ++r)
          for (i64 c = col * width; c < (col + 1) * width && c < pair.codes.cols; ++c) {
            const u8 magnitude = pair.codes(b, r, c) & 0x7F;
            if (magnitude > largest) largest = magnitude;
          }
        if (largest == 0 || largest >= least) continue;
        return make_error(errc::bad_scale, std::string(tensor),
                          "the largest code of block (" + std::to_string(b) + ", " + std::to_string(row) + ", " +
                              std::to_string(col) + ") is too small for this grid",
                          largest, least, condition::c9_scale_sanity);
      }
  return {};
}

FP8WIRE_ABI_END
#endif
