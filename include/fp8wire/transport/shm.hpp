// SPDX-License-Identifier: Apache-2.0
/// The shared-memory transport: the learner's slots, which engines read in place, and one Unix domain socket an engine.
///
/// Nothing has a name in /dev/shm, and an abstract socket name ("@refit-7") leaves no file either, so a killed process
/// leaves nothing behind. Every wait is a poll(): no core burns, a peer that dies ends the wait at once and is named,
/// and one that was stopped is named when the timeout is over. Works between threads of one process as well. Linux.
#ifndef FP8WIRE_TRANSPORT_SHM_HPP
#define FP8WIRE_TRANSPORT_SHM_HPP
#include <fp8wire/transport/shm_socket.hpp>
#include <fp8wire/wire/transport.hpp>

FP8WIRE_ABI_BEGIN

/// The learner's half: `listen`, `accept` all engines, shake hands by messages, `allocate` what the plan asks for, then
/// acquire and publish.
///
/// Errors of every call: peer_lost with the engine and its pid, once one is gone; timeout; protocol_mismatch,
/// out_of_order, capacity and wrong_size for an engine that talks nonsense. A lost engine stays lost; messages still
/// reach the others. Threads: one at a time.
class shm_publisher {
 public:
  using stream = host_stream;

  /// Opens the name that engines connect to: "@name" is abstract, anything else a path, whose file is gone again once
  /// all have joined. A child that is forked later must destroy its copy of this object, or it holds the connections
  /// open. Errors: bad_argument; bad_file where the name is in use or cannot be made.
  static result<shm_publisher> listen(std::string_view name, int engines,
                                      std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    if (engines < 1) return make_error(errc::bad_argument, "engines", "must be at least 1", engines, 1);
    if (timeout.count() < 1)
      return make_error(errc::bad_argument, "timeout", "must be at least 1 ms", timeout.count(), 1);
    auto door = detail::listener::open(name);
    if (!door) return door.error();
    shm_publisher made;
    made.door_ = std::move(door).value();
    made.engines_ = engines;
    made.timeout_ = timeout;
    return made;
  }

  /// Waits until every engine has joined. Strangers (another user, no valid greeting) are turned away.
  /// Errors: timeout with the number of engines that came.
  error accept() {
    if (!door_) return make_error(errc::out_of_order, "", "accept() without a listening name");
    auto joined = door_.accept_all(engines_, until(), timeout_);
    if (!joined) return joined.error();
    peers_ = std::move(joined).value();
    door_ = {};
    heard_.assign(peers_.size(), 0);
    return {};
  }

