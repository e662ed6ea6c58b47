// SPDX-License-Identifier: Apache-2.0
/// What one update carries, from metadata alone: tensors, their encodings, and which of them belong together.
#ifndef FP8WIRE_WIRE_MANIFEST_HPP
#define FP8WIRE_WIRE_MANIFEST_HPP
#include <string>
#include <string_view>
#include <vector>

#include <fp8wire/core/slice.hpp>
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
  std::string text;   // canonical text; its hash is the wire id
  std::string label;  // what people call it ("vllm-block"): for messages, never compared
  bool operator==(const encoding_entry& other) const noexcept {
    return wire_id == other.wire_id && grid_id == other.grid_id && text == other.text;
  }
  /// "vllm-block (fp8wire grid 1;element=...)".
  std::string described() const { return label.empty() ? text : label + " (" + text + ")"; }
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

/// What a pair is besides its two tensors.
struct pair_facts {
  matrix_extents extents;
  i64 split_rows = 0;  // rows of one block, where the pair may be cut between block rows; 0: never
  slice part;          // of a sharded weight: the rectangle that travels; empty: all of it
  i64 whole_rows = 0, whole_cols = 0;
  bool operator==(const pair_facts&) const = default;
};

/// One call of the sender: a weight (codes, then scales) or a kept tensor. Its name is that of its first entry.
struct manifest_item {
  u32 unit = 0;  // index into units(); items of one unit arrive together or not at all
  u32 first_entry = 0, entries = 0;
  i32 encoding = -1;  // index into encodings(), -1 for kept
  pair_facts facts;
  bool operator==(const manifest_item&) const = default;
};

/// A second name for an item that is sent once: tied embeddings and the like.
struct manifest_alias {
  std::string name;
  u32 item = 0;
  bool operator==(const manifest_alias&) const = default;
};

/// Built the same way on both ends, in export order; nothing here is read from tensor data.
class manifest {
 public:
  /// A weight that travels as codes and scales under Wire. `fused_with`: the engine parameter that several weights are
  /// parts of (gate and up of one expert, q, k and v); empty: the weight is a unit of its own.
  /// Errors: the shape rules of Wire, duplicate (C3) for a name that is there already.
  template <any_wire_format Wire>
  error add(std::string_view weight, const std::vector<i64>& shape, float amax_floor = Wire::recipe::num.amax_floor,
            std::string_view fused_with = {});
  /// Rows and columns `part` of a weight of shape `full`, as one rank of a tensor-parallel group holds them;
  /// `part.rows` and `part.cols` become its extents. Every matrix of a batch is cut alike.
  /// Errors: as add; wrong_shape (C5) for a part that leaves the weight or starts or ends inside a block.
  template <any_wire_format Wire>
  error add_part(std::string_view weight, const std::vector<i64>& full, slice part,
                 float amax_floor = Wire::recipe::num.amax_floor, std::string_view fused_with = {});
  /// The same from ready specs (a manifest that came over the wire): codes, then scales.
  error add_pair(std::vector<tensor_spec> specs, const pair_facts& facts, encoding_entry encoding,
                 std::string_view fused_with);
  /// A tensor that travels as it is.
  error keep(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape,
             std::string_view fused_with = {});
  /// Says that `alias` is another name of an item that is sent anyway (tied weights): both ends know it, no byte
  /// travels.
  /// Errors: missing (C3) if there is no such item, duplicate if the alias is a name already.
  error tie(std::string_view alias, std::string_view item_name);
  /// Gives an encoding the name that people know it by, for messages.
  void label(u64 wire_id, std::string_view name);

