#include "levin/comm/reach.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "levin/base/posix.h"

namespace levin::comm {
namespace {

using posix::Descriptor;
constexpr int kConnectMs = 1000;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int64_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (::getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, ::freeaddrinfo};
}

bool answers(const addrinfo& address) {
  const Descriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd connected = {socket.number(), POLLOUT, 0};
  if (::poll(&connected, 1, kConnectMs) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

// Only an address of this host can be bound.
bool is_this_host(const std::string& host) {
  const Addresses addresses = addresses_of(host, 0);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket && ::bind(socket.number(), at->ai_addr, at->ai_addrlen) == 0) return true;
  }
  return false;
}

// A UDP socket that is connected has the address that the routes give it.
std::vector<std::string> addresses_towards(const std::string& host) {
  constexpr int64_t kDiscard = 9;  // a port is a must, and takes no part in a route
  const Addresses addresses = addresses_of(host, kDiscard);
  std::vector<std::string> own_ones;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const Descriptor socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::connect(socket.number(), at->ai_addr, at->ai_addrlen) != 0) continue;
    sockaddr_storage own = {};
    socklen_t size = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (::getsockname(socket.number(), address, &size) != 0) continue;
    char text[NI_MAXHOST];
    if (::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      own_ones.emplace_back(text);
    }
  }
  return own_ones;
}

std::string address_towards(const std::string& host) {
  const std::vector<std::string> own_ones = addresses_towards(host);
  return own_ones.empty() ? "" : own_ones.front();
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool somebody_listens(const std::string& host, int64_t port) {
  const Addresses addresses = addresses_of(host, port);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    if (answers(*at)) return true;
  }
  return false;
}

}  // namespace levin::comm
