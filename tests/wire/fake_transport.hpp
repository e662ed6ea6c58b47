// SPDX-License-Identifier: Apache-2.0
// A transport in one process whose copies land late and out of order, until somebody waits for the stream they are on.
#ifndef FP8WIRE_TESTS_WIRE_FAKE_TRANSPORT_HPP
#define FP8WIRE_TESTS_WIRE_FAKE_TRANSPORT_HPP
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include <fp8wire/wire/backend.hpp>
#include <fp8wire/wire/host_store.hpp>
#include <fp8wire/wire/message_codec.hpp>
#include <fp8wire/wire/transport.hpp>

namespace fake {

namespace fw = fp8wire;

// Work runs in order, and only when somebody waits for it.
struct work_queue {
  std::deque<std::function<void()>> work;
  std::size_t done = 0, given = 0;
  std::size_t push(std::function<void()> one) { return work.push_back(std::move(one)), ++given; }
  void run_until(std::size_t ticket) {
    while (done < ticket) {
      auto one = std::move(work.front());
      work.pop_front();
      ++done;
      one();
    }
  }
  void sync() { run_until(given); }
};

struct stream {
  work_queue* queue = nullptr;
};

class network {
 public:
  network(int engines, fw::u32 slots, std::size_t slot_bytes, unsigned seed = 1)
      : slots_(slots, std::vector<std::byte>(slot_bytes, std::byte{0xEE})),
        engines_(static_cast<std::size_t>(engines)),
        random_(seed) {
    for (auto& one : engines_) one.mirror = slots_;
  }

  // What the tests bend. to_engine may change a message or drop it by returning false.
  std::function<bool(int, fw::message&)> to_engine = [](int, fw::message&) { return true; };
  std::function<void(int, const fw::frame&, std::span<std::byte>)> landed = [](int, const fw::frame&,
                                                                               std::span<std::byte>) {};
  // Lets the engines work; false when there was nothing to do.
  std::function<bool()> pump = [] { return false; };
  bool learner_dead = false;
  int dead_engine = -1;
  int leases_out = 0;  // frames that were given to engines and not released

  struct publisher {
    using stream = fake::stream;
    network* net;
    int engines() const { return static_cast<int>(net->engines_.size()); }
    fw::result<std::span<std::byte>> acquire(fw::u32 buffer, stream) { return net->acquire(buffer); }
    fw::error publish(const fw::frame& f, stream s) { return net->publish(f, s); }
    fw::error broadcast(const fw::message& m) {
      for (int e = 0; e < engines(); ++e) net->send(e, m);
      return net->lost();
    }
    fw::error receive(fw::message& into, int& engine) {
      while (net->inbox_.empty())
        if (net->dead_engine >= 0 || !net->pump()) break;
      if (net->inbox_.empty()) {
        if (fw::error gone = net->lost()) return gone;
        return fw::make_error(fw::errc::timeout, "engine", "nothing came");
      }
      engine = net->inbox_.front().first;
      into = std::move(net->inbox_.front().second);
      net->inbox_.pop_front();
      return {};
    }
  };

  struct subscriber {
    using stream = fake::stream;
    network* net;
    int engine;
    fw::error receive(fw::message& into) {
      auto& box = net->at(engine).inbox;
      if (box.empty())
        return net->learner_dead ? fw::make_error(fw::errc::peer_lost, "learner", "is gone")
                                 : fw::make_error(fw::errc::timeout, "learner", "nothing came");
      into = std::move(box.front());
      box.pop_front();
      return {};
    }
    fw::result<std::span<const std::byte>> bytes(const fw::frame& f, stream s) { return net->bytes(engine, f, s); }
    fw::error release(const fw::frame& f, stream s) { return net->release(engine, f, s); }
    fw::error reply(const fw::message& m) {
      if (net->learner_dead) return fw::make_error(fw::errc::peer_lost, "learner", "is gone");
      if (net->dead_engine != engine) net->inbox_.emplace_back(engine, m);
      return {};
    }
  };

  publisher learner() { return {this}; }
  subscriber engine(int e) { return {this, e}; }
  std::size_t waiting(int e) { return at(e).inbox.size(); }
  void send(int e, fw::message m) {
    if (e == dead_engine || learner_dead || !to_engine(e, m)) return;
    at(e).inbox.push_back(std::move(m));
  }

 private:
  struct lease {
    fw::u32 buffer = 0;
    work_queue* reader = nullptr;  // whose work has to be done before the slot is free
    std::size_t ticket = 0;
    bool released = false, free = true;
  };
  struct one_engine {
    std::deque<fw::message> inbox;
    std::vector<std::vector<std::byte>> mirror;
    std::map<fw::u32, lease> leases;  // by slot
  };
  one_engine& at(int e) { return engines_[static_cast<std::size_t>(e)]; }
  fw::error lost() const {
    return dead_engine < 0 ? fw::error{}
                           : fw::make_error(fw::errc::peer_lost, "engine " + std::to_string(dead_engine), "is gone");
  }
  fw::u32 slot_of(fw::u32 buffer) const { return buffer % static_cast<fw::u32>(slots_.size()); }

  fw::result<std::span<std::byte>> acquire(fw::u32 buffer) {
    const fw::u32 slot = slot_of(buffer);
    for (int e = 0; e < static_cast<int>(engines_.size()); ++e) {
      lease& held = at(e).leases[slot];
      while (!held.free && !held.released)
        if (dead_engine >= 0 || !pump()) break;
      if (fw::error gone = lost()) return gone;
      if (!held.free && !held.released)
        return fw::make_error(fw::errc::timeout, "engine " + std::to_string(e), "holds the slot");
      if (held.reader != nullptr) held.reader->run_until(held.ticket);
    }
    std::fill(slots_[slot].begin(), slots_[slot].end(), std::byte{0xEE});
    return std::span<std::byte>(slots_[slot]);
  }

