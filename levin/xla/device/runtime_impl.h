#pragma once
// The device's inside: one object of each part. Recording (record/) asks Memo (remember/, with
// shapes/ and compile/), and Devices (run/) run. LibTorch comes in by kernels.cpp and holds Contents;
// step.cpp and reads/ replay recorded steps by way of the same parts.

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "levin/xla/device/record/recording_impl.h"
#include "levin/xla/device/runtime.h"

namespace levin::xla {

/// A recursive mutex that its owner takes again for next to nothing, as each tensor does that is
/// made or dropped.
class OwnedMutex {
 public:
  void lock() {
    if (owner_.load(std::memory_order_relaxed) == this_thread()) {
      ++depth_;
      return;
    }
    mutex_.lock();
    owner_.store(this_thread(), std::memory_order_relaxed);
    depth_ = 1;
  }
  void unlock() {
    if (--depth_ > 0) return;
    owner_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  static const void* this_thread() {
    static thread_local char mark;
    return &mark;
  }

  std::mutex mutex_;
  std::atomic<const void*> owner_ = nullptr;
  int64_t depth_ = 0;  ///< nested locks of the owner
};

struct RuntimeImpl : std::enable_shared_from_this<RuntimeImpl> {
  explicit RuntimeImpl(const RuntimeOptions& options)
      : devices(options, live, report),
        memo(*this, options.cache_dir, devices, report),
        recording(*this, live, devices, memo) {}
  /// The process's; nullptr where none is open.
  static RuntimeImpl* current();
  /// Returns the inside of a runtime that open_runtime() returned.
  static RuntimeImpl& of(Runtime& runtime);

  /// The autograd engine records from a thread of its own.
  mutable OwnedMutex mutex;
  LiveContents live;
  RuntimeReport report;
  Devices devices;
  Memo memo;
  Recording recording;
  std::set<std::string> host_operators;  ///< operators that a warning named
};

/// Replaces arguments by results, as the operator would, from their types alone.
void infer(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
           const std::shared_ptr<RuntimeImpl>& runtime);

}  // namespace levin::xla
