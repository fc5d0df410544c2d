#include "levin/comm/environment/port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "levin/base/check.h"

namespace levin::comm {
namespace {

constexpr int64_t kFirstDerived = 10000;
constexpr uint64_t kNumDerived = 20000;
constexpr int kBacklog = 2048;

// 0 or the errno.
int bind_and_listen(int socket, const sockaddr* address, socklen_t size) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket, address, size) != 0 || ::listen(socket, kBacklog) != 0) return errno;
  return 0;
}

int listen_by_ip4(int socket, int64_t port, Reach reach) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(reach == Reach::kLoopback ? INADDR_LOOPBACK : INADDR_ANY);
  return bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// Takes IPv4 connections too.
int listen_by_ip6(int socket, int64_t port) {
  const int off = 0;
  ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  address.sin6_addr = in6addr_any;
  return bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int64_t port_of(int socket) {
  sockaddr_in6 bound = {};
  socklen_t size = sizeof bound;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  // The port stands at the same place in both families' addresses.
  return ntohs(bound.sin6_port);
}

}  // namespace

int64_t derived_port(std::string_view job) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char letter : job) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  }
  return kFirstDerived + static_cast<int64_t>(hash % kNumDerived);
}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// A kernel without IPv6 gets IPv4 alone.
ListeningSocket listen_on(int64_t port, std::string_view how_to_choose, Reach reach) {
  int family = reach == Reach::kLoopback ? AF_INET : AF_INET6;
  int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0 && family == AF_INET6) {
    family = AF_INET;
    descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  ListeningSocket socket(descriptor, port);
  const int error = descriptor < 0       ? errno
                    : family == AF_INET6 ? listen_by_ip6(descriptor, port)
                                         : listen_by_ip4(descriptor, port, reach);
  LEVIN_CHECK(error != EADDRINUSE, "comm.environment.port",
              "port {} of this host is taken by another process; choose a free one by {}", port,
              how_to_choose);
  LEVIN_CHECK(error == 0, "comm.environment.port",
              "cannot listen on port {}: {}; choose another by {}", port,
              std::generic_category().message(error), how_to_choose);
  return ListeningSocket(socket.release(), port_of(descriptor));
}

}  // namespace levin::comm
