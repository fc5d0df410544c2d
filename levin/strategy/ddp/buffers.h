#pragma once
// Buffers: a module's buffers (batch norm's statistics), the same on all ranks after each step.

#include <ATen/core/Tensor.h>

#include <vector>

#include "levin/comm/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::ddp {

class Buffers {
 public:
  explicit Buffers(const torch::nn::Module& module);

  /// Those that some rank has written to since go to all from rank 0. All ranks call it.
  void synchronize(comm::ProcessGroup& group);

 private:
  bool is_written(size_t i) const;
  void note_values();

  std::vector<at::Tensor> buffers_;
  /// As they were last agreed on. Version counters do not tell: batch norm writes past them.
  std::vector<at::Tensor> values_;
};

}  // namespace levin::ddp
