// SPDX-License-Identifier: Apache-2.0
/// Two manifests, every difference at once: what an engine expects and what a learner offers.
#ifndef FP8WIRE_WIRE_COMPARE_HPP
#define FP8WIRE_WIRE_COMPARE_HPP
#include <span>

#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

/// So many differences of one tensor each are listed; sets of names and encodings count as one difference each.
inline constexpr std::size_t most_differences = 64;

namespace detail {

inline std::string text_of(const std::vector<i64>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  return text + "]";
}

class comparison {
 public:
  comparison(const manifest& offered, const manifest& expected, std::span<const u64> also_accepted_grids)
      : offered_(offered), expected_(expected), grids_(also_accepted_grids) {}

  std::vector<error> all() {
    names(expected_, offered_, errc::missing, "missing keys", "is not offered");
    names(offered_, expected_, errc::unexpected, "unexpected keys", "is not known here");
    tied();
    for (const manifest_entry& entry : expected_.entries()) {
      const i64 found = offered_.find(entry.name);
      if (found < 0) continue;
      tensor(offered_.entries()[static_cast<std::size_t>(found)], entry);
      if (found_.size() >= most_differences) break;
    }
    units();
    return std::move(found_);
  }

 private:
  void say(errc code, std::string name, std::string what, condition broken) {
    found_.push_back(make_error(code, std::move(name), std::move(what), broken));
  }

  static bool knows(const manifest& all, std::string_view name) {
    return all.find(name) >= 0 || all.find_alias(name) >= 0;
  }

  /// One difference for the pairs (C1: the layer sets differ) and one for what is kept (C10).
  void names(const manifest& these, const manifest& those, errc code, const char* many, const char* what) {
    for (const bool kept : {false, true}) {
      std::string first, list;
      std::size_t count = 0;
      for (const manifest_entry& entry : these.entries()) {
        if ((entry.what == role::kept) != kept || knows(those, entry.name)) continue;
        if (count++ == 0) first = entry.name;
        if (count <= 8) list.append(count == 1 ? "" : ", ").append(entry.name);
      }
      if (count == 0) continue;
      say(code, first,
          std::string(what) + "; " + many + " (" + std::to_string(count) + "): [" + list + (count > 8 ? ", ...]" : "]"),
          kept ? condition::c10_other_state : condition::c1_layer_set);
    }
  }

  void tied() {
    for (const manifest_alias& alias : expected_.aliases()) {
      const std::string_view here = expected_.item_name(alias.item);
      const i64 found = offered_.find_alias(alias.name);
      if (found < 0 && offered_.find(alias.name) >= 0) continue;  // sent by itself: more than is needed
      const std::string_view there =
          found < 0 ? "nothing" : offered_.item_name(offered_.aliases()[static_cast<std::size_t>(found)].item);
      if (there != here)
        say(errc::missing, alias.name, "is tied to " + std::string(here) + " here, to " + std::string(there) + " there",
            condition::c10_other_state);
    }
  }

  void tensor(const manifest_entry& offered, const manifest_entry& expected) {
    const manifest_item& there = offered_.items()[offered.item];
    const manifest_item& here = expected_.items()[expected.item];
    if (offered.what != expected.what)
      return say(errc::wrong_dtype, expected.name,
                 "is offered as " + described(offered_, offered) + ", expected as " + described(expected_, expected),
                 condition::c1_layer_set);
    if (expected.what == role::codes) encoding(expected.name, there, here);
    if (offered.dtype != expected.dtype)
      say(errc::wrong_dtype, expected.name,
          "dtype " + std::string(name_of(offered.dtype)) + " is offered, " + std::string(name_of(expected.dtype)) +
              " expected",
          expected.what == role::kept ? condition::c10_other_state : condition::c3_complete_pairs);
    if (offered.shape != expected.shape)
      say(errc::wrong_shape, expected.name,
          "shape " + text_of(offered.shape) + " is offered, " + text_of(expected.shape) + " expected",
          condition::c5_geometry);
    else if (there.facts.part != here.facts.part || there.facts.whole_rows != here.facts.whole_rows ||
             there.facts.whole_cols != here.facts.whole_cols)
      say(errc::wrong_shape, expected.name,
          "rows from " + std::to_string(there.facts.part.row) + " and columns from " +
              std::to_string(there.facts.part.col) + " are offered, from " + std::to_string(here.facts.part.row) +
              " and " + std::to_string(here.facts.part.col) + " expected",
          condition::c5_geometry);
    else if (expected.what == role::codes && !(there.facts.extents == here.facts.extents))
      say(errc::wrong_shape, expected.name,
          "weights of " + text_of({there.facts.extents.rows, there.facts.extents.cols}) + " are offered, of " +
              text_of({here.facts.extents.rows, here.facts.extents.cols}) + " expected",
          condition::c5_geometry);
  }

