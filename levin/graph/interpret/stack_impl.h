#pragma once
// The arguments of a node as its operator takes them, and what the operator leaves.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"

namespace levin::graph {

/// tensor_of is asked for each value, in the order of the arguments, with the argument's number.
torch::jit::Stack stack_of(const Node& node,
                           const std::function<at::Tensor(size_t, const Value&)>& tensor_of);

/// The tensors that an operator gave, lists taken apart; undefined ones for what is no tensor.
void append_results(const OperatorInfo& info, const torch::jit::Stack& stack,
                    std::vector<at::Tensor>& results);

}  // namespace levin::graph
