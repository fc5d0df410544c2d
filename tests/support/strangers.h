#pragma once
// Strangers at a job's sockets: other processes of this user, and of another where the test runs as
// root.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/posix.h"
#include "tests/support/child_process.h"

namespace levin::test {

using posix::Descriptor;

inline constexpr uid_t kNobody = 65534;

/// As another user, in a process of its own: its exit code, or kSkipped where this one is not root.
inline int as_another_user(const std::function<int()>& body) {
  if (::geteuid() != 0) return kSkipped;
  return run_child([&] { return ::setuid(kNobody) == 0 ? body() : kThrew; });
}

/// Names of levin's sockets in the abstract namespace of this machine, made by that process.
inline std::vector<std::string> sockets_of(pid_t pid) {
  std::vector<std::string> names;
  std::ifstream table("/proc/net/unix");
  const std::string start = "@levin-" + std::to_string(pid) + "-";
  for (std::string line; std::getline(table, line);) {
    const size_t at = line.find(start);
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

/// Connected to a socket of the abstract namespace; none where that does not succeed.
inline Descriptor connect_abstract(std::string_view name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return socket;
}

inline bool say(const Descriptor& socket, std::string_view words) {
  return ::send(socket.number(), words.data(), words.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(words.size());
}

/// Connected to 127.0.0.host.
inline Descriptor connect_loopback(int64_t port, uint32_t host = 1) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl((127U << 24) + host);
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    return {};
  }
  return socket;
}

}  // namespace levin::test
