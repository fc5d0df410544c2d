#pragma once
// interpret: runs a graph operator by operator through ATen, on any device. Slow next to a compiled
// graph, and the oracle that every pass and every compiler is compared with.
//
//   const Interpretation now = interpret(graph, {x});
//   torch::equal(now.outputs[0], net->forward(x));

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

struct Interpretation {
  std::vector<at::Tensor> outputs;  ///< as Graph::outputs()
  std::vector<at::Tensor> updates;  ///< as Graph::updates(); undefined for the random state
};

struct InterpretOptions {
  /// Inputs and state that the graph updates may be written to where their old contents are no
  /// longer needed, and hold their new contents in the end; gradients are set. False: nothing that
  /// was there before is changed.
  bool donate = false;
  /// Is shown what each operator gives, as Node::outputs().
  std::function<void(const Node&, const std::vector<at::Tensor>&)> observe = nullptr;
};

/// Random numbers are drawn from the default generators, in the graph's order. Throws Error
/// "graph.input" for inputs of another number, dtype, device or size than the graph's,
/// "graph.state" for a state tensor that is not bound.
LEVIN_API Interpretation interpret(const Graph& graph, const std::vector<at::Tensor>& inputs,
                                   const InterpretOptions& options = {});

/// Gives all values of the graph the types that they have on these inputs, by interpreting it.
LEVIN_API void propagate_types(Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace levin::graph
