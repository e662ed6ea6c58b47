// SPDX-License-Identifier: Apache-2.0
/// Reads the header of a safetensors file from the file's bytes and checks it until nothing in it can surprise.
///
/// Stricter than the reference reader (safetensors/src/tensor.rs at 24b0b28) where laxness hides a broken writer: no
/// white space before the brace, padding of spaces only, no key twice, `__metadata__` an object, extents and offsets
/// below 2^63, rank at most 64. As there, fields of an entry that the format does not know are skipped.
#ifndef FP8WIRE_IO_SAFETENSORS_HPP
#define FP8WIRE_IO_SAFETENSORS_HPP
#include <charconv>
#include <span>

#include <fp8wire/io/json_events.hpp>
#include <fp8wire/io/safetensors_header.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Fills a header from JSON events. The only state is the place in the document.
class safetensors_events {
 public:
  using fault = safetensors_fault;
  explicit safetensors_events(safetensors_header& header) : header_(header) {}
  fault found() const noexcept { return found_; }
  /// What the message quotes, or empty.
  const std::string& quoted() const noexcept { return quoted_; }
  /// The tensor that was being read, or empty.
  std::string_view tensor() const noexcept {
    const bool inside = place_ == place::root ? !in_metadata_ : place_ != place::file && place_ != place::metadata;
    return inside && !header_.tensors.empty() ? std::string_view(header_.tensors.back().name) : std::string_view{};
  }

  bool key(std::string_view text) {
    if (place_ == place::root) {
      in_metadata_ = text == "__metadata__";
      if (in_metadata_) return !std::exchange(metadata_seen_, true) || fail(fault::duplicate_key);
      header_.tensors.emplace_back().name = text;
      seen_ = 0;
    } else if (place_ == place::metadata) {
      header_.metadata.emplace_back(text, std::string());
    } else if (place_ == place::entry) {
      field_ = text == "dtype"          ? dtype_field
               : text == "shape"        ? shape_field
               : text == "data_offsets" ? offsets_field
                                        : 0u;
      if ((seen_ & field_) != 0) return fail(fault::duplicate_key);
      seen_ |= field_;
    }
    return true;
  }

  bool scalar(json_kind kind, std::string_view text) {
    switch (place_) {
      case place::root: return fail(in_metadata_ ? fault::bad_metadata : fault::bad_entry);
      case place::metadata:
        if (kind != json_kind::string) return fail(fault::bad_metadata);
        header_.metadata.back().second = text;
        return true;
      case place::entry:
        if (field_ == dtype_field)
          return (kind == json_kind::string && parse_dtype(text, entry().dtype)) || fail_with(text);
        return field_ == 0 || fail(fault_of_field());
      case place::shape:
        if (entry().shape.size() == safetensors_rank_limit) return fail(fault::bad_shape);
        return whole(kind, text, entry().shape.emplace_back(), fault::size_overflow);
      case place::offsets:
        if (offsets_ == 2) return fail(fault::bad_offsets);
        return whole(kind, text, offsets_++ == 0 ? entry().begin : entry().end, fault::out_of_range);
      default: return true;
    }
  }

  bool open(json_kind kind) {
    switch (place_) {
      case place::file: return enter(place::root);
      case place::root:
        if (kind != json_kind::object) return fail(in_metadata_ ? fault::bad_metadata : fault::bad_entry);
        return enter(in_metadata_ ? place::metadata : place::entry);
      case place::metadata: return fail(fault::bad_metadata);
      case place::entry:
        if (field_ == 0) return extra_depth_ = 1, enter(place::extra);
        if (field_ == dtype_field || kind != json_kind::array) return fail(fault_of_field());
        return offsets_ = 0, enter(field_ == shape_field ? place::shape : place::offsets);
      case place::extra: return ++extra_depth_, true;
      default: return fail(fault_of_field());
    }
  }

