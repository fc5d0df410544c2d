#pragma once
// Witness: says once of each user of this machine, but the job's own and root, that it is connected
// to the port of the job's store. The store itself asks nobody who he is; the kernel knows.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include "levin/base/export.h"

namespace levin::launch {

/// The users whose processes on this machine are connected to that port of it, by the text of
/// /proc/net/tcp and of /proc/net/tcp6, one behind the other.
LEVIN_API std::set<uid_t> users_at(int64_t port, std::string_view connections);

class Witness {
 public:
  explicit Witness(int64_t port);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

 private:
  void look();

  int64_t port_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace levin::launch
