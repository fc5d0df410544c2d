#pragma once
// The obligations of a recorded function: HeldInputs finds inputs that it keeps, detach_results
// detaches its results.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// Made before the function is called; both lists must last as long.
class LEVIN_API HeldInputs {
 public:
  HeldInputs(const std::vector<at::Tensor>& inputs, const std::vector<std::string_view>& names);

  /// Call it when the function has returned. Throws Error "graph.record.kept_input" where the
  /// function still holds an input, which a replay could not update. `values`: tensors that are
  /// known to be held; inputs that share memory with them are not checked.
  void check(const std::vector<at::Tensor>& values) const;

 private:
  const std::vector<at::Tensor>& inputs_;
  const std::vector<std::string_view>& names_;
  std::vector<size_t> holders_;
};

/// Detaches the results of a recorded function from autograd, as a replay's results are. A result
/// that is held elsewhere too becomes a tensor of its own. Inputs and parameters stay unchanged.
LEVIN_API void detach_results(std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& inputs);

}  // namespace levin::graph
