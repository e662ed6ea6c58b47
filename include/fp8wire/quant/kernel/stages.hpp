// SPDX-License-Identifier: Apache-2.0
/// How the threads of a whole tile come to their blocks' scales: along rows, along columns, or over the tile.
///
/// Each stage has three steps with a barrier between them: collect (every thread leaves the maxima of its fragment),
/// settle (few threads make few scales, each once), operands (every thread fetches those of its elements).
#ifndef FP8WIRE_QUANT_KERNEL_STAGES_HPP
#define FP8WIRE_QUANT_KERNEL_STAGES_HPP
#include <fp8wire/quant/kernel/block_scales.hpp>

FP8WIRE_ABI_BEGIN
namespace kernel {

/// Blocks of one row: 1x32, 1x128.
template <class Recipe, class In, int Bytes> struct row_stage {
  using held = fragment<Recipe, In, Bytes>;
  using grid = block_grid<Recipe>;
  static constexpr int partials = Recipe::block::cols / held::width;  // of a block
  static constexpr int partial_words = partials * static_cast<int>(sizeof(magnitude_t<In>)) / 4;
  static_assert(Recipe::block::cols % held::width == 0 && partial_words > 0);

  struct shared {
    alignas(16) magnitude_t<In> partial[static_cast<std::size_t>(tile_extent * held::lanes)];
  };

  /// Returns the thread's largest magnitude.
  template <class Context> static FP8WIRE_BODY u32 collect(Context& c, shared& s, const held& tile) {
    u32 largest = 0;
    FP8WIRE_UNROLL
    for (int i = 0; i < held::bands; ++i) {
      const u32 packed = tile.band_magnitudes(c, i);
      largest = held::larger(c, largest, packed);
      // Row after row, so that a warp writes one run of shared memory.
      c.write(s.partial + i * held::threads + c.thread(), static_cast<magnitude_t<In>>(held::folded(packed)));
    }
    return held::folded(largest);
  }

  template <class Context, class Scales>
  static FP8WIRE_BODY bool settle(Context& c, shared& s, const Scales& scales, const tile_place& place,
                                  float amax_floor, float* operands) {
    bool finite = true;
    FP8WIRE_UNROLL
    for (int i = 0; i < (grid::count + held::threads - 1) / held::threads; ++i) {
      const int at = i * held::threads + c.thread();
      if (at >= grid::count) break;
      // Four scales a row: in the order of a 128x4 tile, which the plain order is no better off than.
      const u32 rank = static_cast<u32>(at);
      const int row = static_cast<int>(grid::cols == 4 ? rank / 16 % 32 + rank / 4 % 4 * 32 : rank / grid::cols);
      const int col = static_cast<int>(rank % grid::cols);
      const u32* first = reinterpret_cast<const u32*>(s.partial + row * held::lanes + col * partials);
      u32 packed = c.read(first);
      FP8WIRE_UNROLL
      for (int w = 1; w < partial_words; ++w) packed = held::larger(c, packed, c.read(first + w));
      finite &= kernel::settle<Recipe, In>(c, scales, place, row, col, widened<In>(held::folded(packed)), amax_floor,
                                           operands);
    }
    return finite;
  }

  template <class Context> static FP8WIRE_BODY same_operand operands(Context& c, const float* operands, int band) {
    const int row = held::row_of(c.thread()) + band * held::step;
    return {c.read(operands + row * grid::cols + held::col_of(c.thread()) / Recipe::block::cols)};
  }
};

/// Blocks of one column: 32x1.
template <class Recipe, class In, int Bytes> struct column_stage {
  using held = fragment<Recipe, In, Bytes>;
  using grid = block_grid<Recipe>;
  static constexpr int bands = Recipe::block::rows / held::step;  // of a block
  static_assert(Recipe::block::rows % held::step == 0);
  static constexpr int pack = sizeof(In) == 2 ? 2 : 1;  // columns of a word

  struct shared {
    alignas(16) magnitude_t<In> partial[static_cast<std::size_t>(grid::rows * held::step * tile_extent)];
  };
  struct column_operands {
    float at[static_cast<std::size_t>(held::width)];
    FP8WIRE_BODY float operator()(int col) const { return at[col]; }
  };

  template <class Context> static FP8WIRE_BODY u32 collect(Context& c, shared& s, const held& tile) {
    u32 largest = 0;
    FP8WIRE_UNROLL
    for (int block = 0; block < grid::rows; ++block) {
      typename held::vector packed;
      FP8WIRE_UNROLL
      for (int w = 0; w < held::count; ++w) {
        packed.at[w] = tile.magnitudes(block * bands, w);
        FP8WIRE_UNROLL
        for (int i = 1; i < bands; ++i)
          packed.at[w] = held::larger(c, packed.at[w], tile.magnitudes(block * bands + i, w));
        largest = held::larger(c, largest, packed.at[w]);
      }
      const int row = block * held::step + held::row_of(c.thread());
      auto* at = s.partial + row * tile_extent + held::col_of(c.thread());
      c.write(reinterpret_cast<typename held::vector*>(at), packed);
    }
    return held::folded(largest);
  }

  template <class Context, class Scales>
  static FP8WIRE_BODY bool settle(Context& c, shared& s, const Scales& scales, const tile_place& place,
                                  float amax_floor, float* operands) {
    constexpr int across = tile_extent / pack, words = grid::rows * across;
    static_assert(words % held::threads == 0);
    bool finite = true;
    FP8WIRE_UNROLL
    for (int i = 0; i < words / held::threads; ++i) {
      const int at = i * held::threads + c.thread();
      const int block = at / across, word = at % across;
      const u32* first = reinterpret_cast<const u32*>(s.partial) + block * held::step * across + word;
      u32 packed = c.read(first);
      FP8WIRE_UNROLL
      for (int row = 1; row < held::step; ++row) packed = held::larger(c, packed, c.read(first + row * across));
      FP8WIRE_UNROLL
      for (int half = 0; half < pack; ++half) {
        const u32 magnitude = pack == 1 ? packed : half == 0 ? packed & 0xFFFF : packed >> 16;
        finite &= kernel::settle<Recipe, In>(c, scales, place, block, word * pack + half, widened<In>(magnitude),
                                             amax_floor, operands);
      }
    }
    return finite;
  }

  template <class Context> static FP8WIRE_BODY column_operands operands(Context& c, const float* operands, int band) {
    column_operands made;
    const float* row = operands + band / bands * tile_extent + held::col_of(c.thread());
    FP8WIRE_UNROLL
    for (int part = 0; part < held::width / 4; ++part) {
      const auto four = c.read(reinterpret_cast<const words<4>*>(row) + part);
      FP8WIRE_UNROLL
      for (int i = 0; i < 4; ++i) made.at[4 * part + i] = float_of(four.at[i]);
    }
    return made;
  }
};

/// One block: 128x128.
template <class Recipe, class In, int Bytes> struct tile_stage {
  using held = fragment<Recipe, In, Bytes>;
  static constexpr int warps = held::threads / warp_size;
  static_assert(block_grid<Recipe>::count == 1);

  struct shared {
    u32 partial[static_cast<std::size_t>(warps)];
  };

  template <class Context> static FP8WIRE_BODY u32 collect(Context& c, shared& s, const held& tile) {
    const u32 largest = c.warp_max(held::folded(tile.all_magnitudes(c)));
    if (c.thread() % warp_size == 0) c.write(s.partial + c.thread() / warp_size, largest);
    return largest;
  }

  template <class Context, class Scales>
  static FP8WIRE_BODY bool settle(Context& c, shared& s, const Scales& scales, const tile_place& place,
                                  float amax_floor, float* operands) {
    if (c.thread() >= warp_size) return true;
    const u32 magnitude = c.warp_max(c.thread() < warps ? c.read(s.partial + c.thread()) : 0);
    if (c.thread() != 0) return true;
    return kernel::settle<Recipe, In>(c, scales, place, 0, 0, widened<In>(magnitude), amax_floor, operands);
  }

  template <class Context> static FP8WIRE_BODY same_operand operands(Context& c, const float* operands, int) {
    return {c.read(operands)};
  }
};

/// The stage of a recipe's block; void where only the edge tile serves it.
template <class Recipe, class In, int Bytes> struct stage_of {
  using type = void;
};
template <class Recipe, class In, int Bytes>
  requires(Recipe::block::rows == 1 && Recipe::block::cols % 32 == 0)
struct stage_of<Recipe, In, Bytes> {
  using type = row_stage<Recipe, In, Bytes>;
};
// A thread with 32 bytes of a row would need the partial maxima of 32 columns: more shared memory than there is.
template <class Recipe, class In, int Bytes>
  requires(Recipe::block::cols == 1 && Recipe::block::rows == 32)
struct stage_of<Recipe, In, Bytes> {
  using type = column_stage<Recipe, In, 16>;
};
template <class Recipe, class In, int Bytes>
  requires(Recipe::block::rows == 128 && Recipe::block::cols == 128)
struct stage_of<Recipe, In, Bytes> {
  using type = tile_stage<Recipe, In, Bytes>;
};

}  // namespace kernel
FP8WIRE_ABI_END
#endif
