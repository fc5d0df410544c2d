#pragma once
// Communicators: the backends that a run's groups have for GPUs, and how they end.
//
//   communicators.add(backend);
//   communicators.abort();                    // a rank is gone
//   communicators.end(backend, /*well=*/true);

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <mutex>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

/// One for all groups of a run. For all threads.
class LEVIN_API Communicators {
 public:
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  /// patience: the longest time to end a communicator. The ranks of a host end theirs together, and
  /// a rank that has failed does not come; a communicator that hangs is then left to the end of the
  /// process.
  explicit Communicators(std::chrono::milliseconds patience = std::chrono::minutes(1))
      : patience_(patience) {}

  void add(const Backend& backend);
  /// Ends all of them now. A collective whose peer is gone would else run on the GPU for ever, and
  /// whoever reads a tensor of that GPU, to save a checkpoint for one, would wait for it.
  void abort() noexcept;
  /// Ends the backend of a group that is let go of. well: with the other ranks, when all that was started is done;
  /// else this rank alone, at once. Nothing where abort() was called.
  void end(const Backend& backend, bool well) noexcept;

 private:
  void in_time(const Backend& backend, void (*action)(c10d::Backend& backend)) const;

  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::vector<Backend> backends_;
  bool is_aborted_ = false;
};

}  // namespace levin::comm
