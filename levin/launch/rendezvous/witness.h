#pragma once
// Witness: reports once each stranger that is connected to the port of the job's store: each user
// of this machine other than the job's own and root, and each address of another host that is no
// launcher's. The store itself asks nobody for an identity; the kernel knows it.

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "levin/base/export.h"

namespace levin::launch {

/// The users whose processes on this machine are connected to that port of it, by the text of
/// /proc/net/tcp and of /proc/net/tcp6, one behind the other.
LEVIN_API std::set<uid_t> users_at(int64_t port, std::string_view connections);

/// The other hosts that are connected to that port of this machine, by their addresses ("10.0.0.3"),
/// of the same text.
LEVIN_API std::set<std::string> hosts_at(int64_t port, std::string_view connections);

class Witness {
 public:
  explicit Witness(int64_t port);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// A launcher of the job is at that address.
  void know(const std::string& address);

 private:
  using Clock = std::chrono::steady_clock;

  void look();
  void name_users(std::string_view connections);
  void name_hosts(std::string_view connections);

  int64_t port_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool is_ending_ = false;
  std::set<uid_t> told_;
  std::set<std::string> known_;  ///< launchers' addresses, and strangers already reported
  std::map<std::string, Clock::time_point> first_seen_;
  std::thread thread_;
};

}  // namespace levin::launch
