#pragma once
// SerialQueue: runs calls one after the other, in the order in which they were given. A call that a
// thread waits for runs in that thread, the others in a thread of the queue's own.
//
//   auto later = queue.start([&] { group.all_reduce(a, kSum); });
//   queue.run([&] { group.barrier(); });     // after it, in this thread
//   later->wait();

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "levin/base/export.h"

namespace levin::comm {

class LEVIN_API SerialQueue {
 public:
  class Call {
   public:
    bool done() const;
    /// Runs what stands before it, and it, if nobody does yet. Throws what it threw.
    void wait();
    std::exception_ptr error() const;

   private:
    friend class SerialQueue;
    SerialQueue* queue = nullptr;
    std::function<void()> body = {};
    bool is_done = false;
    std::exception_ptr thrown = {};
  };

  SerialQueue() = default;
  /// Runs what was started.
  ~SerialQueue();

  std::shared_ptr<Call> start(std::function<void()> body);
  void run(std::function<void()> body);

 private:
  std::shared_ptr<Call> append(std::function<void()> body);
  void finish(const Call& call);
  void run_first(std::unique_lock<std::mutex>& lock);
  void work();

  std::mutex mutex_;
  std::condition_variable work_;  ///< for the thread: something was started
  std::condition_variable done_;
  std::deque<std::shared_ptr<Call>> calls_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace levin::comm
