#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <map>
#include <vector>

#include "levin/graph/replay/device_graphs_impl.h"

namespace levin::graph {
namespace {

/// The stream on which this thread warms up and captures all graphs of a device. The default stream cannot be
/// captured, and cuBLAS keeps a workspace of tens of megabytes for each stream that it has met.
c10::Stream capture_stream(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, c10::Stream> streams;
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  const c10::Stream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  return streams.emplace(device, stream).first->second;
}

template <class Action>
bool succeeds(const Action& action) {
  try {
    action();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

class CudaGraphs final : public DeviceGraphs {
 public:
  explicit CudaGraphs(c10::Device device)
      : device_(device),
        stream_(capture_stream(device.index())),
        pool_(at::cuda::graph_pool_handle()) {}

  c10::Device device() const override { return device_; }

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
    // The graphs' pool takes none of what the allocator has kept of the calls before.
    if (graphs_.empty()) c10::cuda::CUDACachingAllocator::emptyCache();
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    warm_up([&] {
      try {
        // Other threads may go on: a loader's, which pins memory.
        graph->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
        run();
        graph->capture_end();
      } catch (...) {
        end_broken(*graph);
        throw;
      }
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

  /// So that the process can go on; the error is that of what was captured. Where the capture is
  /// invalid, CUDAGraph::capture_end stops half-way: the allocators would go on asking a graph that
  /// is gone which memory is its, and the random generator would refuse to draw.
  void end_broken(at::cuda::CUDAGraph& graph) {
    if (succeeds([&] { graph.capture_end(); })) return;
    const auto device = device_.index();
    auto& pinned = *at::getHostAllocator(at::kCUDA);
    if (succeeds([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_); })) {
      succeeds([&] { c10::cuda::CUDACachingAllocator::releasePool(device, pool_); });
    }
    if (succeeds([&] { pinned.end_allocate_to_pool(pool_); })) {
      succeeds([&] { pinned.release_pool(pool_); });
    }
    // Another capture cannot take a pool that no graph uses.
    if (graphs_.empty()) pool_ = at::cuda::graph_pool_handle();
    // The generator learns that nothing is captured any more when a capture has ended well.
    succeeds([&] {
      at::cuda::CUDAGraph whole;
      whole.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      const at::Tensor written = at::zeros({1}, at::TensorOptions().device(device_));
      whole.capture_end();
    });
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