  /// How long each further call may wait; joining can take longer than a buffer may.
  void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }
  int engines() const noexcept { return engines_; }
  /// "engine 1 (pid 123)".
  const std::string& name_of(int engine) const { return peers_[static_cast<std::size_t>(engine)].who(); }

  /// Makes the slots and shows them to all engines; again for another plan. Every slot begins on a page and is zero.
  /// Errors: out_of_order while an engine still reads; capacity where memory does not suffice.
  error allocate(u32 slots, u64 slot_bytes) {
    const auto geometry = detail::slot_geometry::of(slots, slot_bytes);
    if (!geometry) return geometry.error();
    for (const slot& one : slots_)
      if (one.readers != 0) return make_error(errc::out_of_order, "", "new slots while engines read the old ones");
    const auto memory = detail::make_slot_memory(*geometry);
    if (!memory) return memory.error();
    auto mapped = detail::mapping::map(memory->get(), geometry->total_bytes(), PROT_READ | PROT_WRITE);
    if (!mapped) return mapped.error();
    detail::forbid_writers(*memory);
    geometry_ = *geometry;
    memory_ = std::move(mapped).value();
    slots_.assign(slots, slot{});
    for (slot& one : slots_) one.held.assign(peers_.size(), false);
    std::byte payload[16] = {};
    detail::store_le(payload, slots);
    detail::store_le(payload + 8, slot_bytes);
    return send(detail::kind_slots, payload, memory->get());
  }

  /// Memory of the slot of plan buffer `buffer`, all of it, once every engine has released what was published there.
  /// Errors: timeout names the engines that still hold it.
  result<std::span<std::byte>> acquire(u32 buffer, stream = {}) {
    if (slots_.empty()) return make_error(errc::out_of_order, "", "acquire() before allocate()");
    const std::size_t at = buffer % slots_.size();
    slot& wanted = slots_[at];
    const bool done = wait([&] { return wanted.readers == 0 || any_lost(); });
    if (error lost = first_lost()) return lost;
    if (!done)
      return late("buffer " + std::to_string(wanted.buffer) + " was not released",
                  [&](std::size_t i) { return bool{wanted.held[i]}; });
    wanted.writable = true;
    wanted.buffer = buffer;
    return std::span(memory_.data() + at * geometry_.stride, static_cast<std::size_t>(geometry_.slot_bytes));
  }

  /// Hands an acquired buffer to all engines. Errors: out_of_order without acquire, wrong_size for more than a slot.
  error publish(const frame& f, stream = {}) {
    const std::size_t at = slots_.empty() ? 0 : f.buffer % slots_.size();
    if (slots_.empty() || !slots_[at].writable || slots_[at].buffer != f.buffer)
      return make_error(errc::out_of_order, "",
                        "buffer " + std::to_string(f.buffer) + " is published without acquire()");
    if (f.used_bytes > geometry_.slot_bytes)
      return detail::broken(errc::wrong_size, "buffer " + std::to_string(f.buffer) + " is larger than its slot",
                            f.used_bytes, geometry_.slot_bytes);
    slots_[at].writable = false;
    // Before the frame leaves: a release can come while it is still on its way to another engine.
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      slots_[at].held[i] = !peers_[i].lost();
      slots_[at].readers += slots_[at].held[i] ? 1 : 0;
    }
    encode(f, announcement_);
    return broadcast(announcement_);
  }

  /// Sends one message to every engine that is there. Errors: that of the first engine which did not get all of it;
  /// timeout loses that engine, since half a message is none.
  error broadcast(const message& m) { return send(m.kind, m.payload); }

  /// The next message of any engine; releases are accounted, not returned. A timeout leaves the connections whole and
  /// names the engines that have said least.
  error receive(message& into, int& engine) {
    if (peers_.empty()) return make_error(errc::out_of_order, "", "receive() before accept()");
    wait([&] { return !inbox_.empty() || any_lost(); });
    if (!inbox_.empty()) {
      engine = inbox_.pop(into);
      ++heard_[static_cast<std::size_t>(engine)];
      return {};
    }
    if (error lost = first_lost()) return lost;
    const u64 least = *std::min_element(heard_.begin(), heard_.end());
    return late("nothing came", [&](std::size_t i) { return heard_[i] == least; });
  }

 private:
  struct slot {
    bool writable = false;
    u32 buffer = 0;
    int readers = 0;
    std::vector<bool> held;  // by which engine
  };

  detail::deadline until() const { return std::chrono::steady_clock::now() + timeout_; }
  bool any_lost() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.lost(); });
  }
  error first_lost() const {
    for (const auto& peer : peers_)
      if (peer.lost()) return peer.failure();
    return {};
  }
  /// "engine 0 (pid 7) and engine 3 (pid 9): nothing came within 10 s".
  template <class Late> error late(std::string what, const Late& is_late) const {
    std::string who;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (is_late(i)) who.append(who.empty() ? "" : " and ").append(peers_[i].who());
    return make_error(errc::timeout, std::move(who), std::move(what) + " within " + detail::text_of(timeout_),
                      condition::c7_transport);
  }
  template <class Done> bool wait(const Done& done) {
    return detail::pump(
        peers_, polled_, until(), [&](std::size_t engine, message& m) { return sort(engine, m); }, done);
  }

  error send(message_kind kind, std::span<const std::byte> payload, int attached = -1) {
    if (peers_.empty()) return make_error(errc::out_of_order, "", "a message before accept()");
    for (auto& peer : peers_) peer.start(kind, payload, attached);
    wait([&] { return std::none_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.sending(); }); });
    error first;
    for (auto& peer : peers_) {
      if (peer.sending()) peer.lose(errc::timeout, "did not take a message within " + detail::text_of(timeout_));
      if (!peer.taken() && !first) first = peer.failure();
    }
    return first;
  }

  /// Every message that arrives, whatever is being waited for, passes here.
  error sort(std::size_t engine, message& m) {
    if (m.kind == message_kind::release) {
      const auto buffer = decode_release(m);
      if (!buffer) return buffer.error();
      if (!slots_.empty()) {
        slot& given = slots_[*buffer % slots_.size()];
        if (given.held[engine] && given.buffer == *buffer) {
          given.held[engine] = false;
          --given.readers;
          return {};
        }
      }
      return detail::broken(errc::out_of_order,
                            "released buffer " + std::to_string(*buffer) + ", which it does not hold");
    }
    if (m.kind > message_kind::bye)
      return detail::broken(errc::protocol_mismatch, "sent a message that only a learner sends");
    return inbox_.push(m, static_cast<int>(engine));
  }

  detail::listener door_;
  int engines_ = 0;
  std::chrono::milliseconds timeout_{};
  std::vector<detail::channel> peers_;
  std::vector<u64> heard_;  // messages, by engine
  detail::message_queue inbox_;
  message announcement_;
  std::vector<pollfd> polled_;
  detail::slot_geometry geometry_;
  detail::mapping memory_;
  std::vector<slot> slots_;
};
static_assert(publisher<shm_publisher>);

