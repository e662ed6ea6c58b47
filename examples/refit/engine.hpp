// SPDX-License-Identifier: Apache-2.0
/// An engine's process: joins, receives every version, and leaves a dump of what it serves.
#ifndef FP8WIRE_EXAMPLES_REFIT_ENGINE_HPP
#define FP8WIRE_EXAMPLES_REFIT_ENGINE_HPP
#include <optional>

#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/engine.hpp>
#include <fp8wire/wire/host_store.hpp>

#include "any_sender.hpp"
#include "faults.hpp"
#include "ranks.hpp"
#include "reports.hpp"
#include "served_dump.hpp"
#include "update_source.hpp"

namespace programs {

/// host_store with a clock on what loading costs, and with the layout of a rank's kernels where there is one.
class timed_store : public fp8wire::host_store<> {
 public:
  using fp8wire::host_store<>::host_store;
  fp8wire::error write(fp8wire::u32 piece, std::span<const std::byte> from, fp8wire::host_stream s) {
    const auto start = std::chrono::steady_clock::now();
    fp8wire::error wrong = fp8wire::host_store<>::write(piece, from, s);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return wrong;
  }
  fp8wire::error finalize(fp8wire::host_stream) {
    const auto start = std::chrono::steady_clock::now();
    fp8wire::error wrong = layout.derive(*this);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return wrong;
  }
  void publish(fp8wire::u64 version) noexcept {
    fp8wire::host_store<>::publish(version);
    layout.publish();
  }
  double take_seconds() noexcept { return std::exchange(seconds_, 0.0); }

  rank_layout layout;

 private:
  double seconds_ = 0;
};

/// Writes what an engine serves, in canonical layout. Of several ranks the last one to come writes it.
inline fp8wire::error dump_served(int engine, int rank, fp8wire::u64 version, const fp8wire::manifest& tensors,
                                  const timed_store& store, const std::vector<fp8wire::kept_part>& parts,
                                  const engine_image& image, const format& chosen, const dump_settings& dump,
                                  const refit_settings& settings) {
  const int tp = settings.engine_tp;
  bool last = true;
  if (tp > 1)
    if (fp8wire::error wrong = image.put(tensors, store, store.layout, parts, tp, rank, last)) return wrong;
  if (!last) return {};
  const auto served = [&](std::size_t entry) -> std::span<const std::byte> {
    if (tp > 1) return image.bytes(entry);
    return store.bytes(entry);
  };
  return write_dump(engine, version, dump, settings,
                    [&](std::size_t item, std::span<std::byte> first, std::span<std::byte> second) -> fp8wire::error {
                      const std::string_view name = dump.canonical->item_name(item);
                      const fp8wire::manifest_item& one =
                          tensors.items()[static_cast<std::size_t>(tensors.find_item(name))];
                      if (one.entries == 2 && chosen_layout != "canonical") {
                        std::vector<fp8wire::u64> scales(second.size() / 8 + 1);  // aligned, as a file need not be
                        if (fp8wire::error wrong = take_back_pair(
                                chosen_layout, *chosen.preset, name, one.facts.extents, served(one.first_entry),
                                served(one.first_entry + 1), first.data(), scales.data()))
                          return wrong;
                        if (!second.empty()) std::memcpy(second.data(), scales.data(), second.size());
                        return {};
                      }
                      for (std::size_t i = 0; i < one.entries; ++i) {
                        const std::span<std::byte> to = i == 0 ? first : second;
                        if (!to.empty()) std::memcpy(to.data(), served(one.first_entry + i).data(), to.size());
                      }
                      return {};
                    });
}

/// Serves until the learner says bye. `number` counts the ranks of all engines, an engine's side by side. Returns the
/// error that ended it; every version served is reported to `pipe`.
inline fp8wire::error run_engine(int number, const fp8wire::manifest& expected, const format& chosen,
                                 const engine_image& image, const dump_settings& dump, const refit_settings& settings,
                                 int pipe) {
  const int engine = number / settings.engine_tp, rank = number % settings.engine_tp;
  auto transport = fp8wire::shm_subscriber::connect(settings.socket_name, number, settings.timeout);
  if (!transport) return transport.error();
  fault_session session{settings.fault, number};
  faulty_subscriber link(*transport, session);
  fp8wire::engine_terms terms;
  terms.mode = settings.mode;
  fp8wire::agreement agreed;
  std::vector<fp8wire::error> reasons;
  if (fp8wire::error wrong = fp8wire::join<fp8wire::json_text>(link, expected_with(settings.fault, number, expected),
                                                               terms, agreed, reasons))
    return wrong;
  link.arm(agreed.tensors, agreed.wire);
  std::optional<engine_checks> checks;
  if (settings.fault.on) checks.emplace(agreed.tensors, agreed.wire, session);

  const std::vector<fp8wire::kept_part> parts = parts_of_rank(agreed.tensors, *chosen.preset, settings.engine_tp, rank);
  checked_store<timed_store> store(checks ? &*checks : nullptr, agreed.tensors, agreed.wire, settings.mode, parts);
  if (settings.engine_tp > 1 && chosen.layout != "canonical")
    store.layout = rank_layout(agreed.tensors, chosen, parts, settings.mode);
  fp8wire::receiver<checked_store<timed_store>> receiver(agreed.tensors, agreed.wire, store);
  fp8wire::engine<faulty_subscriber, fp8wire::receiver<checked_store<timed_store>>> driver(link, receiver);
  const auto tell = [&](report::kind what, const fp8wire::error& why) {
    report one;
    one.what = what;
    one.who = number;
    one.version = receiver.serving();
    one.load_seconds = store.take_seconds();
    if (why) one.say(why);
    send(pipe, one);
  };
  for (;;) {
    fp8wire::engine_event event{};
    const fp8wire::error wrong = driver.step({}, event);
    switch (event) {
      case fp8wire::engine_event::committed:
        if (!settings.dump_folder.empty())
          if (fp8wire::error failed = dump_served(engine, rank, receiver.serving(), agreed.tensors, store, parts, image,
                                                  chosen, dump, settings))
            return tell(report::kind::refused, failed), failed;
        tell(report::kind::serving, {});
        break;
      case fp8wire::engine_event::aborted: tell(report::kind::refused, receiver.failure()); break;
      case fp8wire::engine_event::closed: return tell(report::kind::closed, {}), fp8wire::error{};
      case fp8wire::engine_event::lost: return tell(report::kind::refused, wrong), wrong;
      case fp8wire::engine_event::idle:
        // Between updates an engine may wait as long as training takes; within one, silence is a failure.
        if (!receiver.updating()) break;
        return tell(report::kind::refused, receiver.failure()), receiver.failure();
      default: break;
    }
  }
}

}  // namespace programs
#endif
