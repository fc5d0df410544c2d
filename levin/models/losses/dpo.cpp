#include "levin/models/losses/dpo.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>

#include "levin/base/check.h"

namespace levin::models {

at::Tensor DpoLoss::rewards_margins() const { return rewards_chosen - rewards_rejected; }
at::Tensor DpoLoss::rewards_accuracies() const {
  return (rewards_chosen > rewards_rejected).to(at::kFloat);
}

DpoLoss dpo_loss(const Preferences& preferences, const DpoOptions& options) {
  LEVIN_CHECK(
      options.beta > 0 && options.label_smoothing >= 0 && options.label_smoothing < 0.5,
      "models.loss.options",
      "got beta = {} and label_smoothing = {}, wanted beta > 0 and 0 <= label_smoothing < 0.5",
      options.beta, options.label_smoothing);
  const auto gain = preferences.policy - preferences.reference.detach();
  const auto margin = options.beta * (gain.select(1, 0) - gain.select(1, 1));
  auto loss = -at::log_sigmoid(margin);
  if (options.label_smoothing > 0) {
    loss =
        (1 - options.label_smoothing) * loss - options.label_smoothing * at::log_sigmoid(-margin);
  }
  const auto rewards = options.beta * gain.detach();
  return {.loss = loss.mean(),
          .rewards_chosen = rewards.select(1, 0),
          .rewards_rejected = rewards.select(1, 1)};
}

}  // namespace levin::models
