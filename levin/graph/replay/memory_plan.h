#pragma once
// plan_memory: one piece of memory for everything that a graph keeps for a while.
// Read by replay, which lays its values there, and by the cost model, which asks for the peak.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// Bytes that are needed from one step to another, both among them.
struct MemoryNeed {
  int64_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  ///< offset of each need, a multiple of the alignment
  int64_t bytes = 0;             ///< in all
  int64_t needed = 0;            ///< the most that is needed at one step: bytes can be no less
};

/// A cache line, and what ATen's own allocator gives on the CPU.
inline constexpr int64_t kHostAlignment = 64;
/// CUDA's caching allocator aligns to it. Libraries choose kernels by how operands are aligned, so that a step whose
/// values lie otherwise may be slower, and give other bits.
inline constexpr int64_t kCudaAlignment = 512;

/// Lays the largest first, each at the lowest place that is free while it is needed. Follows
/// "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
/// Inference" (2020). If that leaves gaps, the longest lives first are tried too, and the smallest
/// plan is taken. alignment: of each place, in bytes.
LEVIN_API MemoryPlan plan_memory(const std::vector<MemoryNeed>& needs,
                                 int64_t alignment = kHostAlignment);

}  // namespace levin::graph
