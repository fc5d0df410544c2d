#pragma once
// Direct preference optimization (Rafailov et al. 2023): the chosen answer to a prompt shall become
// more likely than the rejected one, relative to a reference.
//
//   const DpoLoss dpo = dpo_loss({.policy = logps, .reference = reference}, {.beta = 0.1});
//   dpo.loss.backward();                          // dpo.rewards_chosen: what to log

#include <ATen/core/Tensor.h>

#include "levin/base/export.h"

namespace levin::models {

struct DpoOptions {
  double beta = 0.1;             ///< how near to the reference the policy stays
  double label_smoothing = 0.0;  ///< the part of pairs that may be the wrong way round, below 0.5
};

/// float32 [B, 2]: the logarithm of each answer's probability, the chosen one's first.
struct Preferences {
  at::Tensor policy, reference;
};

struct LEVIN_API DpoLoss {
  at::Tensor loss;  ///< float32 scalar, the mean over pairs
  /// Each float32 [B], without gradients, under TRL's names: beta times how much more likely than to
  /// the reference an answer is.
  at::Tensor rewards_chosen, rewards_rejected;

  at::Tensor rewards_margins() const;
  at::Tensor rewards_accuracies() const;  ///< 1 where the chosen one's is above the other's
};

/// Throws Error "models.loss.options" for a beta that is not above 0 and a smoothing outside of 0 to 0.5.
LEVIN_API DpoLoss dpo_loss(const Preferences& preferences, const DpoOptions& options = {});

}  // namespace levin::models
