#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <utility>

#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {
namespace {

void set_values(const at::Tensor& parameter, const at::Tensor& values) {
  parameter.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
}

}  // namespace

at::Tensor full(const at::Tensor& parameter) {
  const auto divided = shard::sharded(parameter);
  return divided ? divided->full() : parameter.detach().clone();
}

State full(const torch::nn::Module& module) {
  State state = module_state(module);
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (const auto divided = shard::sharded(parameter.tensor)) {
      state.set(parameter.name, divided->full());
    }
  }
  return state;
}

WholeScope::WholeScope(torch::nn::Module& module, const WholeOptions& options) : options_(options) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : named_parameters(module)) {
    const auto divided = shard::sharded(parameter.tensor);
    if (!divided) continue;
    divided_.push_back({.parameter = parameter.tensor,
                        .before = parameter.tensor.variable_data(),
                        .gradient = {},
                        .whole = divided->full()});
  }
  for (Divided& each : divided_) {
    each.gradient = std::exchange(each.parameter.mutable_grad(), at::Tensor());
    set_values(each.parameter, each.whole);
  }
}

WholeScope::~WholeScope() {
  const at::NoGradGuard no_grad;
  for (Divided& each : divided_) {
    const at::Tensor values = each.parameter.variable_data();
    set_values(each.parameter, each.before);
    each.parameter.mutable_grad() = std::move(each.gradient);
    if (!options_.write_back) continue;
    shard::own_values(each.parameter).copy_(shard::own_part(each.parameter, values));
    shard::note_written(each.parameter);
  }
}

}  // namespace levin
