#pragma once
// JitModule: a TorchScript module (torch::jit::load) as a torch::nn::Module.
// Trained, divided and saved as any other: parameters and buffers have the names that it gives them.
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

/// A handle: the tensors are those of the module that was given. Its submodules are JitModules too.
class LEVIN_API JitModule : public torch::nn::Module {
 public:
  explicit JitModule(const torch::jit::Module& module);

  /// Throws Error "module.jit" where it gives something else than a tensor: see call.
  template <class... Args>
  at::Tensor forward(Args&&... args) {
    return tensor_of(call("forward", {c10::IValue(std::forward<Args>(args))...}));
  }
  /// A method of the script, with whatever it takes and gives. Throws Error "module.jit" where there
  /// is none of that name.
  c10::IValue call(const std::string& method, std::vector<c10::IValue> arguments);

  void train(bool on = true) override;
  const torch::jit::Module& script() const { return *module_; }

 private:
  /// One object may be a part in several places.
  using Seen = std::map<const void*, std::shared_ptr<JitModule>>;
  JitModule(const torch::jit::Module& module, Seen& seen);
  void take_parts(Seen& seen);
  static at::Tensor tensor_of(const c10::IValue& output);

  std::shared_ptr<torch::jit::Module> module_;
};

}  // namespace levin
