// SPDX-License-Identifier: Apache-2.0
/// The shared-memory transport's control channel: whole messages over a Unix domain socket, to a peer with a name.
///
/// On the wire: u32 magic, u16 kind, u16 zero, u64 payload bytes, payload, little-endian. Only `pump` blocks.
#ifndef FP8WIRE_TRANSPORT_SHM_CHANNEL_HPP
#define FP8WIRE_TRANSPORT_SHM_CHANNEL_HPP
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>

#include <poll.h>
#include <sys/socket.h>

#include <fp8wire/transport/shm_memory.hpp>
#include <fp8wire/wire/message.hpp>

FP8WIRE_ABI_BEGIN

/// Longer messages are refused by both ends: no peer can make the other one allocate without end.
inline constexpr u64 shm_largest_message = u64{256} << 20;

namespace detail {

inline constexpr u32 channel_magic = 0x57385046;  // "FP8W"
inline constexpr std::size_t channel_header_bytes = 16;

// What the two ends say to each other below the protocol of wire/message.hpp.
inline constexpr message_kind kind_join{0xFF01};     // engine: u32 protocol, u32 engine
inline constexpr message_kind kind_welcome{0xFF02};  // u32 engines
inline constexpr message_kind kind_slots{0xFF03};  // u32 slots, u32 zero, u64 slot bytes, and the memory's descriptor

constexpr bool is_known(message_kind kind) noexcept {
  return (kind >= message_kind::hello && kind <= message_kind::bye) || (kind >= kind_join && kind <= kind_slots);
}

/// "10 s", "250 ms".
inline std::string text_of(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + " s" : std::to_string(time.count()) + " ms";
}

/// Messages that came while something else was waited for, oldest first, one behind the other in one piece of memory.
///
/// Payloads are copied in and out, so that each vector keeps the capacity that its owner needs: had they been swapped,
/// a
/// large one would wander through all of them, and every update would make another one grow.
class message_queue {
 public:
  bool empty() const noexcept { return first_ == end_; }
  /// Errors: capacity where nobody reads.
  error push(const message& m, int from = 0) {
    const std::size_t size = sizeof(head) + m.payload.size();
    if (end_ - first_ + size > 2 * shm_largest_message)
      return broken(errc::capacity, "sends more than is read; bytes waiting", end_ - first_ + size,
                    2 * shm_largest_message);
    if (memory_.size() - end_ < size) {
      if (first_ > 0) std::memmove(memory_.data(), memory_.data() + first_, end_ - first_);
      end_ -= std::exchange(first_, 0);
      if (memory_.size() - end_ < size) memory_.resize(2 * (end_ + size) + 4096);
    }
    const head one{m.payload.size(), m.kind, from};
    std::memcpy(memory_.data() + end_, &one, sizeof(one));
    if (!m.payload.empty()) std::memcpy(memory_.data() + end_ + sizeof(one), m.payload.data(), m.payload.size());
    end_ += size;
    return {};
  }
  /// Takes the oldest message and says from whom it is. Expects: not empty.
  int pop(message& into) {
    head one;
    std::memcpy(&one, memory_.data() + first_, sizeof(one));
    const std::byte* const payload = memory_.data() + first_ + sizeof(one);
    into.kind = one.kind;
    into.payload.assign(payload, payload + one.size);
    first_ += sizeof(one) + one.size;
    if (first_ == end_) first_ = end_ = 0;
    return one.from;
  }