  fw::error publish(const fw::frame& f, stream s) {
    const fw::u32 slot = slot_of(f.buffer);
    for (int e = 0; e < static_cast<int>(engines_.size()); ++e) {
      if (e == dead_engine || learner_dead) continue;
      fw::message m = fw::encode(f);
      if (!to_engine(e, m)) continue;
      at(e).leases[slot] = {f.buffer, nullptr, 0, false, false};
      ++leases_out;
      at(e).inbox.push_back(std::move(m));
      // The copy waits for the learner's stream and for somebody who wants it.
      const std::size_t ticket = s.queue->given;
      flying_.push_back({e, f.buffer, [this, e, f, slot, s, ticket] {
                           s.queue->run_until(ticket);
                           std::memcpy(at(e).mirror[slot].data(), slots_[slot].data(),
                                       static_cast<std::size_t>(f.used_bytes));
                           landed(e, f, std::span(at(e).mirror[slot]));
                         }});
    }
    return lost();
  }

  void land(int e, fw::u32 buffer) {
    // Others that are in the air may land first.
    for (int tries = static_cast<int>(random_() % 3); tries > 0 && flying_.size() > 1; --tries)
      drop(random_() % flying_.size());
    for (std::size_t i = 0; i < flying_.size(); ++i)
      if (flying_[i].engine == e && flying_[i].buffer == buffer) return drop(i);
  }
  void drop(std::size_t i) {
    auto one = std::move(flying_[i]);
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
    one.copy();
  }

  fw::result<std::span<const std::byte>> bytes(int e, const fw::frame& f, stream s) {
    auto& memory = at(e).mirror[slot_of(f.buffer)];
    s.queue->push([this, e, f] { land(e, f.buffer); });
    return std::span<const std::byte>(memory.data(),
                                      std::min<std::size_t>(memory.size(), static_cast<std::size_t>(f.used_bytes)));
  }
  fw::error release(int e, const fw::frame& f, stream s) {
    lease& held = at(e).leases[slot_of(f.buffer)];
    if (held.free || held.released || held.buffer != f.buffer)
      return fw::make_error(fw::errc::out_of_order, "buffer", "is not held");
    held.released = true;
    held.reader = s.queue;
    --leases_out;
    held.ticket = s.queue->push([this, e, f] {
      auto& memory = at(e).mirror[slot_of(f.buffer)];
      std::fill(memory.begin(), memory.end(), std::byte{0xFF});  // whoever reads too late reads NaN
    });
    return {};
  }

  struct copy_in_flight {
    int engine;
    fw::u32 buffer;
    std::function<void()> copy;
  };
  std::vector<std::vector<std::byte>> slots_;
  std::vector<one_engine> engines_;
  std::deque<std::pair<int, fw::message>> inbox_;
  std::vector<copy_in_flight> flying_;
  std::mt19937 random_;
};

static_assert(fw::publisher<network::publisher>);
static_assert(fw::subscriber<network::subscriber>);

// A sink that works when its stream does.
class late_store {
 public:
  using stream = fake::stream;
  late_store(const fw::manifest& tensors, const fw::plan& wire, fw::commit_mode mode) : inner(tensors, wire, mode) {}
  fw::commit_mode mode() const noexcept { return inner.mode(); }
  fw::error write(fw::u32 piece, std::span<const std::byte> bytes, stream s) {
    s.queue->push([this, piece, bytes, s] { static_cast<void>(inner.write(piece, bytes, s)); });
    return {};
  }
  fw::result<std::span<const fw::piece_report>> reports(stream s) {
    ++syncs;
    s.queue->sync();
    return inner.reports(s);
  }
  fw::error finalize(stream) {
    return ++finalized, fail_finalize ? fw::make_error(fw::errc::unsupported, "sink", "cannot finalize",
                                                       fw::condition::c6_derived_state)
                                      : fw::error{};
  }
  void publish(fw::u64 version) noexcept {
    inner.publish(version);
    published.push_back(version);
  }
  void discard() noexcept { ++discarded; }

  fw::host_store<stream> inner;
  int syncs = 0, finalized = 0, discarded = 0;
  bool fail_finalize = false;
  std::vector<fw::u64> published;
};
static_assert(fw::sink<late_store>);

// A sender's backend that works when its stream does.
class late_backend {
 public:
  void prepare(std::size_t pieces, std::size_t items) { inner_.prepare(pieces, items); }
  void begin() noexcept { inner_.begin(); }
  template <fw::any_recipe Recipe, class In>
  fw::error quantize(const fw::quantize_job& job, fw::matrix_view<const In> in, fw::pair_view<Recipe> out, float floor,
                     stream s) {
    s.queue->push(
        [this, job, in, out, floor, s] { static_cast<void>(inner_.quantize<Recipe>(job, in, out, floor, s)); });
    return {};
  }
  template <class Value> fw::error copy(fw::u32 piece, Value* to, fw::matrix_view<const Value> from, stream s) {
    s.queue->push([this, piece, to, from, s] { static_cast<void>(inner_.copy(piece, to, from, s)); });
    return {};
  }
  fw::error seal(stream) { return ++sealed, fw::error{}; }
  fw::error collect(stream s) { return ++syncs, s.queue->sync(), fw::error{}; }
  std::span<const fw::u64> sums() const noexcept { return inner_.sums(); }
  std::span<const fw::i64> statuses() const noexcept { return inner_.statuses(); }
  int sealed = 0, syncs = 0;

 private:
  fw::serial_backend inner_;
};

}  // namespace fake
#endif
