#pragma once
// Rounds: how the ranks of one machine keep step in shared memory. In a round each rank says that
// its part is written and waits for all others to say it. Every shm collective is a number of
// rounds.
//
//   rounds.begin({.name = "all_reduce", ...});   // what all must be about to do
//   write(staging + rounds.parity() * bytes); rounds.arrive(); rounds.await(); read(...);
//
// A rank's data of a round stays readable until it writes in the second round from there. It cannot
// reach that before all others have left the first, so two buffers, taken in turn, are enough.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "levin/base/awake.h"
#include "levin/comm/collectives/announcement.h"

namespace levin::comm::shm {

class Rounds {
 public:
  /// memory: shared by all ranks, and zero at first.
  Rounds(std::byte* memory, int64_t rank, int64_t size, std::chrono::milliseconds timeout);
  static size_t bytes(int64_t size);

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Opens a collective; what was announced is compared in its first await.
  void begin(const Announcement& announcement);
  /// 0 or 1 in turn: which of two buffers this round writes to.
  size_t parity() const { return round_ & 1; }
  /// Says that this rank has written its part of this round.
  void arrive();
  /// Returns when all have arrived; the next round is this rank's then. Time in which this process
  /// was stopped is not waited. Throws "comm.timeout" with
  /// the ranks that never came, "comm.peer" when one is gone, "comm.mismatch" when one announced
  /// something else.
  void await();

  /// Notes that the rank's process ended, or that it left the group, and wakes waiting ranks. Any
  /// thread may call it.
  void mark_gone(int64_t rank);
  /// This rank takes part in no more rounds.
  void leave();

  /// "died" or "left the group"; "" while it is there. For any thread.
  std::string_view gone(int64_t rank) const;

  /// Returns the announcement of a rank for this collective; valid after this rank's first await,
  /// until its second arrive.
  const Announcement& announced(int64_t rank) const;

 private:
  struct Line;
  Line& line(int64_t rank) const;
  bool arrived(int64_t rank) const;
  bool arrives_soon(int64_t rank) const;
  void await_rank(int64_t rank, levin::detail::AwakeTime& waited);
  void compare() const;
  [[noreturn]] void fail_by_timeout() const;
  void check_present(int64_t awaited) const;

  std::byte* memory_;
  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  uint32_t round_ = 1;  ///< the one that this rank is in
  int64_t number_ = 0;  ///< collectives begun
  bool opening_ = false;
  size_t current_ = 0;  ///< index in `announced` for this collective
};

}  // namespace levin::comm::shm
