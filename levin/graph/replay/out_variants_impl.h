#pragma once
// out_variant_of: for an operator, the overload that writes its results into tensors that it is
// given.

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "levin/graph/node.h"
#include "levin/graph/operator_info_impl.h"

namespace levin::graph {

/// Only where the device of the results has a kernel for it: the others compute elsewhere and copy.
/// None for kernels that resize what they are given.
std::optional<c10::OperatorHandle> out_variant_of(const Node& node);

}  // namespace levin::graph
