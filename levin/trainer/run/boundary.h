#pragma once
// Boundary: how a run stood between two steps, so that a step that throws can be undone and the run
// saved as it was before it.
// Noted by the training loop before each accumulation window; parameters and optimizers need no copy,
// since a step that throws has not changed them yet.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/accelerator/engine/engine.h"
#include "levin/data/loader.h"
#include "levin/observe/logger.h"
#include "levin/trainer/run/progress.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::detail {

/// The buffers of a module. Small ones on the CPU are copied each time: batch norm's kernels change
/// theirs without raising the version, and take longer than that.
class BufferPlaces {
 public:
  explicit BufferPlaces(const torch::nn::Module& module);
  void note();
  void go_back();
  /// Returns the buffers that are too large to be copied, or on another device.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  struct Buffer {
    at::Tensor tensor;
    std::vector<std::byte> bytes;
  };
  std::vector<Buffer> buffers_;
  std::vector<std::string> left_out_;
};

class Boundary {
 public:
  Boundary(const torch::nn::Module& module, DataLoader loader, LoggedValues& values,
           Engine& engine);

  /// Between two steps, after so many updates of parameters.
  void note(const Progress& progress, int64_t updates);
  /// False, and nothing changed, where parameters have been updated since, or the loader cannot go
  /// back.
  bool go_back(Progress& progress, int64_t updates);

 private:
  DataLoader loader_;
  LoggedValues& values_;
  Stepping& stepping_;
  BufferPlaces buffers_;
  Progress progress_;
  std::optional<StepState> step_;
  int64_t updates_ = -1;
};

}  // namespace levin::detail
