// SPDX-License-Identifier: Apache-2.0
// fp8-refit: the weight update, live, between processes. This process starts a learner and the engines, listens to what
// they report, and says how it ended.
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <sys/random.h>

#include <limits>
#include <map>

#include <fp8wire/io/manifest_json.hpp>
#include <fp8wire/wire/conditions/served_version.hpp>
#include <fp8wire/wire/window.hpp>

#include "common/metadata.hpp"
#include "common/report.hpp"
#include "common/target.hpp"
#include "refit/engine.hpp"
#include "refit/family.hpp"
#include "refit/learner.hpp"
#include "refit/load.hpp"

namespace {

using namespace programs;

/// What engines agree to.
const fp8wire::u32 most_slots = fp8wire::engine_terms{}.slots;

struct options {
  format_options format;
  std::string checkpoint, transport = "shm", commit = "staged", dump, plan, json;
  int engines = 1, engine_tp = 1, learners = 1, rounds = 3, threads = 0;
  fp8wire::u64 buffer_bytes = fp8wire::u64{64} << 20, align = 256, seed = 0;
  fp8wire::u32 slots = 0;  // 0: not said
  double timeout = 10, learning_rate = 1e-6;
  std::string fp8_param = "off", delta = "off", fault;
  bool list_faults = false;
};

void add_options(CLI::App& app, options& chosen) {
  add_format_options(app, chosen.format);
  app.add_option("--layout", chosen.format.layout, "How codes and scales lie, by engine (fp8-convert --list-layouts)")
      ->type_name("L")
      ->capture_default_str();
  app.add_option("CHECKPOINT", chosen.checkpoint, "A .safetensors file or a Hugging Face folder");
  app.add_option("--transport", chosen.transport, "How bytes travel: shm")->capture_default_str();
  app.add_option("--engines", chosen.engines, "Engine processes")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--engine-tp", chosen.engine_tp, "Ranks of an engine, each a process that serves its slices")
      ->type_name("T")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--learners", chosen.learners, "Learner processes, each with its part of the FP32 masters")
      ->type_name("P")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--rounds", chosen.rounds, "Versions to send")
      ->type_name("R")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--commit", chosen.commit,
                 "staged: the old version serves until the new one is whole; in-place: weights fit once")
      ->type_name("staged|in-place")
      ->capture_default_str();
  app.add_option("--buffer-bytes", chosen.buffer_bytes, "Capacity of a transport buffer")
      ->type_name("B")
      ->check(whole_number(1, fp8wire::u64{1} << 46))
      ->capture_default_str();
  app.add_option("--slots", chosen.slots, "Buffers in flight (default: 2, or what the order of the tensors needs)")
      ->type_name("S")
      ->check(CLI::Range(fp8wire::u32{1}, most_slots));
  app.add_option("--align", chosen.align, "Alignment of tensors in a buffer")
      ->type_name("A")
      ->check(whole_number(8, fp8wire::u64{1} << 30))
      ->capture_default_str();
  app.add_option("--timeout", chosen.timeout, "Longest wait for a peer")->type_name("SECONDS")->capture_default_str();
  app.add_option("--lr", chosen.learning_rate,
                 "Between versions every weight moves by about this, relative; 0: unchanged")
      ->type_name("X")
      ->capture_default_str();
  app.add_option("--seed", chosen.seed, "Of the moves")
      ->check(whole_number(0, (std::numeric_limits<fp8wire::u64>::max)()))
      ->capture_default_str();
  app.add_option("--threads", chosen.threads, "Of the learner (default: all cores)")->type_name("N");
  app.add_option("--dump", chosen.dump,
                 "Every engine writes what it serves, in canonical layout: DIR/engine<E>-v<V>.safetensors")
      ->type_name("DIR");
  app.add_option("--plan", chosen.plan, "Write manifest and plan as JSON; - is standard output")->type_name("FILE");
  app.add_option("--json", chosen.json, "Write figures of every version as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--fp8-param", chosen.fp8_param, "on: the learner keeps E4M3 parameters, refreshed from FP32 masters")
      ->type_name("off|on")
      ->capture_default_str();
  app.add_option("--fault", chosen.fault,
                 "Inject one fault into an update (buffers of 64 KiB unless told otherwise); engines check their live "
                 "state then, also with KIND none")
      ->type_name("KIND[@ROUND]");
  app.add_flag("--list-faults", chosen.list_faults, "Every fault and the condition that catches it");
  // What a later version fills: known, so that the answer can say so, and not in --help.
  app.add_option("--delta", chosen.delta)->group("");
}

