// SPDX-License-Identifier: Apache-2.0
/// What a vector body does with rows of weights, as a table of functions, and what of a recipe is compiled into them.
///
/// Most recipes differ in how a scale is made, which is scalar work once a block; rows see only what is listed here, so
/// that dozens of recipes share a handful of bodies. A call through the table costs nothing beside the row it does.
#ifndef FP8WIRE_QUANT_HOST_ROW_KERNEL_HPP
#define FP8WIRE_QUANT_HOST_ROW_KERNEL_HPP
#include <fp8wire/quant/host/octave_steps.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

struct row_cast {
  bool direct = false;  // elements can be cast by FP32 arithmetic
  bool table = false;  // wide blocks of BF16 by the octave's table
  bool cols_128 = false;  // blocks of 128 columns, a loop of their own
  bool keep_negative_zero = true, f32_through_bf16 = false;
  bool divide = false;  // the arithmetic is a division, else a multiplication
  bool fnuz = false;  // there is no -0
  bool compare = false;  // codes are compared with those they replace
  int mantissa_bits = 3, bias = 7;
  u8 max_code = 0x7E;
};

template <any_recipe Recipe, class In, bool Compare> constexpr row_cast row_cast_of() noexcept {
  using facts = host_facts<Recipe, In>;
  row_cast cast;
  cast.direct = facts::direct;
  cast.table = facts::table;
  cast.compare = Compare;
  cast.cols_128 = Recipe::block::cols == 128;
  cast.keep_negative_zero = Recipe::num.keep_negative_zero;
  cast.f32_through_bf16 = std::same_as<In, float> && Recipe::num.f32_through_bf16;
  if constexpr (facts::direct) {
    using element = typename Recipe::element;
    cast.divide = facts::op == element_op::divide;
    cast.fnuz = element::shape.kind == specials::fnuz;
    cast.mantissa_bits = element::shape.mantissa_bits;
    cast.bias = element::shape.bias;
    cast.max_code = element::max_code;
  }
  return cast;
}

/// How many elements on to fetch: what is seen next into the second-level cache, what is cast and compared for the last
/// time into the first.
struct look_ahead {
  i64 seen, cast, before;
  bool hints = true;  // false: the processor fetches by itself what comes next
};

/// Where the codes of a row go; for a comparison also what they replace, and a bit an element that says whether they
/// differ.
struct code_place {
  u8* codes;
  bool streamed = false;  // past the caches
  const u8* before = nullptr;
  u8* changed = nullptr;
  /// The place of a column, a multiple of 8 in a comparison.
  template <row_cast Cast> FP8WIRE_ALWAYS_INLINE code_place at(i64 col) const noexcept {
    if constexpr (Cast.compare) return {codes + col, streamed, before + col, changed + col / 8};
    else return {codes + col, streamed};
  }
};

template <class In> struct row_kernel {
  using see_and_cast = void (*)(const In* seen, const In* cast, code_place place, i64 cols, i64 block_cols,
                                block_state* blocks, look_ahead ahead) noexcept;
  see_and_cast see, cast, both;
  void (*cast_direct)(const In* from, u8* codes, i64 count, float operand) noexcept;  // null: by the definition
  u32 (*take_largest)(block_state&) noexcept;
  void (*fence)() noexcept;
  i64 alignment;  // of a row that is streamed; 0: never
  bool amd_fetches;  // so fast that on AMD's processors hints to fetch only stand in the way
  i64 (*octaves)(const In* from, u8* codes, e8m0* scales, i64 blocks, int least, const octave_steps& steps,
                 bool streamed) noexcept;  // null where there is none
};

namespace FP8WIRE_CG {

/// Codes of `count` elements without the block's table: the odd ends of rows, and blocks that it does not serve.
template <class Casts, class In>
void cast_some(const block_state& block, const In* from, u8* codes, i64 count) noexcept {
  if (block.how != cast_how::reference) Casts::cast_direct(from, codes, count, block.operand);
  else block.definition(from, codes, count, block.operand);
}

/// Codes to their place, compared one by one. Bits beyond the last are 0.
inline void replace_some(const u8* fresh, code_place place, i64 count) noexcept {
  for (i64 i = 0; i < count; i += 8) {
    u32 bits = 0;
    for (i64 j = i; j < count && j < i + 8; ++j) {
      bits |= (fresh[j] != place.before[j] ? 1u : 0u) << (j - i);
      place.codes[j] = fresh[j];
    }
    place.changed[i / 8] = static_cast<u8>(bits);
  }
}

/// Fewer codes than fill a vector to their place, past no cache.
template <row_cast Cast> void put_few(const u8* codes, code_place place, i64 count) noexcept {
  if constexpr (Cast.compare) replace_some(codes, place, count);
  else __builtin_memcpy(place.codes, codes, static_cast<std::size_t>(count));
}

/// The table of a body that streams rows aligned to `alignment` bytes.
template <class Body, row_cast Cast, class In>
constexpr row_kernel<In> wide_kernel(i64 alignment, bool amd_fetches) noexcept {
  row_kernel<In> made = {.see = Body::template row<true, false>,
                         .cast = Body::template row<false, true>,
                         .both = Body::template row<true, true>,
                         .cast_direct = nullptr,
                         .take_largest = Body::take_largest,
                         .fence = Body::fence,
                         .alignment = alignment,
                         .amd_fetches = amd_fetches,
                         .octaves = nullptr};
  if constexpr (Cast.direct) made.cast_direct = Body::casts::cast_direct;
  // What a 1x32 recipe looks like from here.
  if constexpr (!std::same_as<In, fp16> && Cast.direct && !Cast.table && !Cast.cols_128 && !Cast.compare)
    made.octaves = Body::octaves::run;
  return made;
}

/// The table of one body.
template <class Body, class In> inline constexpr row_kernel<In> kernel_of = Body::kernel();

}  // namespace FP8WIRE_CG
}  // namespace detail
FP8WIRE_ABI_END
#endif
