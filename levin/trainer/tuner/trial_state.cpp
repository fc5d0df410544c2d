#include "levin/trainer/tuner/trial_state.h"

#include <ATen/core/grad_mode.h>

#include "levin/comm/objects.h"
#include "levin/module/module.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::detail {

void TrialState::note(Module& module) {
  const at::NoGradGuard no_grad;
  values_.clear();
  modes_.clear();
  user_ = at::Tensor();
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const at::Tensor own = shard::own_values(tensor).detach();
    values_.push_back({tensor,
                       own.to(at::kCPU, own.scalar_type(), /*non_blocking=*/false, /*copy=*/true),
                       tensor.requires_grad()});
  };
  for (const NamedTensor& parameter : named_parameters(module)) add(parameter.tensor);
  for (const auto& buffer : module.named_buffers()) add(buffer.value());
  for (const auto& part : module.modules()) {
    if (part.get() != &module) modes_.emplace_back(part, part->is_training());
  }
  State user;
  module.on_save_checkpoint(user);
  if (!user.empty()) user_ = comm::bytes_of(user);
  is_noted_ = true;
}

void TrialState::restore(Module& module) {
  if (!std::exchange(is_noted_, false)) return;
  const at::NoGradGuard no_grad;
  for (const Value& value : values_) {
    at::Tensor own = shard::own_values(value.tensor).detach();
    own.copy_(value.copy);
    shard::note_written(value.tensor);
    if (value.tensor.requires_grad() != value.requires_grad) {
      value.tensor.set_requires_grad(value.requires_grad);
    }
    value.tensor.mutable_grad().reset();
  }
  for (const auto& [part, is_training] : modes_) {
    if (part->is_training() != is_training) part->train(is_training);
  }
  if (user_.defined()) module.on_load_checkpoint(comm::state_of(user_));
  values_.clear();
  modes_.clear();
}

}  // namespace levin::detail
