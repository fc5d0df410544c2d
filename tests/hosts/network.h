#pragma once
// Hosts of a network on this machine: namespaces of the kernel, joined by a bridge. Each belongs to
// a process that dies with the test, and the kernel takes it down with its last process.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/scratch.h"

namespace levin::test {

class Network {
 public:
  /// Why there can be none here; "" where there can.
  static std::string obstacle();

  /// host0, host1, ... at 10.77.0.1, .2, ...; each finds its own name at 127.0.1.1, as on Debian,
  /// and the others' names at their addresses.
  Network(const Scratch& scratch, int num_hosts);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool made() const { return made_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  /// For a process without threads, which goes on within that host.
  bool enter(int host) const;
  /// Bytes that the host has sent to others so far.
  int64_t sent_bytes(int host) const;
  /// What the host sends is lost from now on, and nobody is told.
  bool pull_cable(int host) const;
  /// On the way out of that host. False where the kernel has no netem.
  bool delay(int host, int milliseconds) const;

 private:
  bool make(const Scratch& scratch, int num_hosts);
  bool run_in(pid_t holder, const std::string& commands) const;

  std::vector<pid_t> holders_;  // of the bridge's namespaces, then of each host's
  bool made_ = false;
};

}  // namespace levin::test
