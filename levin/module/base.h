#pragma once
// Base: parameters that exist in files already and stay unchanged while others are trained.
// Checkpoints name their base instead of holding it, and ranks that opened the same files keep
// their own.
//
//   mark_base(net, {.name = "minilm", .digest = [] { return digest_of("minilm"); }}, parameters);
//   const auto base = base_tensors(*module);            // those of them that are frozen now

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

struct Base {
  std::string name;  ///< the folder it was read from
  /// Returns a digest of the files' contents: the same text for the same contents. Called once,
  /// when it is first asked for.
  std::function<std::string()> digest;
};

/// The parameters are the module's, and hold what the base's files hold.
LEVIN_API void mark_base(const std::shared_ptr<torch::nn::Module>& module, Base base,
                         const std::vector<at::Tensor>& parameters);

/// Returns the frozen parameters of bases, in the module and all below it, that were not written to
/// since they were marked.
LEVIN_API std::unordered_set<const c10::TensorImpl*> base_tensors(const torch::nn::Module& module);

/// Returns a checkpoint's entry for the bases that it leaves out: name and digest of each, in
/// order. Empty if there is none.
LEVIN_API State base_state(const torch::nn::Module& module);
/// Throws Error "module.base" where the module does not stand on the bases of that state.
LEVIN_API void check_bases(const torch::nn::Module& module, const State& state);

}  // namespace levin
