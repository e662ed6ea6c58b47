// SPDX-License-Identifier: Apache-2.0
/// How the processes of the shared-memory transport find each other: a name, a greeting, an answer.
#ifndef FP8WIRE_TRANSPORT_SHM_SOCKET_HPP
#define FP8WIRE_TRANSPORT_SHM_SOCKET_HPP
#include <cstddef>

#include <sys/un.h>

#include <fp8wire/transport/shm_channel.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

/// A Unix domain address: "@name" in the abstract namespace, which vanishes with its last socket, or a path.
struct socket_address {
  sockaddr_un address{};
  socklen_t size = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }

  /// Errors: bad_argument for names that are empty or do not fit.
  static result<socket_address> of(std::string_view name) {
    socket_address made;
    constexpr std::size_t room = sizeof(made.address.sun_path) - 1;
    if (name.size() < 2 || name.size() > room)
      return make_error(errc::bad_argument, std::string(name), "a socket name has 2 to 107 characters; it has",
                        static_cast<i64>(name.size()), static_cast<i64>(room), condition::none);
    made.address.sun_family = AF_UNIX;
    std::memcpy(made.address.sun_path, name.data(), name.size());
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name[0] == '@' ? 0 : 1));
    if (name[0] == '@') made.address.sun_path[0] = '\0';
    return made;
  }
};

inline descriptor new_socket() noexcept {
  return descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// The name that engines connect to. A path's file goes with this object, in the process that made it.
class listener {
 public:
  listener() = default;
  listener(listener&& other) noexcept { *this = std::move(other); }
  listener& operator=(listener&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(path_, other.path_);
    std::swap(owner_, other.owner_);
    other.close();
    return *this;
  }
  ~listener() { close(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }

  static result<listener> open(std::string_view name) {
    const auto address = socket_address::of(name);
    if (!address) return address.error();
    listener made;
    made.socket_ = new_socket();
    int failed = made.bind(*address);
    if (failed == EADDRINUSE && name[0] != '@') {
      // A killed process leaves its file; nobody answers behind it.
      const descriptor probe = new_socket();
      if (::connect(probe.get(), address->get(), address->size) != 0 && errno == ECONNREFUSED) {
        ::unlink(address->address.sun_path);
        failed = made.bind(*address);
      }
    }
    if (failed != 0) return system_error(errc::bad_file, std::string(name), "the socket cannot be made", failed);
    if (name[0] != '@') made.path_ = name;
    made.owner_ = ::getpid();
    if (::listen(made.socket_.get(), SOMAXCONN) != 0)
      return system_error(errc::bad_file, std::string(name), "cannot be listened on", errno);
    return made;
  }

  /// One channel an engine, in the order of their numbers.
  result<std::vector<channel>> accept_all(int engines, deadline until, std::chrono::milliseconds timeout) const {
    std::vector<channel> joined(static_cast<std::size_t>(engines)), waiting;
    std::vector<bool> here(joined.size());
    std::vector<pollfd> polled;
    std::string stranger;
    for (u64 missing = joined.size(); missing > 0;) {
      channel fresh;
      bool came = false, changed = false;
      std::vector<std::size_t> numbers(waiting.size(),
                                       joined.size());  // of the engine that a connection turned out to be
      const auto greet = [&](std::size_t index, const message& m) -> error {
        changed = true;
        if (m.kind != kind_join || m.payload.size() != 8)
          return broken(errc::protocol_mismatch, "did not join as an engine does");
        if (const u32 version = load_le<u32>(m.payload.data()); version != protocol_version)
          return broken(errc::protocol_mismatch, "speaks another protocol version", version, protocol_version);
        const u32 number = load_le<u32>(m.payload.data() + 4);
        if (number >= joined.size())
          return broken(errc::unexpected, "joined as an engine too many; its number", number, joined.size() - 1);
        if (here[number] || numbers[index] < joined.size())
          return broken(errc::duplicate, "joined as engine " + std::to_string(number) + ", which is here already");
        here[number] = true;
        numbers[index] = number;
        return {};
      };
      const auto any_change = [&] {
        const int number = came ? -1 : ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (number >= 0) fresh = channel(descriptor(number), "a process");
        came = came || number >= 0;
        for (const channel& one : waiting) changed = changed || one.lost();
        return came || changed;
      };
      if (!pump(waiting, polled, until, greet, any_change, socket_.get()))
        return broken(errc::timeout, "engines that joined within " + text_of(timeout) + stranger,
                      joined.size() - missing, joined.size());
      std::vector<channel> rest;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        if (waiting[i].lost()) {
          stranger = "; " + waiting[i].failure().what;
          if (numbers[i] < joined.size()) here[numbers[i]] = false;
        } else if (numbers[i] < joined.size()) {
          channel& one = joined[numbers[i]];
          one = std::move(waiting[i]);
          one.rename("engine " + std::to_string(numbers[i]));
          std::byte answer[4];
          store_le(answer, static_cast<u32>(engines));
          one.start(kind_welcome, answer);
          one.flush();  // a few bytes into an empty socket: nothing can be left
          --missing;
        } else {
          rest.push_back(std::move(waiting[i]));
        }
      }
      waiting = std::move(rest);
      if (came && fresh.same_user()) waiting.push_back(std::move(fresh));
    }
    return joined;
  }

 private:
  int bind(const socket_address& address) const noexcept {
    return ::bind(socket_.get(), address.get(), address.size) == 0 ? 0 : errno;
  }
  void close() noexcept {
    if (!path_.empty() && owner_ == ::getpid()) ::unlink(path_.c_str());
    path_.clear();
    socket_.reset();
  }

  descriptor socket_;
  std::string path_;
  pid_t owner_ = 0;
};

/// Connects; waits for a learner that does not listen yet. Errors: timeout, bad_argument, peer_lost.
inline result<channel> dial(std::string_view name, deadline until, std::chrono::milliseconds timeout) {
  const auto address = socket_address::of(name);
  if (!address) return address.error();
  descriptor socket = new_socket();
  while (::connect(socket.get(), address->get(), address->size) != 0) {
    const bool not_yet = errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN || errno == EINTR;
    if (!not_yet) return system_error(errc::peer_lost, std::string(name), "cannot be connected to", errno);
    if (std::chrono::steady_clock::now() >= until)
      return make_error(errc::timeout, std::string(name), "no learner listens there within " + text_of(timeout),
                        condition::c7_transport);
    ::poll(nullptr, 0, 10);
    socket = new_socket();
  }
  channel learner(std::move(socket), "learner");
  if (!learner.same_user()) return make_error(errc::peer_lost, std::string(name), "another user listens there");
  return learner;
}

}  // namespace detail
FP8WIRE_ABI_END
#endif
