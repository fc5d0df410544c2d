#pragma once
// Transport: messages between the ranks of a group, whatever carries them. Below
// MessageCollectives, which makes collectives of them.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "levin/comm/collectives/announcement.h"
#include "levin/comm/collectives/collectives.h"

namespace levin::comm {

/// Bytes to or from a rank.
struct Letter {
  int64_t rank = 0;
  Elements elements;
};

/// Messages of one tag between two ranks arrive in the order in which they were sent.
class Transport {
 public:
  /// Letters under way.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    /// Returns when all have come and gone. Throws "comm.timeout", "comm.peer", and "comm.mismatch"
    /// for a message of another length.
    virtual void wait() = 0;
  };

  virtual ~Transport() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  /// Sends and receives all of these at once; letters of this rank itself are passed over. Must be
  /// waited for. `operation` is for the errors. For several threads with different tags.
  virtual std::unique_ptr<Exchange> start(const Announcement& operation,
                                          std::span<const Letter> receives,
                                          std::span<const Letter> sends, int tag) = 0;
  void exchange(const Announcement& operation, std::span<const Letter> receives,
                std::span<const Letter> sends, int tag) {
    start(operation, receives, sends, tag)->wait();
  }

  /// Something failed above: messages may be left that nobody receives, and no more will follow.
  virtual void abandon() {}

  /// Everybody's part, counts[i] bytes of rank i one after the other; this rank's is there already.
  /// By default, an exchange of all with all.
  virtual void all_gather(const Announcement& operation, std::byte* data,
                          std::span<const int64_t> counts, int tag);
  /// By default, along a binomial tree.
  virtual void broadcast(const Announcement& operation, Elements data, int64_t root, int tag);
};

}  // namespace levin::comm