/// Wrong usage exits with 2 before anything else happens.
void check(const options& chosen) {
  if (chosen.transport != "shm") {
    for (const char* known : {"mpi", "nccl", "cuda-ipc"})
      if (chosen.transport == known) misuse("--transport {}: not available yet; there is: shm", chosen.transport);
    misuse("--transport {}: no such transport; there is: shm", chosen.transport);
  }
  if (chosen.commit != "staged" && chosen.commit != "in-place")
    misuse("--commit {}: staged or in-place", chosen.commit);
  if (chosen.fp8_param != "off" && chosen.fp8_param != "on") misuse("--fp8-param {}: off or on", chosen.fp8_param);
  if (chosen.delta != "off") misuse("--delta {}: not available yet; there is: off", chosen.delta);
  parse_fault(chosen.fault, chosen.rounds);
  if (!(chosen.timeout >= 0.001 && chosen.timeout <= 86400))
    misuse("--timeout {}: 0.001 .. 86400 seconds", chosen.timeout);
  if (!(chosen.learning_rate >= 0 && chosen.learning_rate <= 1)) misuse("--lr {}: 0 .. 1", chosen.learning_rate);
  if (chosen.threads < 0 || chosen.threads > 1024)
    misuse("--threads {}: 1 .. 1024, or none for all cores", chosen.threads);
  if ((chosen.align & (chosen.align - 1)) != 0) misuse("--align {}: a power of two in 8 .. 2^30", chosen.align);
  if (chosen.checkpoint.empty())
    misuse("a checkpoint is wanted: a .safetensors file or a Hugging Face folder (try --help)");
  expect_apart_from("--plan", chosen.plan, chosen.checkpoint);
  expect_apart_from("--json", chosen.json, chosen.checkpoint);
  expect_two_places("--json", chosen.json, "--plan", chosen.plan);
  expect_apart_from("--dump", chosen.dump, chosen.checkpoint);
  // A checkpoint that is a dump of before.
  const std::string in_dump = chosen.dump + "/" + std::filesystem::path(chosen.checkpoint).filename().string();
  if (!chosen.dump.empty() && ::fnmatch("*/engine[0-9]*-v[0-9]*.safetensors", in_dump.c_str(), 0) == 0)
    expect_apart_from("--dump", in_dump, chosen.checkpoint);
}

struct version_figures {
  report sent;
  double load_seconds = 0;  // of the slowest engine
};

/// What came in over the pipe.
struct outcome {
  std::map<fp8wire::u64, version_figures> versions;
  std::vector<fp8wire::u64> serving;  // by rank, an engine's side by side
  std::string reason;  // the first that is no echo of somebody else's end
  std::string echo;  // "peer is gone", from whoever noticed first
};

void listen(int pipe, family& children, std::chrono::milliseconds timeout, bool talk, outcome& heard) {
  bool open = true;
  while (open || !children.all_ended()) {
    expect_no_interruption();
    pollfd wait{pipe, POLLIN, 0};
    const int ready = ::poll(&wait, 1, 50);
    report one;
    if (ready > 0) {
      const ssize_t got = ::read(pipe, &one, sizeof(one));
      if (got == 0) open = false;
      if (got != sizeof(one)) {
        if (!open) ::poll(nullptr, 0, 5);
        continue;
      }
      switch (one.what) {
        case report::kind::sent: heard.versions[one.version].sent = one; break;
        case report::kind::serving: {
          double& slowest = heard.versions[one.version].load_seconds;
          slowest = (std::max)(slowest, one.load_seconds);
          heard.serving[static_cast<std::size_t>(one.who)] = one.version;
          break;
        }
        case report::kind::closed: heard.serving[static_cast<std::size_t>(one.who)] = one.version; break;
        case report::kind::refused: {
          if (one.who >= 0) heard.serving[static_cast<std::size_t>(one.who)] = one.version;
          std::string& into = one.lost_peer ? heard.echo : heard.reason;
          if (into.empty()) into = one.text;
          break;
        }
      }
      if (talk && one.what == report::kind::sent) {
        const report& v = one;
        print(fmt::format(
            "version {}: {} in {} buffer{}, {:.3f} s, {:.2f} GB/s (quantize {:.3f} s), all engines committed\n",
            v.version, size_text(static_cast<fp8wire::i64>(v.bytes)), v.buffers, v.buffers == 1 ? "" : "s", v.seconds,
            static_cast<double>(v.bytes) / v.seconds / 1e9, v.quantize_seconds));
        if (const fp8wire::refresh_counts& r = v.refresh; r.masters > 0)
          print(
              fmt::format("  of {} masters {} changed, {} codes; of {} scales {} changed, {} to another power of two\n",
                          r.masters, r.masters_changed, r.codes_changed, r.scales, r.scales_changed, r.blocks_moved));
        std::fflush(stdout);
      }
    }
    children.all_ended();
    children.end_stuck(timeout);
  }
  expect_no_interruption();
}