 private:
  struct head {
    std::size_t size;
    message_kind kind;
    int from;
  };
  std::vector<std::byte> memory_;
  std::size_t first_ = 0, end_ = 0;
};

/// One peer. Failure is sticky: after a broken message or half a sent one nothing on the stream means anything.
class channel {
 public:
  channel() = default;
  channel(descriptor socket, std::string role) : socket_(std::move(socket)) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
      pid_ = static_cast<i64>(peer.pid);
      same_user_ = peer.uid == ::geteuid();
    }
    rename(std::move(role));
  }

  /// "engine 1 (pid 123)".
  const std::string& who() const noexcept { return who_; }
  void rename(std::string role) { who_ = std::move(role).append(" (pid ").append(std::to_string(pid_)).append(")"); }
  bool same_user() const noexcept { return same_user_; }
  int socket() const noexcept { return socket_.get(); }
  /// Empty while the peer is there.
  const error& failure() const noexcept { return failure_; }
  bool lost() const noexcept { return static_cast<bool>(failure_); }

  /// Closes the connection; `what` is said after the peer's name.
  void lose(error why) {
    if (lost()) return;
    why.what = who_ + " " + why.what;
    failure_ = std::move(why);
    socket_.reset();
    attached_.reset();
    payload_ = {};
    unsent_ = 0;
  }
  void lose(errc code, std::string what) { lose(broken(code, std::move(what))); }

  /// Begins to send; `flush` goes on until `sending()` ends. A descriptor may ride along.
  /// Expects: not sending; the payload outlives the sending.
  void start(message_kind kind, std::span<const std::byte> payload, int attached = -1) noexcept {
    taken_ = false;
    if (lost()) return;
    store_le(outgoing_.data(), channel_magic);
    store_le(outgoing_.data() + 4, static_cast<u16>(kind));
    store_le(outgoing_.data() + 6, u16{0});
    store_le(outgoing_.data() + 8, static_cast<u64>(payload.size()));
    payload_ = payload;
    unsent_ = channel_header_bytes + payload.size();
    riding_ = attached;
  }
  bool sending() const noexcept { return unsent_ != 0; }
  /// Whether the last message left as a whole: a peer may well go once it has it.
  bool taken() const noexcept { return taken_; }
  /// What poll is to wait for.
  short events() const noexcept { return static_cast<short>(sending() && !deaf_ ? POLLIN | POLLOUT : POLLIN); }

  /// Writes what the socket takes now.
  void flush() {
    while (sending() && !deaf_) {
      const std::size_t sent = channel_header_bytes + payload_.size() - unsent_;
      iovec parts[2] = {};
      std::size_t count = 0;
      if (sent < channel_header_bytes) parts[count++] = {outgoing_.data() + sent, channel_header_bytes - sent};
      const std::size_t done = sent < channel_header_bytes ? 0 : sent - channel_header_bytes;
      // sendmsg only reads, but its vector has no const.
      std::byte* const payload = const_cast<std::byte*>(payload_.data());
      if (done < payload_.size()) parts[count++] = {payload + done, payload_.size() - done};
      msghdr head{};
      head.msg_iov = parts;
      head.msg_iovlen = count;
      alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
      if (riding_ >= 0) {
        head.msg_control = room;
        head.msg_controllen = sizeof(room);
        cmsghdr* const rights = CMSG_FIRSTHDR(&head);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(rights), &riding_, sizeof(int));
      }
      const ssize_t written = ::sendmsg(socket_.get(), &head, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        // What it said before it went is still to be read; the end of that names it.
        if (errno == EPIPE || errno == ECONNRESET) return static_cast<void>(deaf_ = true);
        return lose(system_error(errc::peer_lost, "", "cannot be sent to", errno));
      }
      riding_ = -1;
      unsent_ -= static_cast<std::size_t>(written);
      taken_ = unsent_ == 0;
    }
  }

  /// Reads what has arrived and hands every whole message to `sink(message&) -> error`, whose error
  /// loses the peer. The sink may swap the payload for another one.
  template <class Sink> void drain(const Sink& sink) {
    // A bound, so that one peer that never stops talking cannot keep the others from being heard.
    for (int rounds = 0; rounds < 64 && !lost(); ++rounds) {
      const bool in_header = received_ < channel_header_bytes;
      std::byte* to = incoming_.data() + received_;
      std::size_t room = channel_header_bytes - received_;
      if (!in_header) {
        const std::size_t have = received_ - channel_header_bytes;
        // Memory is taken as bytes arrive, not as the header claims.
        room = (std::min)(expected_ - have, std::size_t{1} << 20);
        current_.payload.resize(have + room);
        to = current_.payload.data() + have;
      }
      const ssize_t got = receive(to, room);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0) return lose(errc::peer_lost, received_ == 0 ? "is gone" : "is gone in the middle of a message");
      received_ += static_cast<std::size_t>(got);
      if (in_header && received_ == channel_header_bytes)
        if (error wrong = open()) return lose(std::move(wrong));
      if (received_ >= channel_header_bytes && received_ - channel_header_bytes == expected_) {
        received_ = 0;
        current_.payload.resize(expected_);
        if (error wrong = sink(current_)) return lose(std::move(wrong));
      }
    }
  }

  /// The descriptor that came last, if any.
  descriptor take_attached() noexcept { return std::move(attached_); }

 private:
  /// Judges the header that has just arrived.
  error open() {
    const u32 magic = load_le<u32>(incoming_.data());
    const u16 kind = load_le<u16>(incoming_.data() + 4);
    const u16 zero = load_le<u16>(incoming_.data() + 6);
    const u64 size = load_le<u64>(incoming_.data() + 8);
    if (magic != channel_magic)
      return broken(errc::protocol_mismatch, "does not speak this protocol; the magic", magic, channel_magic);
    if (!is_known(message_kind{kind}) || zero != 0)
      return broken(errc::protocol_mismatch, "sent a message of unknown kind " + std::to_string(kind));
    if (size > shm_largest_message)
      return broken(errc::capacity, "announced a message that is too large; its bytes", size, shm_largest_message);
    current_.kind = message_kind{kind};
    current_.payload.clear();
    expected_ = static_cast<std::size_t>(size);
    return {};
  }

  ssize_t receive(std::byte* to, std::size_t room) {
    iovec part{to, room};
    msghdr head{};
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    alignas(cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};  // the kernel closes what does not fit
    head.msg_control = rights;
    head.msg_controllen = sizeof(rights);
    const ssize_t got = ::recvmsg(socket_.get(), &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    const cmsghdr* const came = CMSG_FIRSTHDR(&head);
    if (came != nullptr && came->cmsg_level == SOL_SOCKET && came->cmsg_type == SCM_RIGHTS &&
        came->cmsg_len == CMSG_LEN(sizeof(int))) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(came), sizeof(int));
      attached_.reset(number);
    }
    return got;
  }

  descriptor socket_, attached_;
  std::string who_;
  i64 pid_ = 0;
  bool same_user_ = false, deaf_ = false, taken_ = false;
  error failure_;

  std::array<std::byte, channel_header_bytes> outgoing_{}, incoming_{};
  std::span<const std::byte> payload_;
  std::size_t unsent_ = 0;
  int riding_ = -1;

  message current_;
  std::size_t received_ = 0, expected_ = 0;  // of the message that arrives now, its header included in the first
};

using deadline = std::chrono::steady_clock::time_point;

/// Sends and receives on all channels until `done()`; false where the deadline passed first. Sleeps in the kernel.
///
/// Reading goes on while writing waits, so two ends that send large messages at once never wait for each other.
/// polled: scratch. extra: a descriptor to wait for besides, say a listening socket. sink(index, message&) -> error.
template <class Sink, class Done> bool pump(std::span<channel> channels, std::vector<pollfd>& polled, deadline until,
                                            const Sink& sink, const Done& done, int extra = -1) {
  polled.resize(channels.size() + 1);
  for (;;) {
    if (done()) return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      polled[i] = {channels[i].socket(), channels[i].events(), 0};  // poll passes over the -1 of a lost peer
    }
    polled[channels.size()] = {extra, POLLIN, 0};
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>((std::min)(left, decltype(left){3600000})));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      if ((polled[i].revents & POLLOUT) != 0) channels[i].flush();
      if ((polled[i].revents & ~POLLOUT) != 0) channels[i].drain([&](message& m) { return sink(i, m); });
    }
  }
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
