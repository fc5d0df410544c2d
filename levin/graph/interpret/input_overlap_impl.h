#pragma once
// InputOverlap: finds inputs of a replay that share memory with one another or with state. Graphs of a device work on
// copies of the inputs, where a write through one tensor is not seen through another.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::graph {

class InputOverlap {
 public:
  explicit InputOverlap(const Graph& graph);

  /// Returns which two of them share memory, if the graph writes to either; empty text if none do.
  std::string in(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Input {
    std::string name;
    bool is_updated = false;
  };
  struct StateTensor {
    std::string name;
    at::Tensor tensor;
    bool is_updated = false;
  };
  std::vector<Input> inputs_;
  std::vector<StateTensor> states_;
};

}  // namespace levin::graph