  bool close() {
    switch (place_) {
      case place::root: return enter(place::file);
      case place::metadata: return enter(place::root);
      case place::entry:
        return seen_ == (dtype_field | shape_field | offsets_field) ? enter(place::root) : fail(fault::missing_field);
      case place::offsets: return offsets_ == 2 ? enter(place::entry) : fail(fault::bad_offsets);
      case place::extra: return --extra_depth_ > 0 || enter(place::entry);
      default: return enter(place::entry);
    }
  }

 private:
  enum class place : u8 { file, root, metadata, entry, shape, offsets, extra };
  static constexpr unsigned dtype_field = 1, shape_field = 2, offsets_field = 4;  // 0 is a field of no meaning here

  safetensors_entry& entry() { return header_.tensors.back(); }
  bool enter(place next) { return place_ = next, true; }
  bool fail(fault why) { return found_ = why, false; }
  /// A dtype that nobody knows, quoted where it could be one.
  bool fail_with(std::string_view dtype) {
    if (dtype.size() <= 32) quoted_ = dtype;
    return fail(fault::unknown_dtype);
  }
  fault fault_of_field() const {
    return field_ == dtype_field ? fault::unknown_dtype : field_ == shape_field ? fault::bad_shape : fault::bad_offsets;
  }
  /// Digits only: the reference reads unsigned integers, and refuses even -0 and 1e0.
  bool whole(json_kind kind, std::string_view text, i64& out, fault too_large) {
    if (kind != json_kind::number || text.find_first_not_of("0123456789") != std::string_view::npos)
      return fail(fault_of_field());
    return std::from_chars(text.data(), text.data() + text.size(), out).ec == std::errc{} || fail(too_large);
  }

  safetensors_header& header_;
  fault found_ = fault::none;
  std::string quoted_;
  place place_ = place::file;
  bool in_metadata_ = false, metadata_seen_ = false;
  unsigned field_ = 0, seen_ = 0;
  int offsets_ = 0, extra_depth_ = 0;
};

/// Where a header is wrong, with the numbers of the message.
struct safetensors_refusal {
  safetensors_fault fault = safetensors_fault::none;
  std::string tensor;
  i64 got = 0, expected = 0;
  bool has_numbers = false;
  std::string detail;
};

