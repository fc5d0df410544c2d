#include "levin/launch/rendezvous/witness.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/log.h"

namespace levin::launch {
namespace {

constexpr std::chrono::milliseconds kLook(500);
constexpr size_t kIp4Digits = 8;

/// One end of a connection as the kernel counts it, "0100007F:1F90".
struct Connection {
  std::string_view local, remote;
  uid_t user = 0;
};

/// Of an address of IPv6 that stands for one of IPv4 that one, and its port.
std::string_view plain(std::string_view end) {
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  return end.starts_with(kMapped) ? end.substr(kMapped.size()) : end;
}

std::optional<int64_t> port_of(std::string_view end) {
  const size_t colon = end.rfind(':');
  if (colon == std::string_view::npos || colon < kIp4Digits) return std::nullopt;
  int64_t port = 0;
  const std::string_view digits = end.substr(colon + 1);
  const auto [last, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port, /*base=*/16);
  if (error != std::errc() || last != digits.data() + digits.size()) return std::nullopt;
  return port;
}

/// "sl: local remote state queues timer retransmits user ..."; none for another line.
std::optional<Connection> connection_in(std::string_view line) {
  std::array<std::string_view, 8> words;
  for (std::string_view& word : words) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
  }
  Connection connection{plain(words[1]), plain(words[2])};
  const std::string_view user = words[7];
  const auto [last, error] =
      std::from_chars(user.data(), user.data() + user.size(), connection.user);
  if (error != std::errc() || last != user.data() + user.size() || user.empty()) {
    return std::nullopt;
  }
  constexpr std::string_view kEstablished = "01";
  return words[3] == kEstablished ? std::optional(connection) : std::nullopt;
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

// Both ends of a connection within this machine stand there.
std::set<uid_t> users_at(int64_t port, std::string_view connections) {
  std::set<std::string_view> callers;
  std::vector<Connection> towards;
  while (!connections.empty()) {
    const std::string_view line = connections.substr(0, connections.find('\n'));
    connections.remove_prefix(std::min(line.size() + 1, connections.size()));
    const auto connection = connection_in(line);
    if (!connection) continue;
    if (port_of(connection->local) == port) callers.insert(connection->remote);
    if (port_of(connection->remote) == port) towards.push_back(*connection);
  }
  std::set<uid_t> users;
  for (const Connection& connection : towards) {
    if (callers.contains(connection.local)) users.insert(connection.user);
  }
  return users;
}

Witness::Witness(int64_t port) : port_(port), thread_([this] { look(); }) {}

Witness::~Witness() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  end_.notify_all();
  thread_.join();
}

void Witness::look() {
  std::set<uid_t> told = {0, ::geteuid()};
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kLook, [this] { return is_ending_; })) {
    const std::string connections = text_of("/proc/net/tcp") + text_of("/proc/net/tcp6");
    for (const uid_t user : users_at(port_, connections)) {
      if (!told.insert(user).second) continue;
      log::warn(
          "a stranger at the store of the job: a process of the user {} of this machine is "
          "connected to port {}; launchers believe no word of it, and it can end the job",
          user, port_);
    }
  }
}

}  // namespace levin::launch
