// SPDX-License-Identifier: Apache-2.0
/// Buffers whose layout is known at run time only, and the checked way back to types.
///
/// A swizzled buffer has the size of a canonical one, so nothing but a tag can tell that it was swizzled already.
#ifndef FP8WIRE_MODEL_TAGGED_HPP
#define FP8WIRE_MODEL_TAGGED_HPP
#include <string>

#include <fp8wire/core/error.hpp>
#include <fp8wire/layout/relayout.hpp>

FP8WIRE_ABI_BEGIN

/// Non-owning. layout_id: the id of the layout that the bytes are in now; points to static storage or to a text of the
/// caller's (a file's metadata).
template <class Value> struct tagged {
  std::string_view layout_id;
  Value* data = nullptr;
  i64 batch = 1, rows = 0, cols = 0;
};

template <layout Layout, class Value> constexpr tagged<Value> tag(laid_out<Layout, Value> buffer) noexcept {
  return {Layout::id, buffer.data, buffer.batch, buffer.rows, buffer.cols};
}

/// The buffer as what its reader expects. Errors: format_mismatch (C6) naming both layouts; wrong_shape (C5).
template <layout Layout, class Value> result<laid_out<Layout, Value>> untag(const tagged<Value>& buffer,
                                                                            std::string_view tensor) {
  if (buffer.layout_id != Layout::id)
    return make_error(
        errc::format_mismatch, std::string(tensor),
        std::string("is laid out as ").append(buffer.layout_id).append(", its reader expects ").append(Layout::id),
        condition::c6_derived_state);
  const shape_check shape = Layout::accepts(buffer.batch, buffer.rows, buffer.cols);
  if (!shape.ok())
    return make_error(errc::wrong_shape, std::string(tensor), shape.what, shape.got, shape.expected,
                      condition::c5_geometry);
  return laid_out<Layout, Value>{buffer.data, buffer.batch, buffer.rows, buffer.cols};
}

/// Takes a canonical buffer to an engine's layout where it lies; a buffer that is there already stays as it is, so that
/// finalizing twice is finalizing once. scratch: rows * cols elements (relayout_in_place).
/// Errors: format_mismatch (C6) for any third layout; wrong_shape (C5), also where the layout needs padding. After an
/// error buffer and tag are what they were.
template <layout To, class Value> error finalize(tagged<Value>& buffer, Value* scratch, std::string_view tensor) {
  if (buffer.layout_id == To::id) return {};
  const auto canonical = untag<row_major>(buffer, tensor);
  if (!canonical) return canonical.error();
  const shape_check shape = To::accepts(buffer.batch, buffer.rows, buffer.cols);
  if (!shape.ok())
    return make_error(errc::wrong_shape, std::string(tensor), shape.what, shape.got, shape.expected,
                      condition::c5_geometry);
  const i64 live = buffer.batch * buffer.rows * buffer.cols;
  const i64 stored = typename To::mapping{buffer.batch, buffer.rows, buffer.cols}.size();
  if (stored != live)
    return make_error(errc::wrong_shape, std::string(tensor), "its layout needs padding and no room is there; elements",
                      stored, live, condition::c5_geometry);
  buffer = tag(relayout_in_place<To>(*canonical, scratch));
  return {};
}

FP8WIRE_ABI_END
#endif