  static std::string described(const manifest& all, const manifest_entry& entry) {
    const i32 encoding = all.items()[entry.item].encoding;
    std::string text = std::string(name_of(entry.what)) + " " + std::string(name_of(entry.dtype));
    if (encoding >= 0) text += " of " + all.encodings()[static_cast<std::size_t>(encoding)].described();
    return text;
  }

  /// The layouts in an encoding's text. The naming behind them is no difference: names are compared by themselves.
  static std::string_view layouts_of(const encoding_entry& one) {
    const std::string_view text = one.text;
    const std::size_t from = text.find(";codes="), to = text.find(";naming=");
    return from == std::string_view::npos ? std::string_view{}
                                          : text.substr(from, to == std::string_view::npos ? to : to - from);
  }

  /// Each pair of different encodings is said once, with its first tensor and the number of them.
  void encoding(const std::string& name, const manifest_item& there, const manifest_item& here) {
    const encoding_entry& offered = offered_.encodings()[static_cast<std::size_t>(there.encoding)];
    const encoding_entry& expected = expected_.encodings()[static_cast<std::size_t>(here.encoding)];
    if (offered == expected) return;
    const bool same_grid = offered.grid_id == expected.grid_id;
    bool accepted = same_grid;
    for (const u64 grid : grids_) accepted = accepted || offered.grid_id == grid;
    if (accepted && layouts_of(offered) == layouts_of(expected)) return;
    for (const auto& [a, b] : said_)
      if (a == there.encoding && b == here.encoding) return;
    said_.push_back({there.encoding, here.encoding});
    say(same_grid ? errc::format_mismatch : errc::grid_mismatch, name,
        "is offered as " + offered.described() + ", expected as " + expected.described(),
        same_grid ? condition::c5_geometry : condition::c2_grid);
  }

  /// What one engine parameter fuses must arrive in one unit.
  void units() {
    std::vector<i64> unit_there(expected_.units().size(), -1);
    for (std::size_t i = 0; i < expected_.items().size(); ++i) {
      const i64 found = offered_.find_item(expected_.item_name(i));
      if (found < 0) continue;
      i64& known = unit_there[expected_.items()[i].unit];
      const i64 unit = offered_.items()[static_cast<std::size_t>(found)].unit;
      if (known < 0) known = unit;
      if (known == unit) continue;
      say(errc::unexpected, std::string(expected_.item_name(i)),
          "is fused into " + expected_.units()[expected_.items()[i].unit] + " here and offered apart from it",
          condition::c4_atomic_pairs);
      return;
    }
  }

  const manifest& offered_;
  const manifest& expected_;
  std::span<const u64> grids_;
  std::vector<std::pair<i32, i32>> said_;
  std::vector<error> found_;
};

}  // namespace detail

/// Everything that keeps an engine which expects one manifest from taking the other; empty if nothing does. Tensors are
/// matched by name, their order is the offer's. `also_accepted_grids`: grid ids that are as good as the expected one.
inline std::vector<error> differences(const manifest& offered, const manifest& expected,
                                      std::span<const u64> also_accepted_grids = {}) {
  return detail::comparison(offered, expected, also_accepted_grids).all();
}

FP8WIRE_ABI_END
#endif
