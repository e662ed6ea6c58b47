// SPDX-License-Identifier: Apache-2.0
/// A manifest as JSON and back, and a plan as JSON: the one schema that hello carries and `fp8-refit --plan` prints.
///
/// docs/wire.md has the schema. Keys that are not known are skipped, so that a later version can add some; everything
/// that is known is judged before it becomes a manifest.
#ifndef FP8WIRE_IO_MANIFEST_JSON_HPP
#define FP8WIRE_IO_MANIFEST_JSON_HPP
#include <charconv>

#include <fp8wire/detail/json_text.hpp>
#include <fp8wire/io/json_events.hpp>
#include <fp8wire/wire/plan.hpp>

FP8WIRE_ABI_BEGIN

/// The version of the schema; a text of another one is refused.
inline constexpr i64 manifest_schema = 1;

namespace detail {

inline std::string hex_text(u64 number) {
  char digits[16];
  const std::string_view some(digits,
                              static_cast<std::size_t>(std::to_chars(digits, digits + 16, number, 16).ptr - digits));
  return "0x" + std::string(16 - some.size(), '0') + std::string(some);
}
/// "0x" and 1 to 16 hexadecimal digits.
inline bool parse_hex(std::string_view text, u64& number) noexcept {
  if (text.size() < 3 || text.size() > 18 || !text.starts_with("0x")) return false;
  const auto [stopped, fault] = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
  return fault == std::errc{} && stopped == text.data() + text.size();
}
inline bool parse_whole(std::string_view text, i64& number) noexcept {
  const auto [stopped, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc{} && stopped == text.data() + text.size() && !text.empty();
}

inline void append_numbers(std::string& out, std::span<const i64> numbers) {
  out.push_back('[');
  for (std::size_t i = 0; i < numbers.size(); ++i) out.append(i == 0 ? "" : ", ").append(std::to_string(numbers[i]));
  out.push_back(']');
}
inline void append_member(std::string& out, std::string_view key, std::string_view text) {
  append_json_string(out, key);
  out.append(": ");
  append_json_string(out, text);
}

/// The members of a manifest's object, one tensor a line, no braces.
inline void append_manifest(std::string& out, const manifest& from) {
  out.append("  \"fp8wire_manifest\": ").append(std::to_string(manifest_schema)).append(",\n  \"encodings\": [");
  for (std::size_t i = 0; i < from.encodings().size(); ++i) {
    const encoding_entry& one = from.encodings()[i];
    out.append(i == 0 ? "\n    {" : ",\n    {");
    append_member(out, "wire_id", hex_text(one.wire_id));
    append_member(out.append(", "), "grid_id", hex_text(one.grid_id));
    if (!one.label.empty()) append_member(out.append(", "), "label", one.label);
    append_member(out.append(", "), "text", one.text);
    out.push_back('}');
  }
  out.append(from.encodings().empty() ? "],\n  \"tensors\": [" : "\n  ],\n  \"tensors\": [");
  for (std::size_t i = 0; i < from.entries().size(); ++i) {
    const manifest_entry& entry = from.entries()[i];
    const manifest_item& item = from.items()[entry.item];
    out.append(i == 0 ? "\n    {" : ",\n    {");
    append_member(out, "name", entry.name);
    append_member(out.append(", "), "dtype", name_of(entry.dtype));
    append_numbers(out.append(", \"shape\": "), entry.shape);
    append_member(out.append(", "), "role", name_of(entry.what));
    append_member(out.append(", "), "unit", from.units()[item.unit]);
    if (entry.what == role::scales) append_member(out.append(", "), "of", from.entries()[item.first_entry].name);
    if (entry.what == role::codes) {
      out.append(", \"encoding\": ").append(std::to_string(item.encoding));
      out.append(", \"split_rows\": ").append(std::to_string(item.facts.split_rows));
      if (!shows_extents(entry.shape, item.facts.extents)) {
        const i64 extents[] = {item.facts.extents.batch, item.facts.extents.rows, item.facts.extents.cols};
        append_numbers(out.append(", \"extents\": "), extents);
      }
      if (item.facts.whole_rows != 0 || item.facts.whole_cols != 0) {
        const i64 part[] = {item.facts.part.row, item.facts.part.col, item.facts.whole_rows, item.facts.whole_cols};
        append_numbers(out.append(", \"part\": "), part);
      }
    }
    out.push_back('}');
  }
  out.append(from.entries().empty() ? "],\n  \"aliases\": [" : "\n  ],\n  \"aliases\": [");
  for (std::size_t i = 0; i < from.aliases().size(); ++i) {
    out.append(i == 0 ? "\n    {" : ",\n    {");
    append_member(out, "name", from.aliases()[i].name);
    append_member(out.append(", "), "of", from.item_name(from.aliases()[i].item));
    out.push_back('}');
  }
  out.append(from.aliases().empty() ? "]" : "\n  ]");
}

}  // namespace detail

/// The whole object and a newline. Exact: manifest_from_json gives an equal manifest back, labels included.
inline std::string to_json(const manifest& from) {
  std::string out = "{\n";
  detail::append_manifest(out, from);
  return out.append("\n}\n");
}

/// The manifest's own JSON with the plan's members beside it; manifest_from_json reads it too.
inline std::string plan_json(const manifest& tensors, const plan& wire) {
  std::string out = "{\n";
  detail::append_manifest(out, tensors);
  const auto number = [&](const char* key, u64 value) {
    out.append(",\n  \"").append(key).append("\": ").append(std::to_string(value));
  };
  const auto truth = [&](const char* key, bool value) { out.append(key).append(value ? "true" : "false"); };
  out.append(",\n  \"plan_hash\": \"").append(detail::hex_text(wire.hash())).push_back('"');
  number("capacity", wire.options().capacity_bytes);
  number("alignment", wire.options().align_bytes);
  number("slots", wire.options().slots);
  truth(",\n  \"split_rows\": ", wire.options().split_rows);
  truth(",\n  \"by_dtype\": ", wire.options().by_dtype);
  number("slot_bytes", wire.slot_bytes());
  number("peak_bytes", wire.peak_bytes());
  out.append(",\n  \"buffers\": [");
  for (std::size_t b = 0; b < wire.buffers().size(); ++b) {
    const plan_buffer& buffer = wire.buffers()[b];
    out.append(b == 0 ? "\n    {\"index\": " : ",\n    {\"index\": ").append(std::to_string(b));
    out.append(", \"used\": ").append(std::to_string(buffer.used_bytes));
    truth(", \"oversized\": ", buffer.oversized);
    truth(", \"cut\": ", buffer.cut);
    out.append(", \"entries\": [");
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
      const plan_piece& piece = wire.pieces()[i];
      const manifest_entry& entry = tensors.entries()[piece.entry];
      out.append(i == buffer.first ? "\n      {" : ",\n      {");
      detail::append_member(out, "name", entry.name);
      detail::append_member(out.append(", "), "dtype", name_of(entry.dtype));
      detail::append_numbers(out.append(", \"shape\": "), entry.shape);
      out.append(", \"offset\": ")
          .append(std::to_string(piece.offset))
          .append(", \"nbytes\": ")
          .append(std::to_string(piece.bytes));
      if (buffer.cut) out.append(", \"from\": ").append(std::to_string(piece.from));
      detail::append_member(out.append(", "), "unit", tensors.units()[tensors.items()[entry.item].unit]);
      out.push_back('}');
    }
    out.append(buffer.count == 0 ? "]}" : "\n    ]}");
  }
  return out.append(wire.buffers().empty() ? "]\n}\n" : "\n  ]\n}\n");
}

