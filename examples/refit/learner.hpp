// SPDX-License-Identifier: Apache-2.0
/// The learner's process: shakes hands, then trains and sends one version after the other.
#ifndef FP8WIRE_EXAMPLES_REFIT_LEARNER_HPP
#define FP8WIRE_EXAMPLES_REFIT_LEARNER_HPP
#include <fp8wire/io/hello_json.hpp>

#include "../common/options.hpp"
#include "allocations.hpp"
#include "any_sender.hpp"
#include "faults.hpp"
#include "fp8_param.hpp"
#include "learner_group.hpp"
#include "reports.hpp"
#include "training.hpp"
#include "update_source.hpp"

namespace programs {

/// What this learner trains.
inline std::vector<trained_tensor> training_of(const std::vector<source_tensor>& source, const learner_group& group,
                                               const refit_settings& settings) {
  std::vector<trained_tensor> training;
  for (std::size_t i = 0; i < source.size(); ++i) {
    fp8wire::i64 elements = 1;
    for (const fp8wire::i64 extent : source[i].spec.shape) elements *= extent;
    fp8wire::matrix_extents extents{1, 1, elements};  // kept tensors have any rank: their elements are all that counts
    if (source[i].quantized) extents = must(fp8wire::extents_of(source[i].spec.name, source[i].spec.shape));
    training.emplace_back(weights{source[i].spec.dtype, source[i].bytes.data(), extents}, settings.seed, i,
                          group.rank(), group.learners(), group.exported(i));
  }
  return training;
}

/// Threads of one learner of several.
inline int threads_of(const refit_settings& settings) {
  return (settings.threads + settings.learners - 1) / settings.learners;
}

/// A learner that does not lead: exports its range of every tensor, round by round. Returns the error that ended all.
inline fp8wire::error follow(const std::vector<source_tensor>& source, const refit_settings& settings,
                             learner_group& group, fp8_parameters& persistent) {
  workers threads(threads_of(settings));
  if (persistent.on())
    if (fp8wire::error wrong = persistent.start(group.rank())) return wrong;
  std::vector<trained_tensor> training = training_of(source, group, settings);
  for (int round = 1; round <= settings.rounds; ++round) {
    fp8wire::u64 version = 0;
    if (fp8wire::error wrong = group.next(version)) return wrong;
    if (persistent.on()) {
      // The leader says when scales are made, or what ended the round.
      if (group.export_done(0, persistent.step(version, settings.learning_rate, threads))) return group.await_end();
      if (fp8wire::error wrong = group.next(version)) return wrong;
    }
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (!is_weight_dtype(source[i].spec.dtype)) continue;
      if (persistent.on() && source[i].quantized) persistent.cast(i, threads);
      else training[i].at(version, settings.learning_rate, threads);
      // The leader may have given up meanwhile; its verdict says why.
      if (group.export_done(i)) break;
    }
    if (fp8wire::error wrong = group.await_end()) return wrong;
  }
  return {};
}

/// Runs all rounds and reports each to `pipe`. Returns the error that ended them.
inline fp8wire::error run_learner(const std::vector<source_tensor>& source, const format& chosen,
                                  const fp8wire::manifest& tensors, const fp8wire::plan_options& options,
                                  const refit_settings& settings, learner_group& group, fp8_parameters& persistent,
                                  fp8wire::shm_publisher& transport, int pipe) {
  using clock = std::chrono::steady_clock;
  const auto since = [](clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  };
  if (fp8wire::error wrong = transport.accept()) return wrong;
  fp8wire::agreement agreed;
  std::vector<fp8wire::error> reasons;
  if (fp8wire::error wrong = fp8wire::offer<fp8wire::json_text>(transport, offered_with(settings.fault, tensors),
                                                                options, "", agreed, reasons))
    return wrong;
  if (fp8wire::error wrong = transport.allocate(agreed.wire.options().slots, agreed.wire.slot_bytes())) return wrong;

  workers threads(threads_of(settings));
  std::vector<trained_tensor> training = training_of(source, group, settings);
  if (persistent.on())
    if (fp8wire::error wrong = persistent.start(group.rank())) return wrong;
  const auto sender = make_sender(
      {&agreed.tensors, &agreed.wire, &transport, chosen.preset, &threads, chosen.amax_floor, chosen.refuse_nonfinite});
  learner_faults faults(settings.fault, agreed.tensors);
  for (int round = 1; round <= settings.rounds; ++round) {
    const fp8wire::u64 version = static_cast<fp8wire::u64>(round);
    double training_seconds = 0;
    const unsigned long long allocated = allocations();
    const auto start = clock::now();
    fp8wire::error wrong = sender->begin(faults.version_to_begin(version));
    if (!wrong) wrong = group.begin(version);
    if (!wrong && persistent.on()) {
      const auto step = clock::now();
      wrong = persistent.step(version, settings.learning_rate, threads);
      if (!wrong) wrong = group.await(0);
      training_seconds += since(step);
      if (!wrong) persistent.make_scales();
      if (!wrong) wrong = group.begin(version);
    }
    std::size_t exported = 0;
    for (std::size_t i = 0; i < source.size() && !wrong; ++i) {
      const source_tensor& one = source[i];
      wrong = faults.half_way(version, i, source.size(), *sender, transport);
      if (wrong) break;
      const std::string_view name = faults.name_of(version, i, source.size(), one.spec.name);
      if (!is_weight_dtype(one.spec.dtype)) {
        if (!name.empty()) wrong = sender->keep(name, one.bytes);
        continue;
      }
      if (persistent.on() && one.quantized) {
        persistent.cast(i, threads);
        wrong = group.await(exported++);
        if (!wrong && !name.empty())
          wrong = sender->forward(name, persistent.extents(i), persistent.codes(i), persistent.scales(i));
        continue;
      }
      const auto step = clock::now();
      const weights now = training[i].at(version, settings.learning_rate, threads);
      wrong = group.await(exported++);
      training_seconds += since(step);
      if (wrong || name.empty()) continue;
      if (one.quantized) wrong = sender->put(name, now);
      else wrong = sender->keep(name, {static_cast<const std::byte*>(now.data), one.bytes.size()});
    }
    if (wrong) sender->abort(wrong);
    else wrong = sender->finish();
    group.end(version, wrong);
    if (wrong) return wrong;
    report done;
    done.what = report::kind::sent;
    done.version = version;
    done.bytes = agreed.tensors.bytes();
    done.buffers = agreed.wire.buffers().size();
    done.allocations = allocations() - allocated;
    done.seconds = since(start) - training_seconds;
    done.quantize_seconds = sender->quantize_seconds();
    done.transfer_seconds = done.seconds - done.quantize_seconds;
    if (persistent.on()) done.refresh = persistent.counted(), done.start = persistent.started();
    send(pipe, done);
  }
  return transport.broadcast({fp8wire::message_kind::bye, {}});
}

}  // namespace programs
#endif
