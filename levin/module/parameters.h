#pragma once
// Parameters and buffers of a torch::nn::Module by name, and their state as a checkpoint holds it.
// Stands between the module and whoever keeps its parameters: strategy, optimizer, checkpoint.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

struct NamedTensor {
  std::string name;  ///< with the dots of named_parameters(): "net.1.weight"
  at::Tensor tensor;
};

/// In the order of registration; a parameter shared by two modules comes once, under its first
/// name.
LEVIN_API std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);

/// Parameters and buffers, detached, each storage once: a tensor that is the same as an earlier one
/// (tied weights) is left out, as safetensors wants it. Of a parameter that is divided over ranks
/// (shard/leaf.h) this rank's part, as TensorSlice.
LEVIN_API State module_state(const torch::nn::Module& module);
/// The same without the frozen parameters of a base (base.h), which stand in its files.
LEVIN_API State trained_state(const torch::nn::Module& module);

/// Tied weights have several names: each but the first, with the first one, under which module_state has them.
LEVIN_API std::map<std::string, std::string> tied_names(const torch::nn::Module& module);
/// The state with tied weights under all of their names, which share their memory, as in Python's state_dict().
/// One name of each is enough, whichever it is.
LEVIN_API State with_tied_names(State state, const std::map<std::string, std::string>& tied);

struct LoadOptions {
  bool strict =
      true;  ///< false passes over missing and unexpected names, with a warning that lists them
  /// Names of the module that the weights may lack ("head.*"): those tensors keep their values. A pattern that
  /// matches no name of the module is Error "module.state.pattern", since it can never allow anything.
  std::vector<std::string> allow_missing = {};
  /// Names of the weights that the module may lack. A pattern that matches no name of the weights is a
  /// warning, since one program reads files with and without them.
  std::vector<std::string> allow_unexpected = {};
};

/// Copies into the module's tensors, in place. The state's are whole, or of each at least the part
/// that the module has; those of a frozen base may be missing. Of a tied weight one name is enough, whichever it
/// is; of several the last one's values count. A tensor of another dtype is cast to the module's, and one warning
/// says how many, from what and which. Patterns are those of matches() (optimizer_config.h). Throws Error
/// "module.state.missing", "module.state.unexpected", "module.state.shape", "module.state.meta" (the module has no
/// memory yet) or "module.state.pattern", each listing the names concerned, before anything was changed.
LEVIN_API void load_module_state(torch::nn::Module& module, const State& state,
                                 const LoadOptions& options = {});

// full: the whole of what a strategy has divided over ranks, for code between steps that looks at
// all of a model's values or changes them.
//
//   State weights = levin::full(*net);  // as module_state of a model that is not sharded
//   {
//     const levin::WholeScope whole(*net, {.write_back = true});
//     net->fc->weight.mul_(0.5);                       // every rank does the same
//   }
//
// Follows PyTorch's FullyShardedDataParallel.summon_full_params. All ranks call these.

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