namespace detail {

/// Receives the events of one manifest's object. Memory: the manifest and one tensor.
class manifest_reader {
 public:
  bool key(std::string_view text) {
    if (skipped_ > 0) return true;
    key_ = -1;
    const bool root = where_ == place::root;
    for (int i = root ? 0 : aliases + 1; i < (root ? aliases + 1 : static_cast<int>(key_count)); ++i)
      if (keys[i] == text) key_ = i;
    if (key_ < 0) return true;
    u32& seen = root ? seen_root_ : seen_;
    if ((seen >> key_ & 1u) != 0) return fail(errc::duplicate, "duplicate key \"" + std::string(text) + "\"");
    seen |= u32{1} << key_;
    return true;
  }
  bool scalar(json_kind kind, std::string_view text) {
    if (skipped_ > 0) return true;
    if (where_ == place::numbers) {
      i64 number = 0;
      if (kind != json_kind::number || !parse_whole(text, number))
        return fail(errc::bad_header, "a whole number was expected");
      if (numbers_[list_].size() == most_numbers) return fail(errc::bad_header, "a list of numbers is too long");
      numbers_[list_].push_back(number);
      return true;
    }
    if (where_ == place::list || where_ == place::nowhere) return fail(errc::bad_header, "an object was expected");
    if (key_ < 0) return true;
    const bool whole = key_ == schema || key_ == encoding || key_ == split_rows;
    if (whole && (kind != json_kind::number || !parse_whole(text, whole_[key_])))
      return fail(errc::bad_header, std::string(keys[key_]) + " must be a whole number");
    if (!whole && kind != json_kind::string)
      return fail(errc::bad_header, std::string(keys[key_]) + " has the wrong type");
    if (!whole && is_list(key_)) return fail(errc::bad_header, std::string(keys[key_]) + " must be a list");
    if (!whole) texts_[key_] = text;
    if (where_ == place::root && key_ == schema) root_schema_ = whole_[schema];
    return true;
  }
  bool open(json_kind kind) {
    if (skipped_ > 0 || (key_ < 0 && where_ != place::list && where_ != place::nowhere)) return ++skipped_, true;
    const bool object = kind == json_kind::object;
    if (where_ == place::nowhere && object) {
      where_ = place::root;
    } else if (where_ == place::root && !object && (key_ == encodings || key_ == tensors || key_ == aliases)) {
      where_ = place::list;
      list_key_ = key_;
    } else if (where_ == place::list && object) {
      where_ = place::record;
      seen_ = 0;
      for (std::string& one : texts_) one.clear();
      for (i64& number : whole_) number = 0;
      for (auto& list : numbers_) list.clear();
    } else if (where_ == place::record && !object && (key_ == shape || key_ == part || key_ == extents_key)) {
      where_ = place::numbers;
      list_ = key_ == shape ? 0 : key_ == part ? 1 : 2;
    } else {
      return fail(errc::bad_header,
                  key_ < 0 ? "a list holds no objects" : std::string(keys[key_]) + " has the wrong type");
    }
    key_ = -1;
    return true;
  }
  bool close() {
    if (skipped_ > 0) return --skipped_, true;
    key_ = -1;
    switch (where_) {
      case place::numbers: return where_ = place::record, true;
      case place::record: return where_ = place::list, take();
      case place::list: return where_ = place::root, true;
      default: return where_ = place::done, end();
    }
  }
  bool done() const noexcept { return where_ == place::done; }
  const error& why() const noexcept { return why_; }
  manifest made;