/// An engine's half. Slots are mapped for reading only, and a slot cannot shrink under the reader.
///
/// Errors of every call: peer_lost names the learner and its pid once it is gone, after everything it had said was
/// received; protocol_mismatch and its like for a learner that talks nonsense. Threads: one at a time.
class shm_subscriber {
 public:
  using stream = host_stream;

  /// Joins as number `engine` (from 0); waits for a learner that does not listen yet. Errors: timeout; bad_argument.
  static result<shm_subscriber> connect(std::string_view name, int engine,
                                        std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    if (engine < 0) return make_error(errc::bad_argument, "engine", "must not be negative", engine, 0);
    if (timeout.count() < 1)
      return make_error(errc::bad_argument, "timeout", "must be at least 1 ms", timeout.count(), 1);
    auto learner = detail::dial(name, std::chrono::steady_clock::now() + timeout, timeout);
    if (!learner) return learner.error();
    shm_subscriber made;
    made.learner_ = std::move(learner).value();
    made.timeout_ = timeout;
    std::byte greeting[8];
    detail::store_le(greeting, protocol_version);
    detail::store_le(greeting + 4, static_cast<u32>(engine));
    if (error lost = made.send(detail::kind_join, greeting)) return lost;
    made.wait([&] { return made.welcome_ || made.learner_.lost(); });
    if (made.welcome_) return made;
    if (!made.learner_.lost())
      return make_error(errc::timeout, made.learner(), "did not answer within " + detail::text_of(timeout),
                        condition::c7_transport);
    error lost = made.learner_.failure();
    lost.what += ", or it turned engine " + std::to_string(engine) + " away";
    return lost;
  }

