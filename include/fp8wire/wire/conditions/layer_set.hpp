// SPDX-License-Identifier: Apache-2.0
/// Condition C1 on live data: the layer sets of an update and of an engine's own parameters, whole or a part of them.
///
/// The comparison itself is model/audit.hpp. It is worth what its inputs are worth: an engine's set comes from the
/// dtypes of the parameters that it holds, never from the configuration that it was started with.
#ifndef FP8WIRE_WIRE_CONDITIONS_LAYER_SET_HPP
#define FP8WIRE_WIRE_CONDITIONS_LAYER_SET_HPP
#include <fp8wire/model/audit.hpp>
#include <fp8wire/model/eligibility.hpp>
#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {
constexpr bool is_element(dtype type) noexcept {
  return type == dtype::f8_e4m3 || type == dtype::f8_e5m2 || type == dtype::f8_e4m3fnuz || type == dtype::f8_e5m2fnuz;
}
}  // namespace detail

/// The matrices of an update (2-D and 3-D; vectors are never FP8). Cost: linear in the tensors, no tensor data.
inline layer_set layers_of(const manifest& update, std::string side = "the update") {
  layer_set found(std::move(side));
  for (std::size_t i = 0; i < update.items().size(); ++i) {
    const manifest_item& item = update.items()[i];
    const std::size_t rank = update.entries()[item.first_entry].shape.size();
    if (rank == 2 || rank == 3) found.add(update.item_name(i), item.encoding >= 0);
  }
  return found;
}

/// The matrices among an engine's live parameters, by the dtype that each one has now. Leave scales out: they are no
/// layers. Cost: linear in the tensors, no tensor data.
inline layer_set layers_of(std::span<const tensor_spec> live, std::string side = "the engine") {
  layer_set found(std::move(side));
  for (const tensor_spec& one : live)
    if (one.shape.size() == 2 || one.shape.size() == 3) found.add(one.name, detail::is_element(one.dtype));
  return found;
}

/// The parameters for which `inside(name)` holds: one pipeline stage's, one expert rank's, the layers of a smoke test.
/// An audit of three parts says nothing about the rest, so the parts of all ranks must cover the whole.
template <class Inside> layer_set part_of(const layer_set& all, const Inside& inside) {
  layer_set part(all.side());
  for (const layer_set::row& one : all.rows()) {
    if (!inside(std::string_view(one.parameter))) continue;
    for (u32 i = 0; i < one.parts; ++i) part.add(one.parameter, i < one.fp8);
  }
  return part;
}

/// Layers [first, last) and, with `outside`, what belongs to no layer (embeddings, heads).
inline layer_set part_of(const layer_set& all, i64 first, i64 last, bool outside = false) {
  return part_of(all, [=](std::string_view name) {
    const i64 layer = layer_of(name);
    return layer < 0 ? outside : layer >= first && layer < last;
  });
}

FP8WIRE_ABI_END
#endif
