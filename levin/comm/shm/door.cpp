#include "levin/comm/shm/door.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/descriptors.h"
#include "levin/comm/environment/token.h"

namespace levin::comm::shm {
namespace {

constexpr std::chrono::seconds kGreetingTime(2);
constexpr size_t kTokenLetters = 32;
constexpr size_t kLongestName = 64;
constexpr int64_t kStrangersNamed = 10;
constexpr size_t kWaitingStrangers = 64;

/// First word on a new connection.
struct Greeting {
  std::array<char, kTokenLetters> token = {};
  int64_t rank = 0;

  std::string_view words() const { return {token.data(), token.size()}; }
};

/// In the abstract namespace: no file is left behind.
std::pair<sockaddr_un, socklen_t> unix_address(std::string_view name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Descriptor unix_socket(int flags) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  LEVIN_CHECK(socket, "comm.shm.link", "cannot open a unix socket: {}", posix::reason(errno));
  return socket;
}

/// Returns the process that made the other end, as the kernel reports it.
ucred peer_of(const Descriptor& socket) {
  ucred peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof peer;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

}  // namespace

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

bool readable(int fd, Deadline deadline) {
  pollfd wanted = {fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Door::Door(int64_t size)
    : size_(size),
      name_(fmt::format("levin-{}-{}", ::getpid(), new_token())),
      token_(new_token()),
      listener_(unix_socket(SOCK_NONBLOCK)) {
  allow_descriptors(size_ + static_cast<int64_t>(kWaitingStrangers));
  const auto [address, length] = unix_address(name_);
  const bool listening =
      ::bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::listen(listener_.number(), SOMAXCONN) == 0;
  LEVIN_CHECK(listening, "comm.shm.link", "cannot listen on a unix socket: {}",
              posix::reason(errno));
}

std::optional<Door::Caller> Door::admit(Deadline deadline) {
  while (true) {
    accept_all();
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      pollfd word = {visitor->socket.number(), POLLIN, 0};
      if (::poll(&word, 1, 0) <= 0) {
        ++visitor;
        continue;
      }
      auto caller = hear(*visitor);
      visitor = visitors_.erase(visitor);
      if (caller) return caller;
    }
    send_away_late();
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::vector<pollfd> waited = {{listener_.number(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) waited.push_back({visitor.socket.number(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), milliseconds_until(next_look(deadline)));
  }
}

Deadline Door::next_look(Deadline deadline) const {
  return visitors_.empty() ? deadline : std::min(deadline, visitors_.front().until);
}

void Door::accept_all() {
  while (true) {
    Descriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) {
      let_wait(std::move(socket));
    } else if (errno == EAGAIN) {
      return;
    } else {
      LEVIN_CHECK(errno == EINTR || errno == ECONNABORTED, "comm.shm.link",
                  "cannot accept a connection from a rank of this machine: {}{}",
                  posix::reason(errno), shortage_of_descriptors(size_));
    }
  }
}

// Too many connections wait without a greeting: the oldest is closed.
void Door::let_wait(Descriptor socket) {
  const ucred peer = peer_of(socket);
  if (peer.uid != ::geteuid()) {
    return turn_away(peer.pid, fmt::format("it belongs to the user {}", peer.uid));
  }
  if (visitors_.size() >= static_cast<size_t>(size_) + kWaitingStrangers) {
    turn_away(visitors_.front().pid, "too many connections sent nothing");
    visitors_.pop_front();
  }
  visitors_.push_back(
      {std::move(socket), peer.pid, std::chrono::steady_clock::now() + kGreetingTime});
}

void Door::send_away_late() {
  const auto now = std::chrono::steady_clock::now();
  while (!visitors_.empty() && visitors_.front().until <= now) {
    turn_away(visitors_.front().pid,
              fmt::format("it sent nothing for {} s", kGreetingTime.count()));
    visitors_.pop_front();
  }
}

std::optional<Door::Caller> Door::hear(Visitor& visitor) {
  Greeting greeting;
  // MSG_TRUNC returns the full length, even if it is more than was taken.
  const ssize_t bytes =
      ::recv(visitor.socket.number(), &greeting, sizeof greeting, MSG_DONTWAIT | MSG_TRUNC);
  if (bytes != static_cast<ssize_t>(sizeof greeting)) {
    turn_away(visitor.pid, fmt::format("its greeting has {} bytes", std::max<ssize_t>(bytes, 0)));
  } else if (!same_token(greeting.words(), token_)) {
    turn_away(visitor.pid, "it does not know the token");
  } else if (greeting.rank < 1 || greeting.rank >= size_) {
    turn_away(visitor.pid, fmt::format("it says it is rank {} of {}", greeting.rank, size_));
  } else {
    return Caller{greeting.rank, std::move(visitor.socket)};
  }
  return std::nullopt;
}

// Any rank says it, not the first alone: each machine has a door.
void Door::turn_away(pid_t pid, std::string_view why) {
  if (!log::enabled(log::Level::kError) || ++num_strangers_ > kStrangersNamed) return;
  log::write(
      log::Level::kWarn,
      fmt::format("refused a connection to the socket of this machine's ranks (process {}): {}{}",
                  pid, why,
                  num_strangers_ == kStrangersNamed ? "; further refusals are not logged" : ""));
}

Descriptor knock(std::string_view word, int64_t rank) {
  const size_t space = word.find(' ');
  const std::string_view name = word.substr(0, space);
  Greeting greeting = {.rank = rank};
  LEVIN_CHECK(space != std::string_view::npos && !name.empty() && name.size() <= kLongestName &&
                  word.size() - space - 1 == greeting.token.size(),
              "comm.shm.link",
              "the store holds no valid socket name for this machine's ranks (got {} characters); "
              "run the same version of levin on all ranks",
              word.size());
  std::ranges::copy(word.substr(space + 1), greeting.token.begin());
  Descriptor socket = unix_socket(0);
  const auto [address, length] = unix_address(name);
  const bool linked =
      ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  const uid_t owner = linked ? peer_of(socket).uid : ::geteuid();
  LEVIN_CHECK(owner == ::geteuid(), "comm.shm.link",
              "a process of user {} listens on the socket of this machine's first rank; run all "
              "ranks as one user",
              owner);
  const bool greeted = linked && ::send(socket.number(), &greeting, sizeof greeting,
                                        MSG_NOSIGNAL) == sizeof greeting;
  LEVIN_CHECK(greeted, "comm.shm.link",
              "cannot connect to the first rank of this machine: {}; see that rank's error",
              posix::reason(errno));
  return socket;
}

}  // namespace levin::comm::shm
