#pragma once
// JitModule: a TorchScript module (torch::jit::load) as a torch::nn::Module. It is trained, sharded
// and saved like any other module; parameters and buffers keep the names of the script.
//
//   auto net = std::make_shared<levin::JitModule>(torch::jit::load("net.pt"));
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));
//   auto loss = loss_of(model->forward(x), y);

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace levin {

/// A torch::nn::Module that shares the tensors of a torch::jit::Module. Its submodules are
/// JitModules too.
class LEVIN_API JitModule : public torch::nn::Module {
 public:
  /// Wraps the module; tensors are not copied.
  explicit JitModule(const torch::jit::Module& module);

  /// Calls the script's forward. Throws Error "module.jit" if it does not return a tensor; see
  /// call.
  template <class... Args>
  at::Tensor forward(Args&&... args) {
    return tensor_of(call("forward", {c10::IValue(std::forward<Args>(args))...}));
  }
  /// Calls a method of the script with any arguments and result. Throws Error "module.jit" if there
  /// is no method of that name.
  c10::IValue call(const std::string& method, std::vector<c10::IValue> arguments);

  void train(bool on = true) override;
  const torch::jit::Module& script() const { return *module_; }  ///< The TorchScript module.

 private:
  /// Parts made so far; one object may be used in several places.
  using Seen = std::map<const void*, std::shared_ptr<JitModule>>;
  JitModule(const torch::jit::Module& module, Seen& seen);
  void take_parts(Seen& seen);
  static at::Tensor tensor_of(const c10::IValue& output);

  std::shared_ptr<torch::jit::Module> module_;
};

}  // namespace levin
