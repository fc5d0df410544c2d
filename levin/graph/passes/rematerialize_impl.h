#pragma once
// The search of rematerialize: it chooses the nodes to run again so that a graph fits a budget.

#include <cstdint>
#include <vector>

#include "levin/graph/cost/schedule_impl.h"

namespace levin::graph {

struct FittedSchedule {
  Schedule schedule;
  Cuts cuts;               ///< that it follows
  int64_t peak_bytes = 0;  ///< the least that was found, if that is above the budget
};

/// prices: by node, to run it once more: FLOPs, or as many as the device does in that time.
FittedSchedule fit_schedule(const std::vector<IndexedNode>& nodes,
                            const std::vector<double>& prices, int64_t budget_bytes);

}  // namespace levin::graph
