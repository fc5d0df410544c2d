#pragma once
// Waiting for what comes within microseconds: first by looking again, then by sleeping.
// Sleeping and being woken costs as much as fetching a small batch.

#include <chrono>
#include <mutex>

namespace levin::detail {

/// Asks ready() again and again for some ten microseconds; returns whether it came true.
template <class Ready>
bool spin_until(const Ready& ready) {
  for (int i = 0; i < 400; ++i) {
    if (ready()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  return false;
}

/// The time to sleep and be woken on a virtual machine. A thread that spins for this long before it
/// sleeps waits at most twice as long as needed.
constexpr std::chrono::microseconds kWakeTime(100);

/// Does spin_until for longer.
template <class Ready>
bool spin_for(const Ready& ready, std::chrono::microseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  do {
    if (spin_until(ready)) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// A mutex that is held for less time than sleeping takes.
class SpinningMutex {
 public:
  void lock() {
    if (!spin_until([&] { return mutex_.try_lock(); })) mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace levin::detail
