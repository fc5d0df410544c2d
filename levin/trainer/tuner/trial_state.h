#pragma once
// TrialState: what a Tuner's fit changes of a module, so that it can be put back.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "levin/base/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {
class Module;
}  // namespace levin

namespace levin::detail {

/// Values of parameters and buffers (of a sharded parameter, those of this rank), which parameters
/// are frozen, which parts are in evaluation mode, and what on_save_checkpoint adds. The values lie
/// in the memory of the host, so that a search on a GPU has the memory that a fit has.
class TrialState {
 public:
  void note(Module& module);
  /// Does nothing before note(), and the second time.
  void restore(Module& module);

 private:
  struct Value {
    at::Tensor tensor;  ///< the module's
    at::Tensor copy;
    bool requires_grad = false;
  };
  bool is_noted_ = false;
  std::vector<Value> values_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
  at::Tensor user_;  ///< state of the module's own, as bytes; undefined: there is none
};

}  // namespace levin::detail