/// What each engine serves: one version on all of its ranks, or nothing.
std::vector<fp8wire::u64> served_by_engines(const std::vector<fp8wire::u64>& by_rank, int engine_tp) {
  std::vector<fp8wire::u64> engines;
  for (std::size_t first = 0; first < by_rank.size(); first += static_cast<std::size_t>(engine_tp)) {
    bool same = true;
    for (std::size_t i = 1; i < static_cast<std::size_t>(engine_tp); ++i)
      same = same && by_rank[first + i] == by_rank[first];
    engines.push_back(same ? by_rank[first] : 0);
  }
  return engines;
}

std::string rank_name(int number, int engine_tp) {
  if (engine_tp == 1) return fmt::format("engine {}", number);
  return fmt::format("engine {} rank {}", number / engine_tp, number % engine_tp);
}

std::string json_text(const outcome& heard, const std::vector<fp8wire::u64>& serving, const format& chosen) {
  json::value top = json::value::object();
  top["recipe"] = std::string(chosen.preset->name);
  top["scale"] = std::string(chosen.preset->scale);
  top["amax_floor"] = must(json::parse(shortest(chosen.amax_floor), "amax floor"));
  top["grid_id"] = fmt::format("0x{:016x}", chosen.grid_id());
  json::value versions = json::value::array();
  for (const auto& [number, figures] : heard.versions) {
    const report& v = figures.sent;
    json::value row = json::value::object();
    row["version"] = number;
    row["bytes"] = v.bytes;
    row["buffers"] = v.buffers;
    row["seconds"] = v.seconds;
    row["gb_per_s"] = static_cast<double>(v.bytes) / v.seconds / 1e9;
    row["quantize_s"] = v.quantize_seconds;
    row["transfer_s"] = v.transfer_seconds;
    row["load_s"] = figures.load_seconds;
    row["allocations"] = v.allocations;
    if (v.refresh.masters > 0) {
      json::value& refresh = row["refresh"];
      refresh["masters"] = v.refresh.masters;
      refresh["masters_changed"] = v.refresh.masters_changed;
      refresh["codes_changed"] = v.refresh.codes_changed;
      refresh["scales"] = v.refresh.scales;
      refresh["scales_changed"] = v.refresh.scales_changed;
      refresh["blocks_moved"] = v.refresh.blocks_moved;
      refresh["saved_bytes"] = v.start.saved_bytes();
      refresh["start_peak_bytes"] = v.start.peak_bytes;
    }
    versions.push_back(row);
  }
  top["versions"] = versions;
  json::value engines = json::value::array();
  for (std::size_t e = 0; e < serving.size(); ++e) {
    json::value row = json::value::object();
    row["engine"] = static_cast<fp8wire::i64>(e);
    row["serving"] = serving[e];
    engines.push_back(row);
  }
  top["engines"] = engines;
  return json::write(top) + "\n";
}