  const std::vector<manifest_entry>& entries() const noexcept { return entries_; }
  const std::vector<manifest_item>& items() const noexcept { return items_; }
  const std::vector<encoding_entry>& encodings() const noexcept { return encodings_; }
  const std::vector<manifest_alias>& aliases() const noexcept { return aliases_; }
  /// Unit names in order of first appearance.
  const std::vector<std::string>& units() const noexcept { return units_; }
  /// Index of the entry of that name, -1 if there is none. Constant time.
  i64 find(std::string_view entry_name) const noexcept;
  /// Index of the item of that name, -1 if there is none; aliases and scales are none.
  i64 find_item(std::string_view item_name) const noexcept;
  /// Index of the alias of that name, -1 if there is none.
  i64 find_alias(std::string_view name) const noexcept;
  std::string_view item_name(std::size_t item) const noexcept { return entries_[items_[item].first_entry].name; }
  /// Payload bytes of all entries, without padding.
  u64 bytes() const noexcept { return bytes_; }
  /// 64-bit id of everything above but labels, the order included.
  u64 hash() const noexcept;
  bool operator==(const manifest& other) const {
    return entries_ == other.entries_ && items_ == other.items_ && encodings_ == other.encodings_ &&
           aliases_ == other.aliases_ && units_ == other.units_;
  }

 private:
  template <any_wire_format Wire> i32 encoding_index(float amax_floor);
  i32 encoding_index(encoding_entry encoding);
  error add_encoded(std::vector<tensor_spec> specs, const pair_facts& facts, i32 encoding, std::string_view fused_with);
  error judge_pair(const std::vector<tensor_spec>& specs, const pair_facts& facts) const;
  error admit(const tensor_spec& spec) const;
  void append(tensor_spec spec, role what);
  u32 unit_of(std::string_view name);

  std::vector<manifest_entry> entries_;
  std::vector<manifest_item> items_;
  std::vector<encoding_entry> encodings_;
  std::vector<manifest_alias> aliases_;
  std::vector<std::string> units_;
  detail::name_index by_name_, by_unit_, by_alias_;
  u64 bytes_ = 0;
};

namespace detail {

/// "missing keys (3): [a, b, c]", at most eight names. `list(see)` calls see(name) for each missing name.
template <class List> std::string missing_keys(const List& list) {
  std::size_t count = 0;
  std::string names;
  list([&](std::string_view name) {
    if (count++ < 8) names.append(names.empty() ? "" : ", ").append(name);
  });
  return "missing keys (" + std::to_string(count) + "): [" + names + (count > 8 ? ", ...]" : "]");
}

/// Whether codes of that shape are canonical ones of those extents; other layouts show what they store.
inline bool shows_extents(const std::vector<i64>& shape, const matrix_extents& m) noexcept {
  const std::size_t rank = shape.size();
  return (rank == 2 || rank == 3) && shape[rank - 2] == m.rows && shape[rank - 1] == m.cols &&
         (rank == 2 ? m.batch == 1 : shape[0] == m.batch);
}

/// 0 where a pair must not be cut: whole-matrix blocks, blocks that look at the matrix's last element, other layouts.
template <any_wire_format Wire> constexpr i64 split_rows_of() noexcept {
  using recipe = typename Wire::recipe;
  constexpr bool plain = std::same_as<typename Wire::layout, canonical_layout>;
  return plain && recipe::num.edge == edge_pad::zero ? i64{recipe::block::rows} : 0;
}

/// A shard's edges lie on the block grid, or at the weight's own end.
inline error check_cut(std::string_view weight, const char* axis, i64 at, i64 count, i64 extent, i64 block) {
  const std::string what = std::string("a shard's first ") + axis;
  if (at < 0 || count < 0 || at > extent - count)
    return make_error(errc::wrong_shape, std::string(weight),
                      std::string("a shard leaves the weight; its last ") + axis, at + count, extent,
                      condition::c5_geometry);
  if (block == 0 && count != extent)
    return make_error(errc::wrong_shape, std::string(weight),
                      std::string("one block covers every ") + axis + "; the shard's number of them", count, extent,
                      condition::c5_geometry);
  if (block == 0) return {};
  if (at % block != 0)
    return make_error(
        errc::wrong_shape, std::string(weight),
        what + " " + std::to_string(at) + " lies inside a block of " + std::to_string(block) + "; the remainder",
        at % block, 0, condition::c5_geometry);
  if (count % block != 0 && at + count != extent)
    return make_error(
        errc::wrong_shape, std::string(weight),
        std::string("a shard's last ") + axis + " lies inside a block of " + std::to_string(block) + "; the remainder",
        (at + count) % block, 0, condition::c5_geometry);
  return {};
}

}  // namespace detail

