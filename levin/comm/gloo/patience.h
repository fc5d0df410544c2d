#pragma once
// Patience: waits for gloo's messages no longer than a time in which this process ran. gloo itself
// goes by the clock on the wall, on which the peers of a machine that slept are late.
//
//   const auto until = patience.after(timeout);
//   if (!patience.wait(*work, until)) fail();

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

namespace levin::comm {

class Patience {
 public:
  Patience();
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// A point of the time that this process ran: so much from now, and up to two looks later.
  std::chrono::nanoseconds after(std::chrono::milliseconds time) const {
    return awake_.load() + kLook + time;
  }
  /// For what Backend::send and recv of gloo's give. False: it was given up then. Throws what the
  /// work throws.
  bool wait(c10d::Work& work, std::chrono::nanoseconds until);

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  struct Waiting {
    c10d::Work* work;
    std::chrono::nanoseconds until;
  };

  void look();

  std::atomic<std::chrono::nanoseconds> awake_ = std::chrono::nanoseconds(0);
  std::mutex mutex_;
  std::condition_variable end_;
  bool is_ending_ = false;
  std::list<Waiting> waiting_;
  std::thread thread_;
};

}  // namespace levin::comm
