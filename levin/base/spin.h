#pragma once
// Waiting for what comes within microseconds: first by looking again, then by sleeping.
// Sleeping and being woken costs as much as fetching a small batch.

#include <mutex>

namespace levin::detail {

/// Whether ready() came true while it was asked again and again for some ten microseconds.
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