/// The text is made anew for every weight, but hashed and stored once.
template <any_wire_format Wire> i32 manifest::encoding_index(float amax_floor) {
  const detail::short_text text = Wire::encoding(amax_floor);
  for (std::size_t i = 0; i < encodings_.size(); ++i)
    if (encodings_[i].text == text.view()) return static_cast<i32>(i);
  return encoding_index(
      {Wire::id(amax_floor), grid_id<typename Wire::recipe>(amax_floor), std::string(text.view()), {}});
}

inline i32 manifest::encoding_index(encoding_entry encoding) {
  for (std::size_t i = 0; i < encodings_.size(); ++i)
    if (encodings_[i] == encoding) return static_cast<i32>(i);
  encodings_.push_back(std::move(encoding));
  return static_cast<i32>(encodings_.size() - 1);
}

template <any_wire_format Wire>
error manifest::add(std::string_view weight, const std::vector<i64>& shape, float amax_floor,
                    std::string_view fused_with) {
  auto specs = Wire::tensors(weight, shape);
  if (!specs) return specs.error();
  const pair_facts facts{extents_of(weight, shape).value(), detail::split_rows_of<Wire>(), {}, 0, 0};
  return add_encoded(std::move(specs).value(), facts, encoding_index<Wire>(amax_floor), fused_with);
}

template <any_wire_format Wire>
error manifest::add_part(std::string_view weight, const std::vector<i64>& full, slice part, float amax_floor,
                         std::string_view fused_with) {
  using block = typename Wire::recipe::block;
  const auto all = extents_of(weight, full);
  if (!all) return all.error();
  if (error wrong = detail::check_cut(weight, "row", part.row, part.rows, all->rows, block::rows)) return wrong;
  if (error wrong = detail::check_cut(weight, "column", part.col, part.cols, all->cols, block::cols)) return wrong;
  std::vector<i64> shape = full;
  shape[shape.size() - 2] = part.rows;
  shape[shape.size() - 1] = part.cols;
  auto specs = Wire::tensors(weight, shape);
  if (!specs) return specs.error();
  const pair_facts facts{{all->batch, part.rows, part.cols}, detail::split_rows_of<Wire>(), part, all->rows, all->cols};
  return add_encoded(std::move(specs).value(), facts, encoding_index<Wire>(amax_floor), fused_with);
}

/// Bytes of a dense tensor. Errors: wrong_shape for negative extents and packed dtypes that do not fill bytes,
/// overflow.
inline result<u64> stored_bytes(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape) {
  for (const i64 extent : shape)
    if (extent < 0) return make_error(errc::wrong_shape, std::string(name), "an extent is negative", extent, 0);
  const i64 bits = bit_count(dtype, shape);
  if (bits < 0)
    return make_error(errc::overflow, std::string(name), "its size in bits does not fit 63 bits", condition::none);
  if (bits % 8 != 0)
    return make_error(errc::wrong_shape, std::string(name), "its bits do not fill bytes; the rest", bits % 8, 0);
  return static_cast<u64>(bits / 8);
}

inline error manifest::admit(const tensor_spec& spec) const {
  if (spec.name.empty()) return make_error(errc::bad_argument, "", "a tensor has no name");
  const auto size = stored_bytes(spec.name, spec.dtype, spec.shape);
  if (!size) return size.error();
  if (find(spec.name) >= 0 || find_alias(spec.name) >= 0)
    return make_error(errc::duplicate, spec.name, "appears twice in the manifest", condition::c3_complete_pairs);
  if (*size > (u64{1} << 62) - bytes_)
    return make_error(errc::overflow, spec.name, "the update's bytes do not fit 62 bits", static_cast<i64>(*size), 0);
  return {};
}

