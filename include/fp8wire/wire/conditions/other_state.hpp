// SPDX-License-Identifier: Apache-2.0
/// Condition C10 on live data: every parameter and buffer of an engine is sent, constant or recomputed, and said to be.
#ifndef FP8WIRE_WIRE_CONDITIONS_OTHER_STATE_HPP
#define FP8WIRE_WIRE_CONDITIONS_OTHER_STATE_HPP
#include <span>

#include <fp8wire/core/checksum.hpp>
#include <fp8wire/model/fusion.hpp>
#include <fp8wire/wire/manifest.hpp>

FP8WIRE_ABI_BEGIN

/// What becomes of engine state that is not in the manifest.
enum class state_kind : u8 {
  constant,  // the same in all versions: rotary tables, masks
  recomputed  // derived from what is sent: swizzled scales, absorbed products
};

constexpr std::string_view name_of(state_kind what) noexcept {
  return what == state_kind::constant ? "constant" : "recomputed";
}

/// A promise about tensors by name, as in model/name_pattern.hpp: "**.rotary_emb.inv_freq".
struct state_rule {
  std::string pattern;
  state_kind what = state_kind::constant;
};

/// Compares an engine's live parameters and buffers with the manifest and the promises. A fused parameter counts as
/// sent when a part of it is; `engine_name(sent name)` says what the engine calls a sent tensor.
/// Errors, all at once: unexpected (C10): live, and nobody said what becomes of it; missing (C10): kept in the manifest
/// and not live, or a promise about nothing; duplicate (C10): sent, and promised not to change.
/// Cost: tensors x rules name comparisons; no tensor data.
template <class EngineName>
std::vector<error> check_state(std::span<const tensor_spec> live, const manifest& update,
                               std::span<const state_rule> promises, const EngineName& engine_name) {
  std::vector<error> found;
  std::vector<std::string> sent;
  for (const manifest_entry& entry : update.entries()) sent.push_back(engine_name(std::string_view(entry.name)));
  for (const manifest_alias& alias : update.aliases()) sent.push_back(engine_name(std::string_view(alias.name)));
  const auto sent_name = [&](u32 index) { return std::string_view(sent[index]); };
  const auto live_name = [&](u32 index) { return std::string_view(live[index].name); };
  detail::name_index by_sent, by_live;
  for (u32 i = 0; i < sent.size(); ++i)
    if (by_sent.find(sent[i], sent_name) < 0) by_sent.insert(i, sent_name);
  for (u32 i = 0; i < live.size(); ++i)
    if (by_live.find(live[i].name, live_name) < 0) by_live.insert(i, live_name);

  std::vector<u8> used(promises.size());
  for (const tensor_spec& one : live) {
    const state_rule* promise = nullptr;
    for (std::size_t i = 0; i < promises.size() && promise == nullptr; ++i)
      if (matches(promises[i].pattern, one.name)) promise = &promises[i], used[i] = 1;
    const bool is_sent = by_sent.find(one.name, sent_name) >= 0;
    if (is_sent && promise != nullptr && promise->what == state_kind::constant)
      found.push_back(make_error(errc::duplicate, one.name, "is sent, and " + promise->pattern + " says it is constant",
                                 condition::c10_other_state));
    if (!is_sent && promise == nullptr)
      found.push_back(make_error(errc::unexpected, one.name, "is neither sent nor said to be constant or recomputed",
                                 condition::c10_other_state));
  }
  for (std::size_t e = 0; e < update.entries().size(); ++e)
    if (update.entries()[e].what == role::kept && by_live.find(sent[e], live_name) < 0)
      found.push_back(make_error(errc::missing, update.entries()[e].name, "is sent, and the engine has no such state",
                                 condition::c10_other_state));
  for (std::size_t i = 0; i < promises.size(); ++i)
    if (used[i] == 0)
      found.push_back(make_error(
          errc::missing, promises[i].pattern,
          std::string("is said to be ").append(name_of(promises[i].what)) + ", and the engine has no such state",
          condition::c10_other_state));
  return found;
}

/// Names as the library's own fusion rules have them.
inline std::vector<error> check_state(std::span<const tensor_spec> live, const manifest& update,
                                      std::span<const state_rule> promises) {
  return check_state(live, update, promises, [](std::string_view sent) {
    std::string fused = fused_with(sent);
    return fused.empty() ? std::string(sent) : fused;
  });
}

/// A constant against the checksum of its first hour. Errors: checksum (C10). Cost: one read.
inline error check_constant(std::string_view tensor, std::span<const std::byte> bytes, u64 sum) {
  const u64 here = checksum(bytes.data(), bytes.size());
  if (here == sum) return {};
  return make_error(errc::checksum, std::string(tensor), "is said to be constant and changed; the checksum",
                    static_cast<i64>(here), static_cast<i64>(sum), condition::c10_other_state);
}

FP8WIRE_ABI_END
#endif
