#pragma once
// WindowMean: the means that a step of the optimizer is taken on: over all batches of its window and all ranks,
// each weighing as many labels as it counts. On the values' device; the host reads nothing. Not for users.
//
//   window.add({{"train_loss", step.loss}}, step.count);    // each batch
//   for (const auto& [name, value] : window.take(group)) log(name, value);   // when the step is taken

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::models {

class WindowMean {
 public:
  using Values = std::vector<std::pair<std::string, at::Tensor>>;

  /// Scalars that are means of so many; the same names in each batch.
  void add(const Values& values, const at::Tensor& count);
  /// Returns the means of the values added since the last call, over all ranks of the group. All of
  /// them call it.
  Values take(const comm::ProcessGroup& group);

 private:
  std::vector<std::string> names_;
  at::Tensor means_;  // float32 [values]
  at::Tensor count_;  // float32 scalar
};

}  // namespace levin::models
