#pragma once
// DeviceGraphs: work of a device that is recorded once and started again as one, without a launch
// for each kernel. On CUDA these are CUDA graphs; a Replay runs in them what it can.
//
//   auto graphs = make_cuda_graphs(device);
//   graphs->warm_up(run);
//   const size_t number = graphs->capture(run);
//   graphs->launch(number);

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "levin/base/export.h"

namespace levin::graph {

class LEVIN_API DeviceGraphs {
 public:
  using Run = std::function<void()>;

  virtual ~DeviceGraphs() = default;
  virtual c10::Device device() const = 0;
  /// Runs it where captures will be: what libraries set up in their first calls is there then.
  virtual void warm_up(const Run& run) = 0;
  /// Captures the work that run starts on the device instead of doing it. Returns the graph's
  /// number. Memory allocated meanwhile stays in place. Throws the exceptions of run.
  virtual size_t capture(const Run& run) = 0;
  /// Launches a graph; graphs must be launched in the order in which they were captured.
  virtual void launch(size_t number) = 0;
};

/// nullptr in a build without CUDA.
std::unique_ptr<DeviceGraphs> make_cuda_graphs(c10::Device device);

}  // namespace levin::graph
