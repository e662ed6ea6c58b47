// SPDX-License-Identifier: Apache-2.0
/// What one update carries, from metadata alone: tensors, their encodings, and which of them belong together.
#ifndef FP8WIRE_WIRE_MANIFEST_HPP
#define FP8WIRE_WIRE_MANIFEST_HPP
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/detail/name_index.hpp>
#include <fp8wire/model/wire_format.hpp>

FP8WIRE_ABI_BEGIN

/// What a stored tensor is to its pair.
enum class role : u8 {
  codes,
  scales,
  kept  // BF16 weights, KV scales, buffers: bytes as they are
};

constexpr std::string_view name_of(role what) noexcept {
  return what == role::codes ? "codes" : what == role::scales ? "scales" : "kept";
}

/// One encoding in use, the wire format and the amax floor together.
struct encoding_entry {
  u64 wire_id = 0;
  u64 grid_id = 0;
  std::string text;  // canonical text, for messages
  bool operator==(const encoding_entry&) const = default;
};

/// One stored tensor.
struct manifest_entry {
  std::string name;
  fp8wire::dtype dtype{};
  std::vector<i64> shape;
  role what{};
  u64 bytes = 0;
  u32 item = 0;  // index into items()
  bool operator==(const manifest_entry&) const = default;
};

/// One call of the sender: a weight (codes, then scales) or a kept tensor.
struct manifest_item {
  std::string name;
  std::string unit;    // items of one unit arrive together or not at all
  u32 first_entry = 0, entries = 0;
  i32 encoding = -1;   // index into encodings(), -1 for kept
  matrix_extents extents;
  bool operator==(const manifest_item&) const = default;
};

/// Built the same way on both ends, in export order; nothing here is read from tensor data.
class manifest {
 public:
  /// A weight that travels as codes and scales under Wire. `fused_with`: the engine parameter that several weights are
  /// parts of (gate and up of one expert, q, k and v); empty: the weight is a unit of its own.
  /// Errors: the shape rules of Wire, duplicate (C3) for a name that is there already.
  template <any_wire_format Wire>
  error add(std::string_view weight, const std::vector<i64>& shape, float amax_floor = Wire::recipe::num.amax_floor,
            std::string_view fused_with = {}) {
    auto specs = Wire::tensors(weight, shape);
    if (!specs) return specs.error();
    return add_pair(std::move(specs).value(), extents_of(weight, shape).value(),
                    {Wire::id(amax_floor), grid_id<typename Wire::recipe>(amax_floor), std::string(Wire::encoding(amax_floor).view())},
                    fused_with);
  }
  /// The same from ready specs (a manifest that came over the wire): codes, then scales.
  error add_pair(std::vector<tensor_spec> specs, matrix_extents extents, encoding_entry encoding, std::string_view fused_with);
  /// A tensor that travels as it is.
  error keep(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape, std::string_view fused_with = {});

  const std::vector<manifest_entry>& entries() const noexcept { return entries_; }
  const std::vector<manifest_item>& items() const noexcept { return items_; }
  const std::vector<encoding_entry>& encodings() const noexcept { return encodings_; }
  /// Index of the entry of that name, -1 if there is none. Constant time.
  i64 find(std::string_view entry_name) const noexcept;
  /// Index of the item of that name, -1 if there is none. `hint`: where to look first, as export order makes it cheap.
  i64 find_item(std::string_view item_name, i64 hint = -1) const noexcept;
  /// Payload bytes of all entries, without padding.
  u64 bytes() const noexcept { return bytes_; }
  /// 64-bit id of everything above, the order included.
  u64 hash() const noexcept;
  bool operator==(const manifest& other) const { return entries_ == other.entries_ && items_ == other.items_ && encodings_ == other.encodings_; }

 private:
  error append(tensor_spec spec, role what, u32 item);
  error admit(const tensor_spec& spec, u64& bytes) const;

  std::vector<manifest_entry> entries_;
  std::vector<manifest_item> items_;
  std::vector<encoding_entry> encodings_;
  detail::name_index by_name_;
  u64 bytes_ = 0;
};

/// Bytes of a dense tensor, as `byte_count`, with the reason where there is none.
/// Errors: overflow; wrong_shape for negative extents and for packed dtypes that do not fill bytes.
inline result<u64> stored_bytes(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape) {
  for (const i64 extent : shape)
    if (extent < 0) return make_error(errc::wrong_shape, std::string(name), "an extent is negative", extent, 0);
  const i64 bits = bit_count(dtype, shape);
  if (bits < 0)
    return make_error(errc::overflow, std::string(name), "its size in bits does not fit 63 bits; the rank", static_cast<i64>(shape.size()), 0);
  if (bits % 8 != 0) return make_error(errc::wrong_shape, std::string(name), "its bits do not fill bytes; the rest", bits % 8, 0);
  return static_cast<u64>(bits / 8);
}

