// SPDX-License-Identifier: Apache-2.0
#include "faults.hpp"

#include <csignal>
#include <cstring>

#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/testing/toy_model.hpp>
#include <fp8wire/wire/conditions/buffers.hpp>
#include <fp8wire/wire/conditions/grid.hpp>
#include <fp8wire/wire/message_codec.hpp>

#include "../common/program.hpp"

namespace programs {
namespace {

namespace fw = fp8wire;
using fw::testing::fault;

std::string_view name_of(fw::testing::fault_place place) noexcept {
  return place == fw::testing::fault_place::learner ? "learner"
         : place == fw::testing::fault_place::wire  ? "wire"
                                                    : "engine";
}

/// The manifest again, each pair and kept tensor as `change(item, specs, unit)` leaves it; false: the pair is kept in
/// BF16 instead.
template <class Change> fw::manifest rebuilt(const fw::manifest& from, const Change& change) {
  fw::manifest made;
  for (std::size_t i = 0; i < from.items().size(); ++i) {
    const fw::manifest_item& item = from.items()[i];
    std::vector<fw::tensor_spec> specs;
    for (fw::u32 e = item.first_entry; e < item.first_entry + item.entries; ++e)
      specs.push_back({from.entries()[e].name, from.entries()[e].dtype, from.entries()[e].shape});
    std::string unit = from.units()[item.unit];
    const bool pair = change(item, specs, unit) && item.encoding >= 0;
    if (pair)
      must(
          made.add_pair(std::move(specs), item.facts, from.encodings()[static_cast<std::size_t>(item.encoding)], unit));
    else must(made.keep(specs[0].name, item.encoding >= 0 ? fw::dtype::bf16 : specs[0].dtype, specs[0].shape, unit));
  }
  for (const fw::manifest_alias& alias : from.aliases()) must(made.tie(alias.name, from.item_name(alias.item)));
  return made;
}

}  // namespace

injected_fault parse_fault(const std::string& text, int rounds) {
  injected_fault made;
  if (text.empty()) return made;
  made.on = true;
  made.round = rounds < 2 ? 1 : 2;
  const std::size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  const fw::testing::fault_row* row = fw::testing::find_fault(name);
  if (row == nullptr && name != "none") misuse("--fault {}: no such fault; --list-faults has them", name);
  if (row != nullptr) made.kind = row->kind;
  if (at == std::string::npos) return made;
  fw::u64 round = 0;
  for (const char digit : text.substr(at + 1)) {
    if (digit < '0' || digit > '9' || round > 1000000) round = 0, misuse("--fault {}: KIND or KIND@ROUND", text);
    round = 10 * round + static_cast<fw::u64>(digit - '0');
  }
  if (round < 1 || round > static_cast<fw::u64>(rounds)) misuse("--fault {}: rounds are 1 .. {}", text, rounds);
  made.round = round;
  return made;
}

std::string fault_list() {
  std::string text = "name                 condition  made by  what it is\n";
  for (const fw::testing::fault_row& row : fw::testing::faults) {
    std::string line(row.name);
    line.resize(21, ' ');
    line.append(fw::name_of(row.caught_by)).resize(32, ' ');
    line.append(name_of(row.place)).resize(41, ' ');
    text.append(line).append(row.what).append("\n");
  }
  return text;
}

fw::manifest offered_with(const injected_fault& injected, const fw::manifest& tensors) {
  bool once = false;
  switch (injected.kind) {
    case fault::wrong_dtype:
      return rebuilt(tensors, [&](const fw::manifest_item& item, std::vector<fw::tensor_spec>& specs, std::string&) {
        if (item.encoding >= 0 && !std::exchange(once, true))
          specs[1].dtype = fw::bit_width(specs[1].dtype) == 32   ? fw::dtype::int32
                           : fw::bit_width(specs[1].dtype) == 16 ? fw::dtype::int16
                                                                 : fw::dtype::int8;
        return true;
      });
    case fault::squeezed_scale:
      return rebuilt(tensors, [&](const fw::manifest_item& item, std::vector<fw::tensor_spec>& specs, std::string&) {
        if (item.encoding >= 0 && !std::exchange(once, true)) {
          const fw::i64 last = specs[1].shape.back();
          specs[1].shape.pop_back();
          specs[1].shape.back() *= last;
        }
        return true;
      });
    case fault::split_pair:
      return rebuilt(tensors, [](const fw::manifest_item&, std::vector<fw::tensor_spec>& specs, std::string& unit) {
        return unit = specs[0].name, true;
      });
    default: return tensors;
  }
}

fw::manifest expected_with(const injected_fault& injected, int engine, const fw::manifest& tensors) {
  if (engine != 0) return tensors;
  if (injected.kind == fault::swallowed_layer) {
    const std::string_view gate = "**.gate_proj|up_proj.weight";
    bool any = false;
    for (std::size_t i = 0; i < tensors.items().size(); ++i)
      any = any || (tensors.items()[i].encoding >= 0 && fw::matches(gate, tensors.item_name(i)));
    bool once = any;
    return rebuilt(tensors, [&](const fw::manifest_item& item, std::vector<fw::tensor_spec>& specs, std::string&) {
      return item.encoding < 0 || !(any ? fw::matches(gate, specs[0].name) : !std::exchange(once, true));
    });
  }
  fw::manifest made = tensors;
  if (injected.kind == fault::unlisted_buffer) must(made.keep("gate.e_score_correction_bias", fw::dtype::f32, {8}));
  return made;
}

static bool is_later_expert(std::string_view name) {
  return fw::matches("**.experts.#.**", name) && !fw::matches("**.experts.0.**", name);
}

learner_faults::learner_faults(const injected_fault& fault, const fw::manifest& tensors) : fault_(fault) {
  for (std::size_t item = 0; item < tensors.items().size(); ++item) {
    const std::string_view name = tensors.item_name(item);
    experts_ = experts_ || is_later_expert(name);
    if (fw::matches("**.experts.**", name) || !fw::matches("**.experts.**", last_)) last_ = name;
  }
}

fw::u64 learner_faults::version_to_begin(fw::u64 version) const noexcept {
  return fault_.kind == fault::version_replay && fault_.due(version) ? version - 1 : version;
}

std::string_view learner_faults::name_of(fw::u64 version, std::size_t i, std::size_t count, std::string_view name) {
  if (!fault_.due(version)) return name;
  if (fault_.kind == fault::rename && i == count / 2) return renamed_ = std::string(name) + "_renamed";
  const bool expert = is_later_expert(name);
  return fault_.kind == fault::partial_experts && (experts_ ? expert : name == last_) ? std::string_view() : name;
}

fw::error learner_faults::half_way(fw::u64 version, std::size_t i, std::size_t count, any_sender& sender,
                                   fw::shm_publisher& transport) const {
  if (!fault_.due(version) || i != count / 2) return {};
  if (fault_.kind == fault::dead_peer) ::raise(SIGKILL);
  if (fault_.kind != fault::aborted_update) return {};
  const fw::error why = fw::make_error(fw::errc::aborted, "weight_version",
                                       "the learner gave the update up and commits it", fw::condition::c8_commit);
  sender.abort(why);
  fw::message commit;
  fw::encode_version(fw::message_kind::commit, version, commit);
  static_cast<void>(transport.broadcast(commit));
  return why;
}

bool faulty_subscriber::is_target(const fw::frame& announced) const noexcept {
  return wire_ != nullptr && announced.buffer == (wire_->buffers().size() - 1) / 2;
}

fw::error faulty_subscriber::receive(fw::message& into) {
  for (;;) {
    if (!waiting_.empty()) {
      into = std::move(waiting_.front());
      waiting_.pop_front();
      return {};
    }
    if (fw::error wrong = base_.receive(into)) return wrong;
    if (!session_.fault.on || !bend(into)) return {};
  }
}

/// True where the message is not to be seen.
bool faulty_subscriber::bend(fw::message& into) {
  switch (into.kind) {
    case fw::message_kind::hello: {
      if (session_.fault.kind != fault::capacity_off_by_one || session_.engine != 0) return false;
      auto offer = fw::json_text::read_hello(fw::decode_text(into));
      if (!offer) return false;
      --offer->options.capacity_bytes;
      fw::encode_text(fw::message_kind::hello, fw::json_text::write(*offer), into);
      return false;
    }
    case fw::message_kind::begin:
      static_cast<void>(fw::decode_version(into, session_.version));
      sums_.clear();
      return false;
    case fw::message_kind::finish:
      for (const auto& [piece, sum] : sums_)
        if (into.payload.size() >= 24 + 8 * std::size_t{piece})
          fw::detail::store_le(into.payload.data() + 16 + 8 * std::size_t{piece}, sum);
      return false;
    case fw::message_kind::commit: return session_.due(fault::missed_commit);
    case fw::message_kind::data: break;
    default: return false;
  }
  auto announced = fw::decode_frame(into);
  if (!announced || !is_target(*announced)) return false;
  if (session_.due(fault::drop)) return session_.injected = true, !base_.release(*announced);
  if (session_.due(fault::duplicate)) {
    waiting_.push_back(into);
    repeated_ = announced->buffer;
    session_.injected = true;
  }
  if (session_.due(fault::reorder)) {
    fw::message later;
    if (base_.receive(later)) return false;
    session_.injected = later.kind == fw::message_kind::data;
    if (session_.injected) std::swap(into, later);
    waiting_.push_back(std::move(later));
    return false;
  }
  if (session_.due(fault::mixed_version)) --announced->weight_version, session_.injected = true;
  if (session_.due(fault::boundary_mismatch)) announced->used_bytes -= 8, session_.injected = true;
  fw::encode(*announced, into);
  return false;
}

fw::result<std::span<const std::byte>> faulty_subscriber::bytes(const fw::frame& announced, stream s) {
  if (repeated_ == announced.buffer && given_back_ == announced.buffer) return std::span<const std::byte>(copy_);
  auto slot = base_.bytes(announced, s);
  if (!slot || !session_.fault.on || wire_ == nullptr) return slot;
  copy_.assign(slot->begin(), slot->end());
  if (session_.due(fault::misaligned_offset)) copy_.insert(copy_.begin(), std::byte{0});
  if (fw::error wrong = damage(announced)) return wrong;
  std::span<const std::byte> shown(copy_);
  if (session_.due(fault::misaligned_offset)) shown = shown.subspan(1), session_.injected = true;
  if (session_.due(fault::short_buffer) && is_target(announced) && !shown.empty())
    shown = shown.first(shown.size() - 1), session_.injected = true;
  if (fw::error wrong =
          fw::check_placement(*tensors_, fw::placement_of(*wire_), reinterpret_cast<std::uintptr_t>(shown.data())))
    return wrong;
  return shown;
}

/// What happens to the bytes of a frame, in copy_. The sums of what a learner would have summed are made anew.
fw::error faulty_subscriber::damage(const fw::frame& announced) {
  if (is_target(announced) && !copy_.empty()) {
    if (session_.due(fault::flip_bit)) copy_[0] ^= std::byte{0x10}, session_.injected = true;
    if (session_.due(fault::early_ack)) {
      if (fw::error wrong = base_.release(announced)) return wrong;
      fw::poison(copy_);  // what the learner writes next, at its worst
      given_back_ = announced.buffer;
      session_.injected = true;
    }
  }
  if (announced.buffer >= wire_->buffers().size()) return {};
  const fw::plan_buffer& buffer = wire_->buffers()[announced.buffer];
  for (fw::u32 i = buffer.first; i + 1 < buffer.first + buffer.count && !session_.injected; ++i) {
    const fw::plan_piece &codes = wire_->pieces()[i], &scales = wire_->pieces()[i + 1];
    const fw::manifest_entry &code_entry = tensors_->entries()[codes.entry], &entry = tensors_->entries()[scales.entry];
    if (code_entry.what != fw::role::codes || scales.offset + scales.bytes > copy_.size()) continue;
    const auto part = [&](const fw::plan_piece& piece) {
      return std::span(copy_).subspan(static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.bytes));
    };
    const std::vector<std::byte> clean(part(scales).begin(), part(scales).end());
    const auto is_due = [&](fault kind) { return session_.due(kind); };
    bool changed = false;
    if (session_.engine == 0 && session_.fault.due(session_.version))
      changed = fw::testing::damage_pair(session_.fault.kind, entry.dtype, part(codes), part(scales));
    const bool other_grid =
        is_due(fault::grid_floor) || is_due(fault::grid_f32_master) || is_due(fault::grid_edge_padding);
    if (other_grid) {
      // A scale as the other grid has it: one octave down, one unit in the last place, one octave up at the edge.
      const std::size_t width = static_cast<std::size_t>(fw::bit_width(entry.dtype)) / 8;
      const std::size_t at = is_due(fault::grid_edge_padding) ? part(scales).size() - width : 0;
      const bool unit = is_due(fault::grid_f32_master) || width == 1;
      std::byte& one = part(scales)[at + (unit ? 0 : width - 1)];
      one = static_cast<std::byte>(static_cast<int>(one) + (is_due(fault::grid_floor) ? -1 : 1));
      changed = true;
    }
    if (!changed) continue;
    session_.injected = true;
    for (const auto& [piece, number] : {std::pair(codes, i), std::pair(scales, i + 1)})
      sums_.emplace_back(number, fw::checksum(part(piece).data(), part(piece).size()));
    // A learner that publishes a sample of its own copy would publish the clean bytes.
    if (other_grid) return fw::check_grid(entry, clean, part(scales));
  }
  return {};
}

fw::error faulty_subscriber::release(const fw::frame& announced, stream s) {
  if (session_.due(fault::unanswered_frame) && is_target(announced)) return session_.injected = true, fw::error{};
  if (given_back_ == announced.buffer) return given_back_ = repeated_ = -1, fw::error{};
  if (repeated_ == announced.buffer) given_back_ = announced.buffer;
  return base_.release(announced, s);
}

}  // namespace programs