/// Everything that JSON cannot say: sizes, ranges, and that the bytes lie without gaps. Sorts the tensors by place.
inline safetensors_refusal settle_safetensors(safetensors_header& header, i64 data_bytes) {
  using fault = safetensors_fault;
  std::vector<safetensors_entry>& tensors = header.tensors;
  const auto tensor_at = [&](std::size_t i) -> const std::string& { return tensors[i].name; };
  const auto key_at = [&](std::size_t i) -> const std::string& { return header.metadata[i].first; };
  std::stable_sort(tensors.begin(), tensors.end(), [](const safetensors_entry& a, const safetensors_entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  header.by_name = name_order(tensors.size(), tensor_at);
  if (const i64 twice = header.by_name.duplicate(tensor_at); twice >= 0)
    return {fault::duplicate_key, tensors[static_cast<std::size_t>(twice)].name, 0, 0, false, ""};
  if (const i64 twice = name_order(header.metadata.size(), key_at).duplicate(key_at); twice >= 0)
    return {fault::duplicate_key, "__metadata__", 0, 0, false, header.metadata[static_cast<std::size_t>(twice)].first};
  for (const safetensors_entry& one : tensors) {
    if (one.end < one.begin) return {fault::bad_offsets, one.name, one.end, one.begin, true, ""};
    if (one.end > data_bytes) return {fault::out_of_range, one.name, one.end, data_bytes, true, ""};
    const i64 bits = bit_count(one.dtype, one.shape);
    if (bits < 0) return {fault::size_overflow, one.name, 0, 0, false, ""};
    if (bits % 8 != 0) return {fault::misaligned, one.name, bits, (bits / 8 + 1) * 8, true, ""};
    if (one.end - one.begin != bits / 8)
      return {fault::size_mismatch, one.name, one.end - one.begin, bits / 8, true, ""};
  }
  i64 end = 0;
  for (const safetensors_entry& one : tensors) {
    if (one.begin != end) return {one.begin < end ? fault::overlap : fault::hole, one.name, one.begin, end, true, ""};
    end = one.end;
  }
  if (end != data_bytes)
    return {fault::trailing_bytes, "", header.data_begin + data_bytes, header.data_begin + end, true, ""};
  return {};
}

inline safetensors_refusal read_safetensors(std::string_view file, safetensors_header& header) {
  using fault = safetensors_fault;
  const i64 size = static_cast<i64>(file.size());
  if (size < 8) return {fault::header_too_small, "", size, 8, true, ""};
  u64 length = 0;
  for (unsigned i = 0; i < 8; ++i) length |= u64{static_cast<u8>(file[i])} << (8 * i);
  constexpr i64 most = safetensors_header_limit;
  if (length > u64{most}) {
    // Above 2^63 only text holds it.
    if (length > ~u64{0} >> 1) return {fault::header_too_large, "", 0, 0, false, std::to_string(length)};
    return {fault::header_too_large, "", static_cast<i64>(length), most, true, ""};
  }
  header.data_begin = 8 + static_cast<i64>(length);
  if (header.data_begin > size) return {fault::header_past_end, "", size, header.data_begin, true, ""};
  const std::string_view text = file.substr(8, static_cast<std::size_t>(length));
  if (!text.starts_with('{')) return {fault::header_not_object, "", 0, 0, false, ""};

  constexpr int depth = 32;  // 3 are the format's, the others belong to fields that it does not know
  safetensors_events events(header);
  const json_end end = read_json<json_numbers::strict>(text, depth, events);
  if (end.why == json_stop::handler)
    return {events.found(), std::string(events.tensor()), 0, 0, false, events.quoted()};
  if (end.why == json_stop::done) {
    if (text.find_first_not_of(' ', end.at) == std::string_view::npos)
      return settle_safetensors(header, size - header.data_begin);
    return {fault::bad_json, "", 0, 0, false, "padding of other than spaces"};
  }
  return {end.why == json_stop::not_utf8 ? fault::invalid_utf8 : fault::bad_json,
          std::string(events.tensor()),
          0,
          0,
          false,
          std::string(end.text).append(" at byte ").append(std::to_string(8 + end.at))};
}

}  // namespace detail

/// Reads and checks the header of a safetensors file of which `file` is every byte; tensor bytes are not touched.
/// `file_name` is for messages. Returns `none` and fills `header`, or says what is wrong and fills `why`, which then
/// names the tensor and both numbers. Memory: a small multiple of the header, whatever it claims. Threads: no shared
/// state.
inline safetensors_fault read_safetensors(std::span<const std::byte> file, std::string_view file_name,
                                          safetensors_header& header, error& why) {
  header = {};
  why = {};
  detail::safetensors_refusal found =
      detail::read_safetensors({reinterpret_cast<const char*>(file.data()), file.size()}, header);
  if (found.fault == safetensors_fault::none) return found.fault;
  header = {};
  const detail::safetensors_fault_row& row = detail::safetensors_faults[static_cast<int>(found.fault)];
  std::string what(row.text);
  if (!found.detail.empty()) what.append(" (").append(found.detail).append(")");
  if (found.tensor.empty()) {
    found.tensor = file_name;
  } else if (!file_name.empty()) {
    what.append(" in ").append(file_name);
  }
  why = make_error(row.code, std::move(found.tensor), std::move(what));
  why.got = found.got;
  why.expected = found.expected;
  why.has_numbers = found.has_numbers;
  return found.fault;
}

/// The same, for who needs no reason to branch on.
inline result<safetensors_header> read_safetensors(std::span<const std::byte> file, std::string_view file_name) {
  safetensors_header header;
  error why;
  if (read_safetensors(file, file_name, header, why) != safetensors_fault::none) return why;
  return header;
}

FP8WIRE_ABI_END
#endif
