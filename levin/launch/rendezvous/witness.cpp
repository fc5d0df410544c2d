#include "levin/launch/rendezvous/witness.h"

#include <arpa/inet.h>
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
// A launcher that has just come has this time to say who it is.
constexpr std::chrono::seconds kGreeting(2);
constexpr size_t kIp4Digits = 8;

/// One end of a connection as the kernel counts it, "0100007F:1F90".
struct Connection {
  std::string_view local, remote;
  uid_t user = 0;
};

/// Returns the IPv4 address and port of an IPv4-mapped IPv6 address; other addresses unchanged.
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

std::vector<Connection> connections_in(std::string_view text) {
  std::vector<Connection> all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const auto connection = connection_in(line)) all.push_back(*connection);
  }
  return all;
}

/// "0100007F:1F90" as "127.0.0.1": the kernel writes each word of the address as a number of this
/// machine. Empty for other text.
std::string address_of(std::string_view end) {
  const std::string_view digits = end.substr(0, end.rfind(':'));
  if (digits.size() != kIp4Digits && digits.size() != 4 * kIp4Digits) return "";
  std::array<uint32_t, 4> words = {};
  for (size_t i = 0; i * kIp4Digits < digits.size(); ++i) {
    const char* begin = digits.data() + i * kIp4Digits;
    const auto [last, error] = std::from_chars(begin, begin + kIp4Digits, words.at(i), /*base=*/16);
    if (error != std::errc() || last != begin + kIp4Digits) return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const int family = digits.size() == kIp4Digits ? AF_INET : AF_INET6;
  return ::inet_ntop(family, words.data(), text.data(), text.size()) == nullptr ? "" : text.data();
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

// Both ends of a connection within this machine stand there.
std::set<uid_t> users_at(int64_t port, std::string_view connections) {
  const std::vector<Connection> all = connections_in(connections);
  std::set<std::string_view> callers;
  for (const Connection& connection : all) {
    if (port_of(connection.local) == port) callers.insert(connection.remote);
  }
  std::set<uid_t> users;
  for (const Connection& connection : all) {
    if (port_of(connection.remote) == port && callers.contains(connection.local)) {
      users.insert(connection.user);
    }
  }
  return users;
}

// An address of this machine is that of an end here.
std::set<std::string> hosts_at(int64_t port, std::string_view connections) {
  std::set<std::string> hosts, own = {""};
  for (const Connection& connection : connections_in(connections)) {
    own.insert(address_of(connection.local));
    if (port_of(connection.local) == port) hosts.insert(address_of(connection.remote));
  }
  for (const std::string& address : own) hosts.erase(address);
  return hosts;
}

Witness::Witness(int64_t port) : port_(port), told_{0, ::geteuid()}, thread_([this] { look(); }) {}

Witness::~Witness() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  end_.notify_all();
  thread_.join();
}

// A link-local address of IPv6 has its interface behind it ("fe80::1%eth0"), which the kernel's table
// does not name.
void Witness::know(const std::string& address) {
  const std::lock_guard lock(mutex_);
  known_.insert(address.substr(0, address.find('%')));
}

void Witness::look() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kLook, [this] { return is_ending_; })) {
    const std::string connections = text_of("/proc/net/tcp") + text_of("/proc/net/tcp6");
    name_users(connections);
    name_hosts(connections);
  }
}

void Witness::name_users(std::string_view connections) {
  for (const uid_t user : users_at(port_, connections)) {
    if (!told_.insert(user).second) continue;
    log::warn(
        "a foreign process is connected to the store of the job: user {} of this machine, port {}; "
        "launchers ignore its data, but it can end the job",
        user, port_);
  }
}

void Witness::name_hosts(std::string_view connections) {
  for (const std::string& host : hosts_at(port_, connections)) {
    const auto now = Clock::now();
    const auto since = first_seen_.emplace(host, now).first->second;
    if (now - since < kGreeting || !known_.insert(host).second) continue;
    log::warn(
        "a foreign process is connected to the store of the job: host {}, which runs no launcher "
        "of the job, port {}; launchers ignore its data, but it can end the job",
        host, port_);
  }
}

}  // namespace levin::launch
