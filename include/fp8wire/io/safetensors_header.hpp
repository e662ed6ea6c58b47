// SPDX-License-Identifier: Apache-2.0
/// What the header of a safetensors file says, and the names of all that can be wrong with one.
#ifndef FP8WIRE_IO_SAFETENSORS_HEADER_HPP
#define FP8WIRE_IO_SAFETENSORS_HEADER_HPP
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/detail/name_order.hpp>
#include <fp8wire/model/tensor_spec.hpp>

FP8WIRE_ABI_BEGIN

/// A tensor and where its bytes lie, counted from the end of the header.
struct safetensors_entry : tensor_spec {
  i64 begin = 0, end = 0;
  bool operator==(const safetensors_entry&) const = default;
};

/// The strings of `__metadata__`, in the order of the file.
using safetensors_metadata = std::vector<std::pair<std::string, std::string>>;

/// A checked header: sizes and offsets fit 63 bits, names are unique, and the bytes of the tensors lie without gaps.
struct safetensors_header {
  std::vector<safetensors_entry> tensors;  // in the order of their bytes
  safetensors_metadata metadata;
  i64 data_begin = 0;         // of the first tensor byte in the file; a multiple of 8 only where the writer padded
  detail::name_order by_name;  // of tensors

  /// The tensor of that name, or nullptr. Cost: logarithmic.
  const safetensors_entry* find(std::string_view name) const {
    const i64 at = by_name.find(name, [this](std::size_t i) -> const std::string& { return tensors[i].name; });
    return at < 0 ? nullptr : &tensors[static_cast<std::size_t>(at)];
  }
  /// Bytes of the whole file.
  i64 file_bytes() const noexcept { return data_begin + (tensors.empty() ? 0 : tensors.back().end); }
};

inline constexpr i64 safetensors_header_limit = 100'000'000;  // the reference refuses more, writing and reading
inline constexpr std::size_t safetensors_rank_limit = 64;     // torch's; it bounds what a hostile header can cost

/// Why bytes are no safetensors file; `none` where they are one.
enum class safetensors_fault : u8 {
  none,
  header_too_small,   // no room for the length
  header_too_large,
  header_past_end,    // longer than the file
  header_not_object,  // does not begin with a brace
  bad_json,
  invalid_utf8,
  duplicate_key,
  bad_metadata,
  bad_entry,
  missing_field,
  unknown_dtype,
  bad_shape,
  bad_offsets,
  size_overflow,
  misaligned,         // packed elements do not fill whole bytes
  size_mismatch,
  out_of_range,
  overlap,
  hole,
  trailing_bytes
};

namespace detail {

struct safetensors_fault_row {
  std::string_view name, text;
  errc code;
};
inline constexpr safetensors_fault_row safetensors_faults[] = {
    {"none", "", errc::ok},
    {"header_too_small", "the file has no room for a header", errc::bad_header},
    {"header_too_large", "the header is longer than the format allows", errc::bad_header},
    {"header_past_end", "the file ends inside its header", errc::bad_header},
    {"header_not_object", "the header does not begin with a brace", errc::bad_header},
    {"bad_json", "the header is not JSON padded with spaces", errc::bad_header},
    {"invalid_utf8", "the header is not UTF-8", errc::bad_header},
    {"duplicate_key", "a key stands twice in the header", errc::duplicate},
    {"bad_metadata", "__metadata__ is not an object of strings", errc::bad_header},
    {"bad_entry", "the entry is not an object", errc::bad_header},
    {"missing_field", "the entry lacks dtype, shape or data_offsets", errc::missing},
    {"unknown_dtype", "the dtype is unknown", errc::wrong_dtype},
    {"bad_shape", "the shape is not a list of at most 64 whole numbers", errc::wrong_shape},
    {"bad_offsets", "data_offsets are not two whole numbers in order", errc::wrong_offset},
    {"size_overflow", "the shape's bits do not fit 63 bits", errc::overflow},
    {"misaligned", "the elements do not fill whole bytes", errc::wrong_size},
    {"size_mismatch", "the bytes are not as many as dtype and shape say", errc::wrong_size},
    {"out_of_range", "the bytes end behind the end of the data", errc::wrong_offset},
    {"overlap", "the bytes begin before those of another tensor end", errc::wrong_offset},
    {"hole", "the bytes before it belong to no tensor", errc::wrong_offset},
    {"trailing_bytes", "the file's last bytes belong to no tensor", errc::wrong_size}};

}  // namespace detail

constexpr std::string_view name_of(safetensors_fault fault) noexcept {
  return detail::safetensors_faults[static_cast<int>(fault)].name;
}

FP8WIRE_ABI_END
#endif