 private:
  enum class place : u8 { nowhere, root, list, record, numbers, done };
  enum : int {
    schema,
    encodings,
    tensors,
    aliases,
    wire_id,
    grid_id,
    label,
    text_key,
    name,
    dtype_key,
    shape,
    role_key,
    unit,
    of,
    encoding,
    split_rows,
    part,
    extents_key,
    key_count
  };
  static constexpr std::string_view keys[key_count] = {"fp8wire_manifest",
                                                       "encodings",
                                                       "tensors",
                                                       "aliases",
                                                       "wire_id",
                                                       "grid_id",
                                                       "label",
                                                       "text",
                                                       "name",
                                                       "dtype",
                                                       "shape",
                                                       "role",
                                                       "unit",
                                                       "of",
                                                       "encoding",
                                                       "split_rows",
                                                       "part",
                                                       "extents"};
  static constexpr std::size_t most_numbers = 64;
  static constexpr bool is_list(int at) noexcept {
    return (at >= encodings && at <= aliases) || at == shape || at == part || at == extents_key;
  }

  bool fail(errc code, std::string what) { return fail(make_error(code, texts_[name], std::move(what))); }
  bool fail(error why) {
    why_ = std::move(why);
    return false;
  }
  bool take() {
    // Encodings come before tensors, which name them by index; aliases wait for the tensors they name.
    if (list_key_ == encodings) return take_encoding();
    if (list_key_ == tensors) return take_tensor();
    tied_.emplace_back(texts_[name], texts_[of]);
    return true;
  }
  bool take_encoding() {
    encoding_entry one{0, 0, texts_[text_key], texts_[label]};
    if (!parse_hex(texts_[wire_id], one.wire_id) || !parse_hex(texts_[grid_id], one.grid_id))
      return fail(errc::bad_header, "an encoding's ids must be hexadecimal");
    if (hash(one.text) != one.wire_id)
      return fail(errc::format_mismatch, "an encoding's wire_id is not the hash of its text");
    known_.push_back(std::move(one));
    return true;
  }
  bool take_tensor() {
    tensor_spec spec{texts_[name], {}, std::move(numbers_[0])};
    if ((seen_ >> shape & 1u) == 0) return fail(errc::bad_header, "a tensor has no shape");
    if (!parse_dtype(texts_[dtype_key], spec.dtype))
      return fail(errc::wrong_dtype, "unknown dtype \"" + texts_[dtype_key] + "\"");
    const std::string_view fused = texts_[unit] == texts_[name] ? std::string_view{} : std::string_view(texts_[unit]);
    if (texts_[role_key] == "scales") return take_scales(std::move(spec));
    if (has_codes_) return fail(errc::missing, "the scales of " + codes_.name + " do not follow their codes");
    if (texts_[role_key] == "kept") {
      error wrong = made.keep(spec.name, spec.dtype, spec.shape, fused);
      return wrong ? fail(std::move(wrong)) : true;
    }
    if (texts_[role_key] != "codes") return fail(errc::bad_header, "unknown role \"" + texts_[role_key] + "\"");
    if ((seen_ >> encoding & 1u) == 0 || whole_[encoding] < 0 || whole_[encoding] >= static_cast<i64>(known_.size()))
      return fail(errc::bad_header, "its encoding is not in the list");
    if (bit_width(spec.dtype) != 8)
      return fail(errc::wrong_dtype, "codes have 8 bits, not " + std::to_string(bit_width(spec.dtype)));
    const bool laid_out = !numbers_[2].empty();
    if (laid_out && numbers_[2].size() != 3) return fail(errc::bad_header, "extents must have three numbers");
    auto extents = extents_of(spec.name, laid_out ? numbers_[2] : spec.shape);
    if (!extents) return fail(extents.error());
    facts_ = {*extents, whole_[split_rows], {}, 0, 0};
    if (!numbers_[1].empty()) {
      if (numbers_[1].size() != 4) return fail(errc::bad_header, "part must have four numbers");
      facts_.part = {numbers_[1][0], numbers_[1][1], extents->rows, extents->cols};
      facts_.whole_rows = numbers_[1][2];
      facts_.whole_cols = numbers_[1][3];
    }
    codes_ = std::move(spec);
    unit_ = fused;
    encoding_ = static_cast<std::size_t>(whole_[encoding]);
    return has_codes_ = true;
  }
  bool take_scales(tensor_spec spec) {
    if (!has_codes_ || codes_.name != texts_[of])
      return fail(errc::unexpected, "scales that do not follow their codes");
    has_codes_ = false;
    error wrong = made.add_pair({std::move(codes_), std::move(spec)}, facts_, known_[encoding_], unit_);
    return wrong ? fail(std::move(wrong)) : true;
  }
  bool end() {
    if (has_codes_)
      return fail(make_error(errc::missing, codes_.name, "its scales do not follow", condition::c3_complete_pairs));
    for (const auto& [alias, item] : tied_)
      if (error wrong = made.tie(alias, item)) return fail(std::move(wrong));
    if ((seen_root_ >> schema & 1u) == 0 || root_schema_ != manifest_schema)
      return fail(make_error(errc::protocol_mismatch, "manifest", "another version of the schema", root_schema_,
                             manifest_schema));
    return true;
  }

