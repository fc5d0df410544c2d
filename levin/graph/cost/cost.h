#pragma once
// What a graph costs: arithmetic, memory traffic and time of each operator on a device, and the
// memory that is alive while it runs. Nothing is run for it.
//
//   const GraphCost cost = cost_of(graph, *find_device("h100"));
//   const MemoryProfile memory = memory_of(graph);

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct NodeCost {
  const Node* node = nullptr;
  double flops = 0.0;    ///< a multiplication and an addition are two
  double bytes = 0.0;    ///< read and written, each tensor once
  double seconds = 0.0;  ///< the longer of both on the device, and its time to start an operator
};

/// The rates that a device reaches at best, from its maker's data sheet; of the CPU, a core's.
struct DeviceDescription {
  std::string name;
  double flops_per_s = 0.0;       ///< float32, by matrix units where there are any
  double half_flops_per_s = 0.0;  ///< bfloat16 and float16
  double bytes_per_s = 0.0;       ///< of its memory
  double memory_bytes = 0.0;
  double operator_s = 0.0;  ///< to start an operator from eager code
};

LEVIN_API const std::vector<DeviceDescription>& known_devices();
LEVIN_API std::optional<DeviceDescription> find_device(std::string_view name);

struct GraphCost {
  std::vector<NodeCost> nodes;  ///< of the operators, in their order
  double flops = 0.0;
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Throws Error "graph.cost" for a graph whose types are not known.
LEVIN_API GraphCost cost_of(const Graph& graph, const DeviceDescription& device);

enum class MemoryUse { kInput, kParameter, kState, kGradient, kValue };

struct LiveValue {
  const Value* value = nullptr;
  MemoryUse use = MemoryUse::kValue;
  int64_t bytes = 0;
};

/// Bytes alive after each node has run, before what it was the last to read goes away. State is
/// there from the first node to the last, and so are inputs that anyone reads. Views lie in what
/// they are views of.
struct MemoryProfile {
  std::vector<int64_t> bytes;  ///< by node, in their order
  int64_t peak_bytes = 0;
  size_t peak_node = 0;
  std::vector<LiveValue> alive_at_peak;  ///< the largest first
};

/// Of what lives across calls, and of the inputs that are read: what memory_of has all the time.
LEVIN_API int64_t state_bytes(const Graph& graph);
/// Throws Error "graph.cost" for a graph whose types are not known.
LEVIN_API MemoryProfile memory_of(const Graph& graph);

}  // namespace levin::graph
