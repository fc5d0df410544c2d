#pragma once
// BatchScheduling: gloo's thread polls without a pause for as long as another thread holds the lock of a connection.
// Woken by that thread's own message, it would interrupt it, lock in hand, and poll for the rest of its time slice: on a
// machine whose cores are all busy that is most of a small step's time. Threads that are started while one of these
// lives interrupt nobody (SCHED_BATCH of sched(7)); a core that is free runs them at once, as before.
//
//   const BatchScheduling guard;
//   device = ProcessGroupGloo::createDefaultDevice();

#include <sched.h>

namespace levin::comm {

class BatchScheduling {
 public:
  /// Changes nothing for a thread to which somebody gave another policy than the usual one.
  BatchScheduling()
      : changed_(::sched_getscheduler(0) == SCHED_OTHER &&
                 ::sched_setscheduler(0, SCHED_BATCH, &kNoPriority) == 0) {}
  ~BatchScheduling() {
    if (changed_) ::sched_setscheduler(0, SCHED_OTHER, &kNoPriority);
  }
  BatchScheduling(const BatchScheduling&) = delete;
  BatchScheduling& operator=(const BatchScheduling&) = delete;

 private:
  static constexpr sched_param kNoPriority = {};
  bool changed_;
};

}  // namespace levin::comm
