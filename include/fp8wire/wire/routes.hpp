// SPDX-License-Identifier: Apache-2.0
/// Where each sent tensor ends up in an engine's memory: learned through its own loader, proven, replayed.
///
/// A loader that fuses, shards and shuffles takes minutes of Python for what is a list of copies. The list is recorded
/// while the loader runs, or learned from it by loading tensors whose elements say their own index; it is dropped, with
/// the reason, as soon as a tensor or a destination is not what it was.
#ifndef FP8WIRE_WIRE_ROUTES_HPP
#define FP8WIRE_WIRE_ROUTES_HPP
#include <span>

#include <fp8wire/core/error.hpp>
#include <fp8wire/detail/name_index.hpp>
#include <fp8wire/model/tensor_spec.hpp>

FP8WIRE_ABI_BEGIN

/// Engine memory that tensors are loaded into: a live parameter, dense.
struct route_target {
  tensor_spec spec;
  std::byte* data = nullptr;
  bool operator==(const route_target&) const = default;
};

/// A rectangle of elements that moves: target[to + r * to_stride + c] = source[from + r * from_stride + c * from_step]
/// for r < rows, c < cols. Offsets and strides count elements; both ends have one element size.
struct route_slice {
  u32 target = 0;
  i64 to = 0, from = 0, rows = 1, cols = 0;
  i64 to_stride = 0, from_stride = 0, from_step = 1;
  bool operator==(const route_slice&) const = default;
};

/// begin, record for every copy, close; or learn. Then still_valid and replay in every update.
/// Errors that drop the routes leave known() false: load as the first time, and learn again.
/// Threads: one at a time; replay of different tensors may run concurrently where their slices were proven.
class routes {
 public:
  bool known() const noexcept { return known_; }
  /// The slices of a tensor, empty if there is none of that name.
  std::span<const route_slice> of(std::string_view source) const noexcept {
    const i64 at = find(source);
    return at < 0 ? std::span<const route_slice>() : slices_[static_cast<std::size_t>(at)];
  }

  /// Starts over. Errors: duplicate for two sources of one name; wrong_shape, overflow for shapes without a byte size.
  error begin(std::span<const tensor_spec> sources, std::span<const route_target> targets) {
    known_ = false;
    sources_.assign(sources.begin(), sources.end());
    targets_.assign(targets.begin(), targets.end());
    slices_.assign(sources.size(), {});
    by_name_ = {};
    for (u32 i = 0; i < sources_.size(); ++i) {
      if (find(sources_[i].name) >= 0) return make_error(errc::duplicate, sources_[i].name, "is a source twice");
      by_name_.insert(i, names());
      if (error wrong = check_spec(sources_[i])) return wrong;
    }
    for (const route_target& one : targets_)
      if (error wrong = check_spec(one.spec)) return wrong;
    return {};
  }

  /// One copy that the loader makes.
  /// Errors: unexpected (C3) for an unknown source; wrong_dtype (C3) where element sizes differ; wrong_shape (C5) for a
  /// slice that leaves the source or the target.
  error record(std::string_view source, const route_slice& copy) {
    const i64 at = find(source);
    if (at < 0)
      return make_error(errc::unexpected, std::string(source), "is no source of these routes",
                        condition::c3_complete_pairs);
    const tensor_spec& from = sources_[static_cast<std::size_t>(at)];
    if (copy.target >= targets_.size())
      return make_error(errc::unexpected, from.name, "goes to a target that is not there", copy.target,
                        static_cast<i64>(targets_.size()), condition::c5_geometry);
    const tensor_spec& to = targets_[copy.target].spec;
    if (bit_width(from.dtype) != bit_width(to.dtype))
      return make_error(errc::wrong_dtype, from.name, "is not copied to " + to.name + " but converted; bits",
                        bit_width(from.dtype), bit_width(to.dtype), condition::c3_complete_pairs);
    if (error wrong = inside(from, "leaves the source; element", copy.from, copy.rows, copy.from_stride, copy.cols,
                             copy.from_step))
      return wrong;
    if (error wrong = inside(to, "leaves the target; element", copy.to, copy.rows, copy.to_stride, copy.cols, 1))
      return wrong;
    slices_[static_cast<std::size_t>(at)].push_back(copy);
    return {};
  }