inline void manifest::append(tensor_spec spec, role what) {
  const u64 bytes = static_cast<u64>(byte_count(spec.dtype, spec.shape));
  entries_.push_back(
      {std::move(spec.name), spec.dtype, std::move(spec.shape), what, bytes, static_cast<u32>(items_.size() - 1)});
  by_name_.insert(static_cast<u32>(entries_.size() - 1),
                  [&](u32 index) { return std::string_view(entries_[index].name); });
  bytes_ += bytes;
}

inline u32 manifest::unit_of(std::string_view name) {
  if (!units_.empty() && units_.back() == name)
    return static_cast<u32>(units_.size() - 1);  // export order makes it likely
  const auto names = [&](u32 index) { return std::string_view(units_[index]); };
  if (const i64 known = by_unit_.find(name, names); known >= 0) return static_cast<u32>(known);
  units_.emplace_back(name);
  by_unit_.insert(static_cast<u32>(units_.size() - 1), names);
  return static_cast<u32>(units_.size() - 1);
}

inline error manifest::add_pair(std::vector<tensor_spec> specs, const pair_facts& facts, encoding_entry encoding,
                                std::string_view fused_with) {
  return add_encoded(std::move(specs), facts, encoding_index(std::move(encoding)), fused_with);
}

inline error manifest::add_encoded(std::vector<tensor_spec> specs, const pair_facts& facts, i32 encoding,
                                   std::string_view fused_with) {
  error wrong = judge_pair(specs, facts);
  if (wrong) {
    // Both are judged before either is stored: a refused pair leaves nothing behind, its encoding neither.
    bool used = static_cast<std::size_t>(encoding) + 1 < encodings_.size();
    for (const manifest_item& item : items_) used = used || item.encoding == encoding;
    if (!used) encodings_.pop_back();
    return wrong;
  }
  const u32 unit = unit_of(fused_with.empty() ? std::string_view(specs[0].name) : fused_with);
  items_.push_back({unit, static_cast<u32>(entries_.size()), 2, encoding, facts});
  for (const int i : {0, 1}) append(std::move(specs[static_cast<std::size_t>(i)]), i == 0 ? role::codes : role::scales);
  return {};
}

inline error manifest::judge_pair(const std::vector<tensor_spec>& specs, const pair_facts& facts) const {
  if (specs.size() != 2)
    return make_error(errc::bad_argument, "", "a pair has two tensors", static_cast<i64>(specs.size()), 2);
  for (const tensor_spec& spec : specs)
    if (error wrong = admit(spec)) return wrong;
  u64 bytes[2] = {};
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    bytes[i] = static_cast<u64>(byte_count(specs[i].dtype, specs[i].shape));
  if (specs[0].name == specs[1].name)
    return make_error(errc::duplicate, specs[0].name, "names both the codes and the scales",
                      condition::c3_complete_pairs);
  // What a cut relies on; a manifest from outside may say anything.
  const matrix_extents& m = facts.extents;
  i64 elements = 0;
  if (!multiply_checked(m.batch, m.rows, elements) || !multiply_checked(elements, m.cols, elements) ||
      (facts.split_rows == 0 ? bytes[0] < static_cast<u64>(elements) : bytes[0] != static_cast<u64>(elements)))
    return make_error(errc::wrong_shape, specs[0].name, "codes are one byte an element; the bytes",
                      static_cast<i64>(bytes[0]), elements, condition::c5_geometry);
  if (facts.split_rows < 0)
    return make_error(errc::bad_argument, specs[0].name, "rows of a block", facts.split_rows, 0,
                      condition::c5_geometry);
  const i64 block_rows = facts.split_rows == 0 ? 1 : m.batch * ceil_div(m.rows, facts.split_rows);
  if (block_rows != 0 && bytes[1] % static_cast<u64>(block_rows) != 0)
    return make_error(errc::wrong_shape, specs[1].name, "its bytes do not divide into block rows; the rest",
                      static_cast<i64>(bytes[1] % static_cast<u64>(block_rows)), 0, condition::c5_geometry);
  return {};
}

