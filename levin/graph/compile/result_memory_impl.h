#pragma once
// The memory of a recorded function's results: their own, an input's, that of a tensor that lives
// across calls, or an earlier result's.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::graph {

struct ResultMemory {
  enum class Of { kOwn, kInput, kState, kResult };
  Of of = Of::kOwn;
  size_t number = 0;  ///< number of the input or the result
  at::Tensor state = {};
  bool is_whole = false;  ///< the full tensor, unchanged
  at::DimVector sizes = {}, strides = {};
  int64_t offset = 0;  ///< from where that one begins
};

/// Sets `reason` where a replay could not do the same.
std::vector<ResultMemory> memory_of(const std::vector<at::Tensor>& results,
                                    const std::vector<at::Tensor>& inputs, const Graph& graph,
                                    std::string& reason);

/// Puts the results of a replay where the function's lay.
void place_results(const std::vector<ResultMemory>& memory, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor>& results);

}  // namespace levin::graph
