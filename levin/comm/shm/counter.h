#pragma once
// Counter: a number in memory that processes share, which one of them raises and others wait for.
//
//   counter.set(3);                                            // wakes who sleeps
//   counter.doze([&] { return counter.get() == 3; }, 100ms);   // returns when it may have changed

#include <atomic>
#include <chrono>
#include <cstdint>

namespace levin::comm::shm {

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(uint32_t));

// A rank that goes just before one falls asleep wakes nobody: look again from time to time.
constexpr std::chrono::milliseconds kNap(100);

/// Valid as zeros.
class Counter {
 public:
  uint32_t get() const { return value_.load(std::memory_order_acquire); }
  void set(uint32_t value);
  void wake();
  /// Sleeps for at most so long, and not at all when ready() is true.
  template <class Ready>
  void doze(const Ready& ready, std::chrono::nanoseconds longest) {
    sleepers_.fetch_add(1);
    const uint32_t seen = value_.load();
    if (!ready()) sleep_while(seen, longest);
    sleepers_.fetch_sub(1);
  }

 private:
  void sleep_while(uint32_t value, std::chrono::nanoseconds longest);

  Word value_;
  Word sleepers_;
};

}  // namespace levin::comm::shm
