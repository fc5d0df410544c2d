#include "levin/module/jit_module.h"

#include <torch/csrc/jit/api/module.h>

#include "levin/base/check.h"

namespace levin {
namespace {

std::string class_of(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name ? name->name() : "torch::jit::Module";
}

}  // namespace

JitModule::JitModule(const torch::jit::Module& module)
    : torch::nn::Module(class_of(module)), module_(std::make_shared<torch::jit::Module>(module)) {
  Seen seen;
  take_parts(seen);
}

JitModule::JitModule(const torch::jit::Module& module, Seen& seen)
    : torch::nn::Module(class_of(module)), module_(std::make_shared<torch::jit::Module>(module)) {
  take_parts(seen);
}

void JitModule::take_parts(Seen& seen) {
  if (module_->hasattr("training")) train(module_->is_training());  // it has no parts yet
  for (const auto& parameter : module_->named_parameters(/*recurse=*/false)) {
    register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  }
  for (const auto& buffer : module_->named_buffers(/*recurse=*/false)) {
    register_buffer(buffer.name, buffer.value);
  }
  for (const auto& child : module_->named_children()) {
    std::shared_ptr<JitModule>& part = seen[child.value._ivalue().get()];
    if (part == nullptr) part = std::shared_ptr<JitModule>(new JitModule(child.value, seen));
    register_module(child.name, part);
  }
}

c10::IValue JitModule::call(const std::string& method, std::vector<c10::IValue> arguments) {
  const auto found = module_->find_method(method);
  LEVIN_CHECK(found.has_value(), "module.jit", "{} has no method '{}'; call a method of its script",
              name(), method);
  return (*found)(std::move(arguments));
}

at::Tensor JitModule::tensor_of(const c10::IValue& output) {
  LEVIN_CHECK(output.isTensor(), "module.jit",
              "forward returned {}, wanted a tensor; use call(\"forward\", {{...}}) to get the "
              "value as it is",
              output.tagKind());
  return output.toTensor();
}

// Each part sets its own flag, so that some may be in evaluation mode.
void JitModule::train(bool on) {
  torch::nn::Module::train(on);
  if (module_->hasattr("training")) module_->setattr("training", on);
}

}  // namespace levin
