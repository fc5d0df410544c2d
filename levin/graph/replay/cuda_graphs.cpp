#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <vector>

#include "levin/graph/replay/device_graphs_impl.h"

namespace levin::graph {
namespace {

class CudaGraphs final : public DeviceGraphs {
 public:
  explicit CudaGraphs(c10::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
        pool_(at::cuda::graph_pool_handle()) {}

  c10::Device device() const override { return device_; }

  // The default stream cannot be captured.
  void warm_up(const Run& run) override {
    const c10::Stream before = c10::cuda::getCurrentCUDAStream(device_.index());
    wait(stream_, before);
    {
      const c10::StreamGuard guard(stream_);
      run();
    }
    wait(before, stream_);
  }

  size_t capture(const Run& run) override {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    warm_up([&] {
      // Other threads may go on: a loader's, which pins memory.
      graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      try {
        run();
      } catch (...) {
        end_broken(*graph);
        throw;
      }
      graph->capture_end();
    });
    graphs_.push_back(std::move(graph));
    return graphs_.size() - 1;
  }

  void launch(size_t number) override { graphs_[number]->replay(); }

 private:
  static void wait(const c10::Stream& waiting, const c10::Stream& other) {
    c10::Event event(c10::DeviceType::CUDA);
    event.record(other);
    event.block(waiting);
  }
  /// So that the stream can be used again; the error is that of what was captured.
  static void end_broken(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch)
    }
  }

  c10::Device device_;
  c10::Stream stream_;
  decltype(at::cuda::graph_pool_handle()) pool_;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs_;
};

}  // namespace

std::unique_ptr<DeviceGraphs> make_cuda_graphs(c10::Device device) {
  return std::make_unique<CudaGraphs>(device);
}

}  // namespace levin::graph