  /// Proves what was recorded: every element of every target has one source, every element of every source a target.
  /// Errors: duplicate (C5) for an element that is written twice, missing (C5) for one that is not written or not used.
  /// Cost: one bit an element of both sides.
  error close() {
    std::vector<std::vector<bool>> written(targets_.size());
    for (std::size_t t = 0; t < targets_.size(); ++t) written[t].resize(count(targets_[t].spec));
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      std::vector<bool> used(count(sources_[s]));
      for (const route_slice& one : slices_[s])
        for (i64 r = 0; r < one.rows; ++r)
          for (i64 c = 0; c < one.cols; ++c) {
            const i64 to = one.to + r * one.to_stride + c;
            used[static_cast<std::size_t>(one.from + r * one.from_stride + c * one.from_step)] = true;
            if (written[one.target][static_cast<std::size_t>(to)])
              return drop(make_error(errc::duplicate, targets_[one.target].spec.name,
                                     "is written twice, the second time by " + sources_[s].name + "; element", to,
                                     static_cast<i64>(written[one.target].size()), condition::c5_geometry));
            written[one.target][static_cast<std::size_t>(to)] = true;
          }
      if (error wrong = all_set(used, sources_[s].name, "goes nowhere; element")) return drop(std::move(wrong));
    }
    for (std::size_t t = 0; t < targets_.size(); ++t)
      if (error wrong = all_set(written[t], targets_[t].spec.name, "is not written by any tensor; element"))
        return drop(std::move(wrong));
    known_ = true;
    return {};
  }

  /// Learns the routes from the engine's loader. `load(spec, bytes)` must do what it does with a real tensor of that
  /// spec and answer an error; it is called for every source in order, as often as the largest index has bytes. The
  /// targets' contents are lost: learn before the first update, or after an engine stopped serving.
  /// Errors: the loader's; wrong_dtype (C3) where elements are converted and not copied; missing (C5) as close().
  /// Two tensors that are loaded over each other show as an element of the first that goes nowhere.
  /// Cost: at most five loads; eight bytes of memory an element of the targets: learn large models layer by layer.
  template <class Load>
  error learn(std::span<const tensor_spec> sources, std::span<const route_target> targets, const Load& load) {
    if (error wrong = begin(sources, targets)) return wrong;
    std::vector<u64> first(sources_.size() + 1, 1);  // ids of a source's elements; 0: nobody's
    for (std::size_t s = 0; s < sources_.size(); ++s) first[s + 1] = first[s] + count(sources_[s]);
    std::vector<std::vector<u64>> ids(targets_.size());
    for (std::size_t t = 0; t < targets_.size(); ++t) ids[t].resize(count(targets_[t].spec));
    std::vector<std::byte> bytes;
    for (int digit = 0; first.back() >> (8 * digit) != 0; ++digit) {
      for (const route_target& one : targets_)
        if (const std::size_t size = count(one.spec) * width(one.spec.dtype); size > 0)
          __builtin_memset(one.data, 0, size);
      for (std::size_t s = 0; s < sources_.size(); ++s) {
        const std::size_t item = width(sources_[s].dtype);
        bytes.resize(count(sources_[s]) * item);
        for (std::size_t i = 0; i < count(sources_[s]); ++i)
          for (std::size_t b = 0; b < item; ++b)
            bytes[i * item + b] = static_cast<std::byte>((first[s] + i) >> (8 * digit) & 0xFF);
        if (error wrong = load(sources_[s], std::span<const std::byte>(bytes))) return drop(std::move(wrong));
      }
      for (std::size_t t = 0; t < targets_.size(); ++t) {
        const std::size_t item = width(targets_[t].spec.dtype);
        for (std::size_t i = 0; i < ids[t].size(); ++i) {
          const std::byte* at = targets_[t].data + i * item;
          for (std::size_t b = 1; b < item; ++b)
            if (at[b] != at[0]) return drop(converted(targets_[t].spec, i));
          ids[t][i] |= static_cast<u64>(at[0]) << (8 * digit);
        }
      }
    }
    for (u32 t = 0; t < targets_.size(); ++t)
      if (error wrong = compress(t, ids[t], first)) return drop(std::move(wrong));
    return close();
  }

  /// Whether the routes still fit what is sent and where it goes; if not, they are dropped.
  /// Errors: not_serving for routes that are not known; missing, unexpected, wrong_dtype (C3), wrong_shape (C5),
  /// format_mismatch (C6) for a destination that moved. Cost: O(tensors), no tensor data.
  error still_valid(std::span<const tensor_spec> sources, std::span<const route_target> targets) {
    if (!known_) return make_error(errc::not_serving, "routes", "are not known: load as the first time");
    if (sources.size() != sources_.size())
      return drop(make_error(errc::unexpected, "routes", "are dropped: the number of tensors changed",
                             static_cast<i64>(sources.size()), static_cast<i64>(sources_.size()),
                             condition::c3_complete_pairs));
    for (const tensor_spec& one : sources) {
      const i64 at = find(one.name);
      if (at < 0)
        return drop(make_error(errc::unexpected, one.name, "routes are dropped: this tensor is new",
                               condition::c3_complete_pairs));
      if (error wrong = same(one, sources_[static_cast<std::size_t>(at)])) return drop(std::move(wrong));
    }
    if (targets.size() != targets_.size())
      return drop(make_error(errc::unexpected, "routes", "are dropped: the number of destinations changed",
                             static_cast<i64>(targets.size()), static_cast<i64>(targets_.size()),
                             condition::c6_derived_state));
    for (std::size_t t = 0; t < targets.size(); ++t) {
      if (targets[t].spec.name != targets_[t].spec.name)
        return drop(make_error(errc::unexpected, targets[t].spec.name,
                               "routes are dropped: it stands where " + targets_[t].spec.name + " was",
                               condition::c6_derived_state));
      if (error wrong = same(targets[t].spec, targets_[t].spec)) return drop(std::move(wrong));
      if (targets[t].data != targets_[t].data)
        return drop(make_error(errc::format_mismatch, targets[t].spec.name, "routes are dropped: the destination moved",
                               condition::c6_derived_state));
    }
    return {};
  }

  /// Copies one tensor to where it belongs. Errors: not_serving, unexpected (C3), wrong_size (C7).
  /// Expects: still_valid() said so in this update.
  error replay(std::string_view source, std::span<const std::byte> bytes) const {
    if (!known_) return make_error(errc::not_serving, std::string(source), "its routes are not known");
    const i64 found = find(source);
    if (found < 0)
      return make_error(errc::unexpected, std::string(source), "has no route", condition::c3_complete_pairs);
    const std::size_t s = static_cast<std::size_t>(found), item = width(sources_[s].dtype);
    if (bytes.size() != count(sources_[s]) * item)
      return make_error(errc::wrong_size, sources_[s].name, "its bytes are not those of its route",
                        static_cast<i64>(bytes.size()), static_cast<i64>(count(sources_[s]) * item),
                        condition::c7_transport);
    for (const route_slice& one : slices_[s]) {
      for (i64 r = 0; r < one.rows; ++r) {
        std::byte* to = targets_[one.target].data + static_cast<std::size_t>(one.to + r * one.to_stride) * item;
        const std::byte* from = bytes.data() + static_cast<std::size_t>(one.from + r * one.from_stride) * item;
        if (one.from_step == 1) {
          __builtin_memcpy(to, from, static_cast<std::size_t>(one.cols) * item);
          continue;
        }
        for (i64 c = 0; c < one.cols; ++c)
          __builtin_memcpy(to + static_cast<std::size_t>(c) * item,
                           from + static_cast<std::ptrdiff_t>(c * one.from_step) * static_cast<std::ptrdiff_t>(item),
                           item);
      }
    }
    return {};
  }

 private:
  struct name_of_source {
    const std::vector<tensor_spec>* all;
    std::string_view operator()(u32 index) const noexcept { return (*all)[index].name; }
  };
  name_of_source names() const noexcept { return {&sources_}; }
  i64 find(std::string_view source) const noexcept { return by_name_.find(source, names()); }
  static std::size_t width(dtype type) noexcept { return static_cast<std::size_t>(bit_width(type)) / 8; }
  static std::size_t count(const tensor_spec& spec) noexcept {
    return static_cast<std::size_t>(byte_count(spec.dtype, spec.shape)) / width(spec.dtype);
  }
  static error check_spec(const tensor_spec& spec) {
    if (bit_width(spec.dtype) % 8 != 0)
      return make_error(errc::wrong_dtype, spec.name, "packs elements into bytes and has no routes");
    if (byte_count(spec.dtype, spec.shape) < 0)
      return make_error(errc::wrong_shape, spec.name, "has no size in bytes", condition::c5_geometry);
    return {};
  }
  error drop(error why) {
    known_ = false;
    return why;
  }
  static error same(const tensor_spec& now, const tensor_spec& then) {
    if (now.dtype != then.dtype)
      return make_error(errc::wrong_dtype, now.name,
                        std::string("routes are dropped: it is ").append(name_of(now.dtype)) + " now and was " +
                            std::string(name_of(then.dtype)),
                        condition::c3_complete_pairs);
    if (now.shape == then.shape) return {};
    std::size_t axis = 0;
    while (axis < now.shape.size() && axis < then.shape.size() && now.shape[axis] == then.shape[axis]) ++axis;
    return make_error(errc::wrong_shape, now.name,
                      "routes are dropped: its shape changed; axis " + std::to_string(axis),
                      axis < now.shape.size() ? now.shape[axis] : 0, axis < then.shape.size() ? then.shape[axis] : 0,
                      condition::c5_geometry);
  }
  /// Both ends of a rectangle; strides may be negative.
  static error inside(const tensor_spec& of, const char* what, i64 begin, i64 rows, i64 stride, i64 cols, i64 step) {
    constexpr i64 most = i64{1} << 60;  // so that no sum below overflows
    const i64 all = static_cast<i64>(count(of));
    if (rows <= 0 || cols <= 0) return {};
    i64 lowest = begin, highest = begin;
    for (const auto& [times, by] : {std::pair<i64, i64>{rows - 1, stride}, std::pair<i64, i64>{cols - 1, step}}) {
      i64 reach = 0;
      if (by < -most || !multiply_checked(times, by < 0 ? -by : by, reach) || reach > most || begin > most ||
          begin < -most)
        return make_error(errc::overflow, of.name, what, times, all, condition::c5_geometry);
      (by < 0 ? lowest : highest) += by < 0 ? -reach : reach;
    }
    if (lowest >= 0 && highest < all) return {};
    return make_error(errc::wrong_shape, of.name, what, lowest < 0 ? lowest : highest, all, condition::c5_geometry);
  }
  static error all_set(const std::vector<bool>& set, const std::string& name, const char* what) {
    for (std::size_t i = 0; i < set.size(); ++i)
      if (!set[i])
        return make_error(errc::missing, name, what, static_cast<i64>(i), static_cast<i64>(set.size()),
                          condition::c5_geometry);
    return {};
  }
  static error converted(const tensor_spec& target, std::size_t element) {
    return make_error(errc::wrong_dtype, target.name,
                      "its loader does not copy whole elements; element " + std::to_string(element),
                      condition::c3_complete_pairs);
  }

  /// Runs of one source and one step, then runs that lie regularly beside each other, as slices.
  error compress(u32 target, const std::vector<u64>& ids, const std::vector<u64>& first) {
    std::size_t s = 0;
    for (std::size_t o = 0; o < ids.size();) {
      if (ids[o] == 0 || ids[o] >= first.back()) {
        if (ids[o] != 0) return converted(targets_[target].spec, o);
        ++o;
        continue;
      }
      if (!(first[s] <= ids[o] && ids[o] < first[s + 1])) {
        std::size_t low = 0, high = sources_.size();  // the last source that begins at or before the id
        while (high - low > 1) (first[low + (high - low) / 2] <= ids[o] ? low : high) = low + (high - low) / 2;
        s = low;
      }
      const auto belongs = [&](std::size_t at) {
        return at < ids.size() && ids[at] >= first[s] && ids[at] < first[s + 1];
      };
      const i64 step = belongs(o + 1) ? static_cast<i64>(ids[o + 1] - ids[o]) : 1;
      std::size_t end = o + 1;
      while (belongs(end) && static_cast<i64>(ids[end] - ids[end - 1]) == step) ++end;
      if (bit_width(sources_[s].dtype) != bit_width(targets_[target].spec.dtype))
        return converted(targets_[target].spec, o);
      append(s, {target, static_cast<i64>(o), static_cast<i64>(ids[o] - first[s]), 1, static_cast<i64>(end - o), 0, 0,
                 end - o > 1 ? step : 1});
      o = end;
    }
    return {};
  }
  void append(std::size_t source, const route_slice& run) {
    std::vector<route_slice>& all = slices_[source];
    if (!all.empty()) {
      route_slice& last = all.back();
      const i64 to = run.to - last.to, from = run.from - last.from;
      const bool alike = last.target == run.target && last.cols == run.cols && last.from_step == run.from_step;
      if (alike && last.rows == 1) {
        last.rows = 2, last.to_stride = to, last.from_stride = from;
        return;
      }
      if (alike && to == last.rows * last.to_stride && from == last.rows * last.from_stride) {
        ++last.rows;
        return;
      }
    }
    all.push_back(run);
  }

  std::vector<tensor_spec> sources_;
  std::vector<route_target> targets_;
  std::vector<std::vector<route_slice>> slices_;  // by source
  detail::name_index by_name_;
  bool known_ = false;
};

FP8WIRE_ABI_END
#endif
