#pragma once
// Links: unix sockets between the ranks of one machine: they carry descriptors of shared memory,
// and close when a rank dies. The first rank is the hub.
//
//   Links links(rank, size, exchange, deadline);
//   Segment segment = links.share(bytes);              // the same memory in every rank
//   links.watch([](int64_t rank) { ... });             // called once for a rank that is gone

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "levin/comm/shm/door.h"
#include "levin/comm/shm/segment.h"

namespace levin::comm::shm {

/// How ranks exchange a word before they are linked: a store's set and get. read waits, and throws
/// at the deadline.
struct Board {
  std::function<void(const std::string& key, const std::string& word)> write;
  std::function<std::string(const std::string& key)> read;
};

class Links {
 public:
  /// Returns when every rank is linked to the hub. Throws "comm.shm.link" when that does not happen
  /// before the deadline, with the rank that did not come. Strangers are kept out: see Door.
  Links(int64_t rank, int64_t size, const Board& board, Deadline deadline);
  ~Links();

  /// Returns so many bytes of zeros that all ranks map; the first `reserved` are allocated. All
  /// ranks call it in the same order. Throws "comm.shm.link" and "comm.shm.memory".
  Segment share(size_t bytes, size_t reserved, Deadline deadline);
  Segment share(size_t bytes, Deadline deadline) { return share(bytes, bytes, deadline); }

  /// Calls gone, in a thread of its own, for each rank whose process ended: the hub sees all, the
  /// others see the hub.
  void watch(std::function<void(int64_t rank)> gone);
  /// gone is not called any more when this has returned.
  void stop_watching();

 private:
  struct Link {
    int64_t rank = 0;
    Descriptor socket;  ///< the hub writes to it, nobody else
  };

  void gather(const Board& board, Deadline deadline);
  void join(const std::string& word);
  void wait_for_end(const std::function<void(int64_t)>& gone) const;

  int64_t rank_;
  int64_t size_;
  std::vector<Link> links_;  ///< to every other rank in the hub, else to the hub
  Descriptor stop_;          ///< an eventfd that ends the watching
  std::thread watcher_;
};

}  // namespace levin::comm::shm
