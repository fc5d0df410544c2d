#pragma once
// OutVariants: for an operator, the overload that writes its results into tensors that it is given.

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "levin/graph/operator_info_impl.h"

namespace levin::graph {

class OutVariants {
 public:
  OutVariants();

  /// Only where the device has a kernel for it: the others compute elsewhere and copy. None for
  /// kernels that resize what they are given.
  std::optional<c10::OperatorHandle> find(const OperatorInfo& info, c10::DispatchKey key) const;

 private:
  std::unordered_map<std::string, std::vector<c10::OperatorName>> overloads_;
};

}  // namespace levin::graph
