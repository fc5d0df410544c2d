#include "levin/comm/shm/rounds.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <new>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/spin.h"
#include "levin/comm/shm/counter.h"

namespace levin::comm::shm {
namespace {

constexpr size_t kCacheLine = 64;
constexpr uint32_t kLeft = 1;
constexpr uint32_t kDied = 2;

// Returns the core, counted from 1: the lines begin as zeros.
uint32_t own_core() { return static_cast<uint32_t>(::sched_getcpu() + 1); }

}  // namespace

/// One rank's. Only that rank writes to it, but for `gone`.
struct alignas(kCacheLine) Rounds::Line {
  Counter arrived;  ///< the last round that it finished writing
  Word gone;        ///< 0, kLeft or kDied
  Word core;        ///< core on which it ran when it arrived, from 1 on
  alignas(kCacheLine) Announcement announced[2];  ///< by the parity of a collective's first round
};

size_t Rounds::bytes(int64_t size) { return static_cast<size_t>(size) * sizeof(Line); }

Rounds::Rounds(std::byte* memory, int64_t rank, int64_t size, std::chrono::milliseconds timeout)
    : memory_(memory), rank_(rank), size_(size), timeout_(timeout) {}

Rounds::Line& Rounds::line(int64_t rank) const {
  return *std::launder(reinterpret_cast<Line*>(memory_) + rank);
}

void Rounds::begin(const Announcement& announcement) {
  ++number_;
  opening_ = true;
  current_ = parity();
  line(rank_).announced[current_] = announcement;
}

const Announcement& Rounds::announced(int64_t rank) const { return line(rank).announced[current_]; }

void Rounds::arrive() {
  Line& mine = line(rank_);
  mine.core.store(own_core(), std::memory_order_relaxed);
  mine.arrived.set(round_);
}

bool Rounds::arrived(int64_t rank) const {
  // The counters wrap around; ranks are never more than a round apart.
  const uint32_t at = line(rank).arrived.get();
  return static_cast<int32_t>(at - round_) >= 0;
}

void Rounds::await() {
  levin::detail::AwakeTime waited;
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || arrived(rank) || arrives_soon(rank)) continue;
    await_rank(rank, waited);
  }
  if (opening_) compare();
  opening_ = false;
  ++round_;
}

// A rank that is to run on this core can only come once it is free.
bool Rounds::arrives_soon(int64_t rank) const {
  return line(rank).core.load(std::memory_order_relaxed) != own_core() &&
         levin::detail::spin_for([&] { return arrived(rank); }, levin::detail::kWakeTime);
}

void Rounds::await_rank(int64_t rank, levin::detail::AwakeTime& waited) {
  Line& theirs = line(rank);
  while (!arrived(rank)) {
    check_present(rank);
    const auto left = timeout_ - waited.look();
    if (left.count() <= 0) fail_by_timeout();
    theirs.arrived.doze([&] { return arrived(rank); },
                        std::min<std::chrono::nanoseconds>(left, kNap));
  }
}

void Rounds::compare() const {
  const Announcement& mine = announced(rank_);
  for (int64_t rank = 0; rank < size_; ++rank) {
    check_same(mine, rank_, announced(rank), rank, number_);
  }
}

// A rank that is gone without this round being complete has failed, also when it had arrived. One
// that died is the cause of the others' leaving.
void Rounds::check_present(int64_t awaited) const {
  for (const uint32_t how : {kDied, kLeft}) {
    for (int64_t rank = 0; rank < size_; ++rank) {
      if (line(rank).gone.load() != how || arrived(awaited)) continue;
      LEVIN_FAIL("comm.peer",
                 "rank {} {} while this rank was in {}, collective {}; look at its output", rank,
                 how == kDied ? "died" : "left the group", announced(rank_).text(), number_);
    }
  }
}

void Rounds::fail_by_timeout() const {
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (!arrived(rank)) missing.push_back(rank);
  }
  LEVIN_FAIL("comm.timeout",
             "waited {} s in {}, collective {}, but rank {} did not call it; check what that rank "
             "is doing, or raise the timeout",
             std::chrono::duration<double>(timeout_).count(), announced(rank_).text(), number_,
             fmt::join(missing, ", "));
}

void Rounds::mark_gone(int64_t rank) {
  Line& theirs = line(rank);
  uint32_t present = 0;
  theirs.gone.compare_exchange_strong(present, kDied);
  theirs.arrived.wake();
}

void Rounds::leave() {
  Line& mine = line(rank_);
  uint32_t present = 0;
  mine.gone.compare_exchange_strong(present, kLeft);
  mine.arrived.wake();
}

std::string_view Rounds::gone(int64_t rank) const {
  const uint32_t how = line(rank).gone.load();
  return how == 0 ? "" : how == kDied ? "died" : "left the group";
}

}  // namespace levin::comm::shm