  place where_ = place::nowhere;
  int key_ = -1, list_key_ = -1, list_ = 0, skipped_ = 0;
  u32 seen_ = 0, seen_root_ = 0;
  i64 root_schema_ = 0;
  std::string texts_[key_count];
  i64 whole_[key_count] = {};
  std::vector<i64> numbers_[3];  // shape, part, extents
  std::vector<encoding_entry> known_;
  std::vector<std::pair<std::string, std::string>> tied_;
  tensor_spec codes_;
  pair_facts facts_;
  std::string unit_;
  std::size_t encoding_ = 0;
  bool has_codes_ = false;
  error why_;
};

/// Reads one value with a handler that says why it refused; nothing but white space may follow.
template <class Handler> error read_whole(std::string_view text, std::string_view source, Handler& handler) {
  constexpr i64 largest = i64{256} << 20;
  if (static_cast<i64>(text.size()) > largest)
    return make_error(errc::bad_header, std::string(source), "JSON is too large", static_cast<i64>(text.size()),
                      largest);
  const json_end end = read_json<json_numbers::strict>(text, 16, handler);
  if (end.why == json_stop::handler) {
    error why = handler.why();
    if (why.tensor.empty()) why.tensor = source;
    return why;
  }
  std::string_view why = end.text;
  std::size_t at = end.at;
  if (end.why == json_stop::done) {
    at = text.find_first_not_of(" \t\r\n", at);
    if (at == std::string_view::npos) return {};
    why = "text behind the value";
  }
  return make_error(errc::bad_header, std::string(source),
                    std::string("JSON, byte ").append(std::to_string(at)).append(": ").append(why));
}

}  // namespace detail

/// The manifest in a text: a manifest's own JSON, or a plan's. `source`: what an error names.
/// Errors: bad_header for malformed JSON and missing or mistyped members, protocol_mismatch for another schema, and
/// whatever manifest::add_pair, keep and tie refuse.
inline result<manifest> manifest_from_json(std::string_view text, std::string_view source = "manifest") {
  detail::manifest_reader reader;
  if (error wrong = detail::read_whole(text, source, reader)) return wrong;
  return std::move(reader.made);
}

FP8WIRE_ABI_END
#endif
