#pragma once
// The search of rematerialize: it chooses the nodes to run again so that a graph fits a budget.

#include <cstdint>
#include <vector>

#include "levin/graph/cost/schedule_impl.h"

namespace levin::graph {

struct FittedSchedule {
  Schedule schedule;
  int64_t peak_bytes = 0;  ///< the least that was found, if that is above the budget
};

/// flops: by node, to run it.
FittedSchedule fit_schedule(const std::vector<IndexedNode>& nodes, const std::vector<double>& flops,
                            int64_t budget_bytes);

}  // namespace levin::graph