inline error manifest::keep(std::string_view name, fp8wire::dtype dtype, const std::vector<i64>& shape,
                            std::string_view fused_with) {
  tensor_spec spec{std::string(name), dtype, shape};
  if (error wrong = admit(spec)) return wrong;
  const u32 unit = unit_of(fused_with.empty() ? name : fused_with);
  items_.push_back({unit, static_cast<u32>(entries_.size()), 1, -1, {}});
  append(std::move(spec), role::kept);
  return {};
}

inline error manifest::tie(std::string_view alias, std::string_view item_name) {
  const i64 item = find_item(item_name);
  if (item < 0)
    return make_error(errc::missing, std::string(alias), "is tied to " + std::string(item_name) + ", which is not sent",
                      condition::c3_complete_pairs);
  if (alias.empty() || find(alias) >= 0 || find_alias(alias) >= 0)
    return make_error(errc::duplicate, std::string(alias), "appears twice in the manifest",
                      condition::c3_complete_pairs);
  aliases_.push_back({std::string(alias), static_cast<u32>(item)});
  by_alias_.insert(static_cast<u32>(aliases_.size() - 1),
                   [&](u32 index) { return std::string_view(aliases_[index].name); });
  return {};
}

inline void manifest::label(u64 wire_id, std::string_view name) {
  for (encoding_entry& one : encodings_)
    if (one.wire_id == wire_id) one.label = name;
}

inline i64 manifest::find(std::string_view entry_name) const noexcept {
  return by_name_.find(entry_name, [&](u32 index) { return std::string_view(entries_[index].name); });
}

inline i64 manifest::find_alias(std::string_view name) const noexcept {
  return by_alias_.find(name, [&](u32 index) { return std::string_view(aliases_[index].name); });
}

inline i64 manifest::find_item(std::string_view item_name) const noexcept {
  const i64 entry = find(item_name);
  if (entry < 0) return -1;
  const manifest_entry& found = entries_[static_cast<std::size_t>(entry)];
  return found.what == role::scales ? -1 : static_cast<i64>(found.item);
}

inline u64 manifest::hash() const noexcept {
  const auto put = [](std::string_view text, u64 state) {
    return fp8wire::hash(text, fp8wire::hash(text.size(), state));
  };
  const auto put_number = [](i64 number, u64 state) { return fp8wire::hash(static_cast<u64>(number), state); };
  u64 state = fp8wire::hash("fp8wire manifest 1");
  for (const manifest_entry& entry : entries_) {
    const manifest_item& item = items_[entry.item];
    state = put(units_[item.unit], put(entry.name, state));
    state = put(name_of(entry.dtype), fp8wire::hash(static_cast<u64>(entry.what), state));
    state =
        fp8wire::hash(item.encoding < 0 ? u64{0} : encodings_[static_cast<std::size_t>(item.encoding)].wire_id, state);
    for (const i64 number : {item.facts.part.row, item.facts.part.col, item.facts.whole_rows, item.facts.whole_cols})
      state = put_number(number, state);
    if (entry.what == role::codes && !detail::shows_extents(entry.shape, item.facts.extents))
      for (const i64 number : {item.facts.extents.batch, item.facts.extents.rows, item.facts.extents.cols})
        state = put_number(number, state);
    state = fp8wire::hash(entry.shape.size(), state);
    for (const i64 extent : entry.shape) state = put_number(extent, state);
  }
  for (const manifest_alias& alias : aliases_) state = put(item_name(alias.item), put(alias.name, state));
  return state;
}

FP8WIRE_ABI_END
#endif
