#pragma once
// Parameters and buffers of a torch::nn::Module by name, and loading and saving them as a State.
//
//   levin::State weights = levin::module_state(*net);
//   levin::load_module_state(*other, weights, {.allow_missing = {"head.*"}});

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

/// A tensor and its name.
struct NamedTensor {
  std::string name;   ///< name as in named_parameters(): "net.1.weight"
  at::Tensor tensor;  ///< the tensor
};

/// Returns the parameters in the order of registration. A parameter shared by two modules appears
/// once, under its first name.
LEVIN_API std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);

/// Returns parameters and buffers, detached, each storage once: a tensor that is the same as an
/// earlier one (tied weights) is left out, as safetensors requires. A sharded parameter
/// (shard/sharded_tensor.h) is represented by this rank's shard, as a TensorSlice.
LEVIN_API State module_state(const torch::nn::Module& module);
/// Same as module_state(), without the frozen parameters of a base model (base.h), which are stored
/// in the base model's files.
LEVIN_API State trained_state(const torch::nn::Module& module);

/// Returns the names of tied weights that module_state() leaves out, each with the name under which
/// module_state() has the tensor.
LEVIN_API std::map<std::string, std::string> tied_names(const torch::nn::Module& module);
/// Returns the state with tied weights under all of their names, sharing memory, as in Python's
/// state_dict(). The given state needs one name of each, no matter which.
LEVIN_API State with_tied_names(State state, const std::map<std::string, std::string>& tied);

/// Options of load_module_state().
struct LoadOptions {
  /// Throw on missing and unexpected names; false skips them, with a warning that lists them.
  bool strict = true;
  /// Patterns of names of the module that the weights may lack ("head.*"); these tensors keep their
  /// values. A pattern that matches no name of the module is Error "module.state.pattern", since it
  /// can never allow anything.
  std::vector<std::string> allow_missing = {};
  /// Patterns of names of the weights that the module may lack. A pattern that matches no name of
  /// the weights is a warning, since one program reads files with and without them.
  std::vector<std::string> allow_unexpected = {};
};

/// Copies a state into the module's tensors, in place. Tensors of the state are full, or contain at
/// least this rank's shard. Frozen parameters of a base model may be missing. Tied weights need one
/// of their names; if several are given, the last one's values are used. A tensor of another dtype
/// is cast to the module's, and one warning says how many tensors and which dtypes. Patterns are
/// those of matches() (optimizer_config.h). Throws, before anything is changed, Error
/// "module.state.missing", "module.state.unexpected", "module.state.shape", "module.state.meta"
/// (the module is on the meta device) or "module.state.pattern", each with the names concerned.
LEVIN_API void load_module_state(torch::nn::Module& module, const State& state,
                                 const LoadOptions& options = {});

// full: full parameters of a sharded model, for code between steps that reads or changes them.
//
//   State weights = levin::full(*net);  // as module_state of a model that is not sharded
//   {
//     const levin::WholeScope whole(*net, {.write_back = true});
//     net->fc->weight.mul_(0.5);                       // every rank does the same
//   }
//
// Follows PyTorch's FullyShardedDataParallel.summon_full_params. All ranks call these functions.

/// Returns a copy of the full parameter, all-gathered if it is sharded.
LEVIN_API at::Tensor full(const at::Tensor& parameter);
/// Returns the full parameters and buffers by name: the same as module_state(), with gathered
/// copies of sharded parameters.
LEVIN_API State full(const torch::nn::Module& module);

/// Options of WholeScope.
struct WholeOptions {
  /// At the end, each rank copies its shard of the changed values back; false: changes are dropped.
  bool write_back = false;
};

/// Scope guard: sharded parameters are full, in memory of their own and without gradients, for the
/// lifetime of the object. It must not be used within a forward pass.
class LEVIN_API WholeScope {
 public:
  /// Gathers the sharded parameters of the module.
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