  /// How long each further call may wait.
  void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }
  /// "learner (pid 123)".
  const std::string& learner() const { return learner_.who(); }

  /// The next message, frames among them. A timeout leaves the connection whole: call again to go on waiting.
  error receive(message& into) {
    if (learner_.who().empty()) return make_error(errc::out_of_order, "", "receive() before connect()");
    wait([&] { return !inbox_.empty() || learner_.lost(); });
    if (!inbox_.empty()) return static_cast<void>(inbox_.pop(into)), error{};
    if (learner_.lost()) return learner_.failure();
    return make_error(errc::timeout, learner(), "nothing came within " + detail::text_of(timeout_),
                      condition::c7_transport);
  }

  /// What a frame announced: its used bytes, valid until its release.
  /// Errors: out_of_order for a buffer that is not held; wrong_size for more bytes than a slot has.
  result<std::span<const std::byte>> bytes(const frame& f, stream = {}) const {
    if (error wrong = check_held(f)) return wrong;
    if (f.used_bytes > geometry_.slot_bytes)
      return detail::broken(errc::wrong_size, "the frame of buffer " + std::to_string(f.buffer) + " exceeds its slot",
                            f.used_bytes, geometry_.slot_bytes);
    const std::size_t at = f.buffer % held_.size();
    return std::span<const std::byte>(memory_.data() + at * geometry_.stride, static_cast<std::size_t>(f.used_bytes));
  }

  /// Gives the buffer back; its bytes are the learner's again. Errors: out_of_order for a buffer that is not held.
  error release(const frame& f, stream = {}) {
    if (error wrong = check_held(f)) return wrong;
    held_[f.buffer % held_.size()].held = false;
    released_.kind = message_kind::release;
    released_.payload.resize(4);
    detail::store_le(released_.payload.data(), f.buffer);
    return reply(released_);
  }

  /// Sends one message to the learner.
  error reply(const message& m) { return send(m.kind, m.payload); }

 private:
  struct lease {
    bool held = false;
    u32 buffer = 0;
  };

  template <class Done> void wait(const Done& done) {
    detail::pump(
        {&learner_, 1}, polled_, std::chrono::steady_clock::now() + timeout_,
        [&](std::size_t, message& m) { return sort(m); }, done);
  }

  error send(message_kind kind, std::span<const std::byte> payload) {
    if (learner_.who().empty()) return make_error(errc::out_of_order, "", "a message before connect()");
    learner_.start(kind, payload);
    wait([&] { return !learner_.sending(); });
    if (learner_.sending()) learner_.lose(errc::timeout, "did not take a message within " + detail::text_of(timeout_));
    return learner_.taken() ? error{} : learner_.failure();
  }

  error check_held(const frame& f) const {
    if (!held_.empty()) {
      const lease& one = held_[f.buffer % held_.size()];
      if (one.held && one.buffer == f.buffer) return {};
    }
    return detail::broken(errc::out_of_order, "buffer " + std::to_string(f.buffer) + " is not held by this engine");
  }

  /// Every message that arrives, whatever is being waited for, passes here.
  error sort(message& m) {
    if (!welcome_) {
      welcome_ = m.kind == detail::kind_welcome && m.payload.size() == 4;
      return welcome_ ? error{} : detail::broken(errc::protocol_mismatch, "did not answer as a learner does");
    }
    if (m.kind == detail::kind_slots) return take_slots(m);
    if (m.kind > message_kind::bye)
      return detail::broken(errc::protocol_mismatch, "sent a message that only an engine sends");
    if (m.kind == message_kind::data) {
      const auto announced = decode_frame(m);
      if (!announced) return announced.error();
      if (held_.empty()) return detail::broken(errc::out_of_order, "published a buffer before it made slots");
      lease& taken = held_[announced->buffer % held_.size()];
      if (taken.held)
        return detail::broken(errc::out_of_order, "published into a slot that is still held; buffer", announced->buffer,
                              taken.buffer);
      taken = {true, announced->buffer};
    }
    return inbox_.push(m);
  }

  error take_slots(const message& m) {
    if (m.payload.size() != 16)
      return detail::broken(errc::wrong_size, "described its slots in another size", m.payload.size(), 16);
    for (const lease& one : held_)
      if (one.held) return detail::broken(errc::out_of_order, "made new slots while a buffer is held");
    const std::byte* const at = m.payload.data();
    const auto geometry = detail::slot_geometry::of(detail::load_le<u32>(at), detail::load_le<u64>(at + 8));
    if (!geometry) return geometry.error();
    const detail::descriptor memory = learner_.take_attached();
    if (error wrong = detail::check_slot_memory(memory, *geometry)) return wrong;
    auto mapped = detail::mapping::map(memory.get(), geometry->total_bytes(), PROT_READ);
    if (!mapped) return mapped.error();
    geometry_ = *geometry;
    memory_ = std::move(mapped).value();
    held_.assign(geometry_.slots, lease{});
    return {};
  }

  detail::channel learner_;
  std::chrono::milliseconds timeout_{};
  bool welcome_ = false;
  detail::message_queue inbox_;
  message released_;
  std::vector<pollfd> polled_;
  detail::slot_geometry geometry_;
  detail::mapping memory_;
  std::vector<lease> held_;
};
static_assert(subscriber<shm_subscriber>);

FP8WIRE_ABI_END
#endif
