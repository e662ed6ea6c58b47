// SPDX-License-Identifier: Apache-2.0
/// Says where every tensor of a safetensors file lies and makes the header, byte for byte as the reference writer does.
///
/// The bytes of the tensors can then be written in any order, or straight into a mapped file (mapped_file.hpp).
#ifndef FP8WIRE_IO_SAFETENSORS_WRITER_HPP
#define FP8WIRE_IO_SAFETENSORS_WRITER_HPP
#include <algorithm>
#include <span>

#include <fp8wire/detail/json_text.hpp>
#include <fp8wire/io/safetensors_header.hpp>

FP8WIRE_ABI_BEGIN

/// A file without its tensor bytes.
struct safetensors_layout {
  safetensors_header header;  // as a reader will find it
  std::string head;  // the file's first header.data_begin bytes: length, JSON, padding
};

namespace detail {

/// By dtype, the enumeration's last first, and then by name (safetensors/src/tensor.rs:230 at 24b0b28): items of larger
/// types come first, so that every tensor is aligned to its items within the data.
inline bool before_in_safetensors(const tensor_spec& a, const tensor_spec& b) noexcept {
  return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
}

inline std::string safetensors_json(const safetensors_header& header) {
  std::string text = "{";
  const auto number = [&](i64 value) { text.append(std::to_string(value)); };
  if (!header.metadata.empty()) {
    text.append("\"__metadata__\":{");
    for (const auto& [key, value] : header.metadata) {
      append_json_string(text, key);
      text.push_back(':');
      append_json_string(text, value);
      text.push_back(',');
    }
    text.back() = '}';
    text.push_back(',');
  }
  for (const safetensors_entry& one : header.tensors) {
    append_json_string(text, one.name);
    text.append(":{\"dtype\":\"").append(name_of(one.dtype)).append("\",\"shape\":[");
    for (std::size_t i = 0; i < one.shape.size(); ++i) {
      if (i > 0) text.push_back(',');
      number(one.shape[i]);
    }
    text.append("],\"data_offsets\":[");
    number(one.begin);
    text.push_back(',');
    number(one.end);
    text.append("]},");
  }
  if (text.size() > 1) text.pop_back();
  text.push_back('}');
  return text;
}

}  // namespace detail

/// Lays a file out. Empty metadata are left out of the header. `file_name` is for messages.
/// Refused: a name or metadata key that stands twice, text that is not UTF-8, a tensor called `__metadata__`, negative
/// extents, rank above 64, sizes that do not fit 63 bits or whole bytes, a header above the limit of the format.
/// Exact: head equals what safetensors 0.8.0 writes for the same tensors and metadata.
inline result<safetensors_layout> lay_out_safetensors(std::vector<tensor_spec> tensors, safetensors_metadata metadata,
                                                      std::string_view file_name) {
  const auto refuse = [&](errc code, const std::string& tensor, std::string_view what) {
    return make_error(code, tensor, std::string(what).append(" in ").append(file_name));
  };
  std::sort(tensors.begin(), tensors.end(), detail::before_in_safetensors);
  safetensors_layout made;
  made.header.metadata = std::move(metadata);
  const auto key_at = [&](std::size_t i) -> const std::string& { return made.header.metadata[i].first; };
  if (const i64 twice = detail::name_order(made.header.metadata.size(), key_at).duplicate(key_at); twice >= 0)
    return refuse(errc::duplicate, key_at(static_cast<std::size_t>(twice)), "the metadata key stands twice");
  for (const auto& [key, value] : made.header.metadata)
    if (!detail::is_utf8(key) || !detail::is_utf8(value))
      return refuse(errc::bad_header, "__metadata__", "text is not UTF-8");

  i64 end = 0;
  made.header.tensors.reserve(tensors.size());
  for (tensor_spec& spec : tensors) {
    if (spec.name == "__metadata__") return refuse(errc::bad_header, spec.name, "no tensor can have this name");
    if (!detail::is_utf8(spec.name)) return refuse(errc::bad_header, spec.name, "the name is not UTF-8");
    if (spec.shape.size() > safetensors_rank_limit) return refuse(errc::wrong_shape, spec.name, "the rank is above 64");
    const i64 bytes = byte_count(spec.dtype, spec.shape);
    if (bytes < 0) return refuse(errc::overflow, spec.name, "the shape has no size in whole bytes below 2^63");
    safetensors_entry entry{std::move(spec), end, 0};
    if (__builtin_add_overflow(end, bytes, &end)) return refuse(errc::overflow, entry.name, "more than 2^63 bytes");
    entry.end = end;
    made.header.tensors.push_back(std::move(entry));
  }
  const auto tensor_at = [&](std::size_t i) -> const std::string& { return made.header.tensors[i].name; };
  made.header.by_name = detail::name_order(made.header.tensors.size(), tensor_at);
  if (const i64 twice = made.header.by_name.duplicate(tensor_at); twice >= 0)
    return refuse(errc::duplicate, tensor_at(static_cast<std::size_t>(twice)), "the tensor stands twice");

  std::string text = detail::safetensors_json(made.header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const i64 length = static_cast<i64>(text.size());
  if (length > safetensors_header_limit)
    return make_error(errc::bad_header, std::string(file_name), "header is longer than the format allows", length,
                      safetensors_header_limit);
  made.header.data_begin = 8 + length;
  if (__builtin_add_overflow(end, made.header.data_begin, &end))
    return refuse(errc::overflow, "", "more than 2^63 bytes");
  for (unsigned i = 0; i < 8; ++i) made.head.push_back(static_cast<char>(static_cast<u64>(length) >> (8 * i) & 0xFF));
  made.head.append(text);
  return made;
}

FP8WIRE_ABI_END
#endif