inline error manifest::admit(const tensor_spec& spec, u64& bytes) const {
  if (spec.name.empty()) return make_error(errc::bad_argument, "", "a tensor has no name");
  const auto size = stored_bytes(spec.name, spec.dtype, spec.shape);
  if (!size) return size.error();
  if (find(spec.name) >= 0) return make_error(errc::duplicate, spec.name, "appears twice in the manifest", condition::c3_complete_pairs);
  bytes = *size;
  return {};
}

inline error manifest::append(tensor_spec spec, role what, u32 item) {
  u64 bytes = 0;
  if (error wrong = admit(spec, bytes)) return wrong;
  entries_.push_back({std::move(spec.name), spec.dtype, std::move(spec.shape), what, bytes, item});
  by_name_.insert(static_cast<u32>(entries_.size() - 1), [&](u32 index) { return std::string_view(entries_[index].name); });
  bytes_ += bytes;
  return {};
}

inline error manifest::add_pair(std::vector<tensor_spec> specs, matrix_extents extents, encoding_entry encoding,
                                std::string_view fused_with) {
  if (specs.size() != 2) return make_error(errc::bad_argument, "", "a pair has two tensors", static_cast<i64>(specs.size()), 2);
  // Both are admitted before either is stored: a refused pair leaves nothing behind.
  for (const tensor_spec& spec : specs) {
    u64 bytes = 0;
    if (error wrong = admit(spec, bytes)) return wrong;
  }
  if (specs[0].name == specs[1].name)
    return make_error(errc::duplicate, specs[0].name, "names both the codes and the scales", condition::c3_complete_pairs);
  i32 at = -1;
  for (std::size_t i = 0; i < encodings_.size(); ++i)
    if (encodings_[i] == encoding) at = static_cast<i32>(i);
  if (at < 0) {
    at = static_cast<i32>(encodings_.size());
    encodings_.push_back(std::move(encoding));
  }
  const u32 item = static_cast<u32>(items_.size());
  std::string name = specs[0].name;
  items_.push_back({name, fused_with.empty() ? name : std::string(fused_with), static_cast<u32>(entries_.size()), 2, at, extents});
  append(std::move(specs[0]), role::codes, item);
  append(std::move(specs[1]), role::scales, item);
  return {};
}

inline error manifest::keep(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape, std::string_view fused_with) {
  const u32 item = static_cast<u32>(items_.size()), first = static_cast<u32>(entries_.size());
  if (error wrong = append({std::string(name), dtype, shape}, role::kept, item)) return wrong;
  items_.push_back({std::string(name), std::string(fused_with.empty() ? name : fused_with), first, 1, -1, {}});
  return {};
}

inline i64 manifest::find(std::string_view entry_name) const noexcept {
  return by_name_.find(entry_name, [&](u32 index) { return std::string_view(entries_[index].name); });
}

inline i64 manifest::find_item(std::string_view item_name, i64 hint) const noexcept {
  if (hint >= 0 && hint < static_cast<i64>(items_.size()) && items_[static_cast<std::size_t>(hint)].name == item_name) return hint;
  const i64 entry = find(item_name);
  if (entry < 0) return -1;
  const manifest_entry& found = entries_[static_cast<std::size_t>(entry)];
  return found.what == role::scales ? -1 : static_cast<i64>(found.item);
}

inline u64 manifest::hash() const noexcept {
  u64 state = fp8wire::hash("fp8wire manifest 1");
  for (const manifest_entry& entry : entries_) {
    const manifest_item& item = items_[entry.item];
    state = fp8wire::hash(std::string_view(entry.name), fp8wire::hash(entry.name.size(), state));
    state = fp8wire::hash(std::string_view(item.unit), fp8wire::hash(item.unit.size(), state));
    state = fp8wire::hash(name_of(entry.dtype), fp8wire::hash(static_cast<u64>(entry.what), state));
    state = fp8wire::hash(item.encoding < 0 ? u64{0} : encodings_[static_cast<std::size_t>(item.encoding)].wire_id, state);
    state = fp8wire::hash(entry.shape.size(), state);
    for (const i64 extent : entry.shape) state = fp8wire::hash(static_cast<u64>(extent), state);
  }
  return state;
}

FP8WIRE_ABI_END
#endif
