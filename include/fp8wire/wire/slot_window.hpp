// SPDX-License-Identifier: Apache-2.0
/// Which items of an update came, which buffers are complete, and how far ahead of the first gap items may come.
#ifndef FP8WIRE_WIRE_SLOT_WINDOW_HPP
#define FP8WIRE_WIRE_SLOT_WINDOW_HPP
#include <span>

#include <fp8wire/wire/plan.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// Books of one sender, set up once and reset for each update.
class slot_window {
 public:
  slot_window(const manifest& tensors, const plan& wire)
      : tensors_(tensors),
        plan_(wire),
        came_(tensors.items().size()),
        left_(wire.buffers().size()),
        slots_(wire.options().slots) {
    reset();
  }
  void reset() noexcept {
    for (u8& came : came_) came = 0;
    for (std::size_t b = 0; b < left_.size(); ++b) left_[b] = plan_.buffers()[b].count;
    for (auto& slot : slots_) slot = {};
    first_ = 0;
    missing_ = came_.size();
  }

  std::size_t missing() const noexcept { return missing_; }
  /// The first buffer that is not published.
  u32 first() const noexcept { return first_; }
  bool ready() const noexcept { return first_ < left_.size() && left_[first_] == 0; }
  std::span<std::byte>& memory(u32 buffer) noexcept { return slots_[buffer % slots_.size()]; }
  void arrived(u32 item) noexcept {
    came_[item] = 1;
    --missing_;
  }
  void filled(u32 buffer, u32 pieces) noexcept { left_[buffer] -= pieces; }
  void advance() noexcept {
    memory(first_) = {};
    ++first_;
  }

  /// Whether the item of that name may come now. Errors: unexpected, duplicate, missing (C3).
  error admit(std::string_view name, u32& item) const {
    const i64 found = tensors_.find_item(name);
    if (found < 0) return unknown(name);
    item = static_cast<u32>(found);
    if (came_[item] != 0)
      return make_error(errc::duplicate, std::string(name), "came twice in one update", condition::c3_complete_pairs);
    const piece_range range = plan_.of_item(item);
    const u32 begins = plan_.pieces()[range.first].buffer, ends = plan_.pieces()[range.first + range.count - 1].buffer;
    // A pair that was cut may need more buffers than there are slots: it then goes out as it comes, from the first one
    // on.
    if (ends - first_ < slots_.size() || begins == first_) return {};
    return make_error(errc::out_of_order, std::string(name),
                      "comes too early: buffer " + std::to_string(first_) + " still lacks members, " +
                          missing_in(first_) + "; the buffer",
                      ends, static_cast<i64>(first_ + slots_.size() - 1), condition::c3_complete_pairs);
  }

  /// Names what never came.
  error missing_error() const {
    std::string first;
    const std::string keys = missing_keys([&](const auto& see) {
      for (std::size_t item = 0; item < came_.size(); ++item) {
        if (came_[item] != 0) continue;
        if (first.empty()) first = tensors_.item_name(item);
        see(tensors_.item_name(item));
      }
    });
    return make_error(errc::missing, first, keys, static_cast<i64>(came_.size() - missing_),
                      static_cast<i64>(came_.size()), condition::c3_complete_pairs);
  }

 private:
  error unknown(std::string_view name) const {
    const std::string text(name);
    if (const i64 alias = tensors_.find_alias(name); alias >= 0)
      return make_error(errc::duplicate, text,
                        "is tied to " +
                            std::string(tensors_.item_name(tensors_.aliases()[static_cast<std::size_t>(alias)].item)) +
                            ", which is sent once",
                        condition::c3_complete_pairs);
    if (tensors_.find(name) >= 0)
      return make_error(errc::unexpected, text, "is a scale: it is sent with its weight", condition::c3_complete_pairs);
    return make_error(errc::unexpected, text, "is not in the manifest", condition::c3_complete_pairs);
  }
  std::string missing_in(u32 buffer) const {
    return missing_keys([&](const auto& see) {
      const plan_buffer& lacks = plan_.buffers()[buffer];
      u32 last = static_cast<u32>(came_.size());
      for (u32 i = lacks.first; i < lacks.first + lacks.count; ++i) {
        const u32 item = tensors_.entries()[plan_.pieces()[i].entry].item;
        if (came_[item] == 0 && item != last) see(tensors_.item_name(item));
        last = item;
      }
    });
  }
  const manifest& tensors_;
  const plan& plan_;
  std::vector<u8> came_;  // one an item
  std::vector<u32> left_;  // pieces that a buffer still lacks
  std::vector<std::span<std::byte>> slots_;
  u32 first_ = 0;
  std::size_t missing_ = 0;
};

}  // namespace detail
FP8WIRE_ABI_END
#endif
