// Replaces cuda_graphs.cpp if LibTorch has no CUDA, or its headers were not found.
#include "levin/graph/replay/device_graphs_impl.h"

namespace levin::graph {

std::unique_ptr<DeviceGraphs> make_cuda_graphs(c10::Device) { return nullptr; }

}  // namespace levin::graph
