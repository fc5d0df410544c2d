#include "levin/comm/shm/rounds.h"

#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <new>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/spin.h"

namespace levin::comm::shm {
namespace {

constexpr size_t kCacheLine = 64;
constexpr uint32_t kLeft = 1;
constexpr uint32_t kDied = 2;
// A rank that goes just before one falls asleep wakes nobody: look again from time to time.
constexpr std::chrono::milliseconds kNap(100);

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(uint32_t));

void sleep_while(Word& word, uint32_t value, std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time = {seconds.count(), (longest - seconds).count()};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(Word& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

}  // namespace

/// One rank's. Only that rank writes to it, but for `sleepers` and `gone`.
struct alignas(kCacheLine) Rounds::Line {
  Word arrived;                                   ///< the last round that it finished writing
  Word sleepers;                                  ///< ranks that sleep until `arrived` changes
  Word gone;                                      ///< 0, kLeft or kDied
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
  mine.arrived.store(round_);  // in one order with `sleepers`: who goes to sleep sees it or is seen
  if (mine.sleepers.load() > 0) wake_all(mine.arrived);
}

bool Rounds::arrived(int64_t rank) const {
  // The counters wrap around; ranks are never more than a round apart.
  const uint32_t at = line(rank).arrived.load(std::memory_order_acquire);
  return static_cast<int32_t>(at - round_) >= 0;
}

void Rounds::await() {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || levin::detail::spin_until([&] { return arrived(rank); })) continue;
    await_rank(rank, deadline);
  }
  if (opening_) compare();
  opening_ = false;
  ++round_;
}

void Rounds::await_rank(int64_t rank, std::chrono::steady_clock::time_point deadline) {
  Line& theirs = line(rank);
  while (!arrived(rank)) {
    check_present(rank);
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) fail_by_timeout();
    theirs.sleepers.fetch_add(1);
    const uint32_t seen = theirs.arrived.load();
    if (!arrived(rank)) {
      sleep_while(theirs.arrived, seen, std::min<std::chrono::nanoseconds>(left, kNap));
    }
    theirs.sleepers.fetch_sub(1);
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
             "waited {} s in {}, collective {}, for rank {}, which did not come; "
             "see where it is, or raise the timeout",
             std::chrono::duration<double>(timeout_).count(), announced(rank_).text(), number_,
             fmt::join(missing, ", "));
}

void Rounds::mark_gone(int64_t rank) {
  Line& theirs = line(rank);
  uint32_t present = 0;
  theirs.gone.compare_exchange_strong(present, kDied);
  wake_all(theirs.arrived);
}

void Rounds::leave() {
  Line& mine = line(rank_);
  uint32_t present = 0;
  mine.gone.compare_exchange_strong(present, kLeft);
  wake_all(mine.arrived);
}

}  // namespace levin::comm::shm