/// What travels: pairs in that layout, everything else as it is.
fp8wire::manifest manifest_of(const std::vector<source_tensor>& source, const format& chosen, std::string_view layout) {
  fp8wire::manifest tensors;
  const quantizer& preset = *chosen.preset;
  for (const source_tensor& one : source) {
    if (!one.quantized) {
      must(tensors.keep(one.spec.name, one.spec.dtype, one.spec.shape));
      continue;
    }
    auto specs = preset.tensors(one.spec.name, one.spec.shape);
    fp8wire::error wrong = specs.error();
    if (wrong.code == fp8wire::errc::wrong_shape) {
      wrong.broken = fp8wire::condition::c5_geometry;
      refuse("{}; --keep '{}' leaves it in its own dtype", wrong.message(), one.spec.name);
    }
    must(wrong);
    fp8wire::pair_facts facts;
    facts.extents = must(fp8wire::extents_of(one.spec.name, one.spec.shape));
    if (layout != "canonical") *specs = specs_in(layout, preset, std::move(*specs), facts.extents);
    else if (!preset.pads_edges) facts.split_rows = preset.block_rows;
    must(tensors.add_pair(std::move(*specs), facts, encoding_of(preset, chosen.amax_floor), one.fused_with));
  }
  return tensors;
}

int refit(const options& asked) {
  if (asked.list_faults) return print(fault_list()), done;
  check(asked);
  const format chosen = resolve(asked.format);
  chosen_via_bf16 = chosen.via_bf16;
  const loaded_checkpoint loaded = load(asked.checkpoint, asked.format);

  const fp8wire::manifest canonical = manifest_of(loaded.tensors, chosen, "canonical");
  // Ranks lay out their own slices: on the wire they are canonical.
  if (asked.engine_tp == 1) chosen_layout = chosen.layout;
  const fp8wire::manifest tensors =
      chosen_layout == "canonical" ? canonical : manifest_of(loaded.tensors, chosen, chosen_layout);
  // Faults of the way need an update of several buffers.
  const bool small_buffers = !asked.fault.empty() && asked.buffer_bytes == options{}.buffer_bytes;
  fp8wire::plan_options plan_options{.capacity_bytes = small_buffers ? 65536 : asked.buffer_bytes,
                                     .align_bytes = asked.align,
                                     .slots = asked.slots == 0 ? 2 : asked.slots};
  fp8wire::plan plan = must(fp8wire::make_plan(tensors, plan_options));
  if (const fp8wire::u32 needed = fp8wire::slots_needed(tensors, plan); needed > plan_options.slots) {
    if (needed > most_slots)
      refuse(
          "parts of an engine parameter come so far apart that {} buffers are open at once, of {} at most; a larger "
          "--buffer-bytes",
          needed, most_slots);
    if (asked.slots != 0)
      refuse(
          "--slots {}: parts of an engine parameter come so far apart that {} buffers are open at once; --slots {}, "
          "or a larger --buffer-bytes",
          asked.slots, needed, needed);
    plan_options.slots = needed;
    plan = must(fp8wire::make_plan(tensors, plan_options));
  }
  check_ranks(tensors, chosen, asked.engine_tp);
  if (asked.engine_tp > 1 && chosen.layout != "canonical")
    rank_layout(tensors, chosen, parts_of_rank(tensors, *chosen.preset, asked.engine_tp, 0),
                fp8wire::commit_mode::in_place);

  refit_settings settings;
  settings.engines = asked.engines;
  settings.engine_tp = asked.engine_tp;
  settings.learners = asked.learners;
  settings.rounds = asked.rounds;
  settings.threads = asked.threads == 0 ? workers::available() : asked.threads;
  settings.mode = asked.commit == "staged" ? fp8wire::commit_mode::staged : fp8wire::commit_mode::in_place;
  settings.timeout = std::chrono::milliseconds(static_cast<long>(asked.timeout * 1000));
  settings.learning_rate = asked.learning_rate;
  settings.seed = asked.seed;
  settings.fault = parse_fault(asked.fault, asked.rounds);
  settings.dump_folder = asked.dump;
  // Nobody else can guess it and join.
  fp8wire::u64 token = 0;
  if (::getrandom(&token, sizeof(token), 0) != sizeof(token)) refuse("no random number: {}", std::strerror(errno));
  settings.socket_name = fmt::format("@fp8-refit-{}-{:016x}", ::getpid(), token);
  // Places for all that will be written, before anybody starts.
  expect_no_interruption();
  report_file plan_file(asked.plan, fp8wire::plan_json(tensors, plan)), json_file(asked.json);
  const dump_folder dumps(asked.dump);
  format canonical_format = chosen;
  canonical_format.layout = "canonical";
  const dump_settings dump{add_metadata(loaded.metadata, canonical_format), &canonical};
  const int ranks = asked.engines * asked.engine_tp;
  std::vector<engine_image> images(static_cast<std::size_t>(asked.engines));
  if (asked.engine_tp > 1 && !asked.dump.empty())
    for (engine_image& one : images) one = engine_image(tensors);

  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) refuse("no pipe: {}", std::strerror(errno));
  family children(ranks);
  // From nobody in particular: what an engine serves it has said itself.
  const auto tell_why = [&](const fp8wire::error& why) {
    report one;
    one.what = report::kind::refused;
    one.say(why);
    send(pipe[1], one);
  };
  for (int number = 0; number < ranks; ++number)
    children.start(rank_name(number, asked.engine_tp), [&] {
      ::close(pipe[0]);
      const engine_image& image = images[static_cast<std::size_t>(number / asked.engine_tp)];
      const fp8wire::error wrong = run_engine(number, tensors, chosen, image, dump, settings, pipe[1]);
      if (wrong) tell_why(wrong);
      return wrong ? refused : done;
    });
  learner_group group(loaded.tensors, asked.learners, settings.timeout);
  fp8_parameters persistent;
  if (asked.fp8_param == "on") persistent = fp8_parameters(loaded.tensors, chosen, settings);
  for (int learner = asked.learners - 1; learner >= 0; --learner)
    children.start(asked.learners == 1 ? "learner" : fmt::format("learner {}", learner), [&] {
      ::close(pipe[0]);
      group.become(learner);
      fp8wire::error wrong;
      if (learner > 0) {
        wrong = follow(loaded.tensors, settings, group, persistent);
      } else {
        auto transport = fp8wire::shm_publisher::listen(settings.socket_name, ranks, settings.timeout);
        if (!transport) wrong = transport.error();
        else
          wrong = run_learner(loaded.tensors, chosen, tensors, plan_options, settings, group, persistent, *transport,
                              pipe[1]);
        if (wrong) group.end(0, wrong);
      }
      if (wrong) tell_why(wrong);
      return wrong ? refused : done;
    });
  group.become(-1);
  ::close(pipe[1]);

  outcome heard;
  heard.serving.assign(static_cast<std::size_t>(ranks), 0);
  const bool talk = asked.json != "-" && asked.plan != "-";
  listen(pipe[0], children, settings.timeout, talk, heard);
  ::close(pipe[0]);

  for (std::size_t rank = 0; rank < heard.serving.size(); ++rank)
    if (children.died(rank)) heard.serving[rank] = 0;
  const std::vector<fp8wire::u64> serving = served_by_engines(heard.serving, asked.engine_tp);
  const fp8wire::u64 last = static_cast<fp8wire::u64>(asked.rounds);
  bool whole = true;
  for (const fp8wire::u64 version : serving) whole = whole && version == last;
  const std::string killed = children.killed(), stuck = children.stuck();
  if (!whole || !killed.empty() || !stuck.empty() || !heard.reason.empty()) {
    std::string states;
    for (std::size_t e = 0; e < serving.size(); ++e)
      states +=
          fmt::format("; engine {} {}", e,
                      serving[e] == 0 ? std::string("serves nothing") : fmt::format("serves version {}", serving[e]));
    const fp8wire::error apart = fp8wire::check_serving(serving, *std::max_element(serving.begin(), serving.end()));
    if (apart) states += "; " + apart.message();
    const std::string why = !heard.reason.empty() ? heard.reason
                            : !killed.empty()     ? "C8 " + killed
                            : !stuck.empty()      ? "C8 " + stuck
                                                  : heard.echo;
    refuse("{}{}", why.empty() ? "C8 the update did not finish" : why, states);
  }
  json_file.write(json_text(heard, serving, chosen));
  plan_file.commit();
  json_file.commit();
  return done;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app(
      "Updates serving engines with a checkpoint's weights, version after version, over processes of this machine.",
      "fp8-refit");
  options chosen;
  add_options(app, chosen);
  return run(app, count, arguments, [&] { return refit(chosen); });
}
