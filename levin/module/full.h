#pragma once
// full: the whole of what a strategy has divided over ranks, for code between steps that looks at all
// of a model's values or changes them.
//
//   State weights = levin::full(*net);                 // as module_state of a model that is not divided
//   {
//     const levin::WholeScope whole(*net, {.write_back = true});
//     net->fc->weight.mul_(0.5);                       // every rank does the same
//   }
//
// Follows PyTorch's FullyShardedDataParallel.summon_full_params. All ranks call these.

#include <ATen/core/Tensor.h>

#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/parameters.h"

namespace levin {

/// A copy of the whole; of a tensor that is whole, a copy of that.
LEVIN_API at::Tensor full(const at::Tensor& parameter);
/// Parameters and buffers by name, whole: module_state, of copies where they are divided.
LEVIN_API State full(const torch::nn::Module& module);

struct WholeOptions {
  /// At the end each rank takes its rows of what is then in the parameter; false: as they were.
  bool write_back = false;
};

/// Parameters that are divided are whole, in memory of their own, for the time of the object, and
/// have no gradients. Not within a forward pass.
class LEVIN_API WholeScope {
 public:
  explicit WholeScope(torch::nn::Module& module, const WholeOptions& options = {});
  ~WholeScope();
  WholeScope(const WholeScope&) = delete;
  WholeScope& operator=(const WholeScope&) = delete;

 private:
  struct Divided {
    at::Tensor parameter;
    at::Tensor before;
    at::Tensor gradient;
    at::Tensor whole;
  };
  WholeOptions options_;
  std::vector<Divided> divided_;
};

}  // namespace levin
