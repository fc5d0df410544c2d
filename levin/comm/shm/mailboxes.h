#pragma once
// Mailboxes: messages between two ranks of one machine that need nobody else: a ring of slots in
// shared memory for each ordered pair. A message takes as many slots as it needs, one after the
// other.
//
//   mailboxes.send(elements, to, tag);      // returns when the last piece is in a slot
//   mailboxes.receive(elements, from, tag);

#include <atomic>
#include <chrono>
#include <cstdint>

#include "levin/comm/collectives/announcement.h"
#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/group_failure.h"
#include "levin/comm/shm/counter.h"
#include "levin/comm/shm/rounds.h"
#include "levin/comm/shm/segment.h"

namespace levin::comm::shm {

/// For all threads, one at a time for each peer and direction. Throws "comm.mismatch" in both ranks
/// when what was sent is not what is expected, "comm.peer", "comm.timeout", and "comm.closed" when
/// the group fails meanwhile.
class Mailboxes {
 public:
  Mailboxes(Segment segment, int64_t rank, int64_t size, const Rounds& rounds,
            const GroupFailure& failure, std::chrono::milliseconds timeout);
  /// Bytes of a segment, and how many of them are reserved before a message is sent.
  static size_t bytes(int64_t size);
  static size_t reserved_bytes(int64_t size);

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void send(Elements data, int64_t to, int64_t tag);
  void receive(Elements data, int64_t from, int64_t tag);

 private:
  struct Box;
  struct Letter;
  Box& box(int64_t from, int64_t to) const;
  std::byte* slot(int64_t from, int64_t to, uint32_t number) const;
  template <class Ready>
  void await(const Letter& letter, Counter& counter, const Ready& ready) const;
  void check_refusal(const Letter& letter) const;

  Segment segment_;
  int64_t rank_;
  int64_t size_;
  const Rounds& rounds_;
  const GroupFailure& failure_;
  std::atomic<std::chrono::milliseconds> timeout_;
};

}  // namespace levin::comm::shm
