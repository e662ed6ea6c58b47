// SPDX-License-Identifier: Apache-2.0
/// Codes and scales laid out for one reader: the pair is one named thing.
#ifndef FP8WIRE_LAYOUT_PAIR_LAYOUT_HPP
#define FP8WIRE_LAYOUT_PAIR_LAYOUT_HPP
#include <fp8wire/detail/text.hpp>
#include <fp8wire/layout/row_major.hpp>

FP8WIRE_ABI_BEGIN

/// What a wire format names; shuffled codes with canonical scales is a different type from what any engine reads.
/// id: "codes;scales" of the layouts' ids, hashed into wire ids.
template <layout Codes, layout Scales> struct pair_layout {
  using codes = Codes;
  using scales = Scales;
  static constexpr detail::short_text id_text = detail::short_text{} << Codes::id << ";" << Scales::id;
  static constexpr std::string_view id = id_text.view();
};

/// Row-major codes and scales: what quantizers make and checkpoints hold.
using canonical_layout = pair_layout<row_major, row_major>;

/// Pairs of layouts by what a weight is: GateUp for the fused gate and up of experts (w13), Plain for every other one.
template <class Plain, class GateUp> struct layout_by_role {
  using plain = Plain;
  using gate_up = GateUp;
};

FP8WIRE_ABI_END
#endif
