#pragma once
// What a recorded function leaves to others: HeldInputs, whether it keeps what it was given, and
// detach_results.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// Made before the function is called; both lists must last as long.
class LEVIN_API HeldInputs {
 public:
  HeldInputs(const std::vector<at::Tensor>& inputs, const std::vector<std::string_view>& names);

  /// When it has returned. A replay gets other inputs, and leaves what the function kept of these
  /// as it was: an Error "graph.record.kept_input". `values`: what is known to be held; inputs that
  /// they lie in are not looked at.
  void check(const std::vector<at::Tensor>& values) const;

 private:
  const std::vector<at::Tensor>& inputs_;
  const std::vector<std::string_view>& names_;
  std::vector<size_t> holders_;
};

/// What autograd holds for the results of a recorded function is of no use: a replay's know nothing
/// of it. And one that somebody else has too is from here on another tensor. Inputs and parameters
/// stay what they are.
LEVIN_API void detach_results(std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& inputs);

}  // namespace levin::graph
