#pragma once
// StepValue: a number that the host computes in each step, as a tensor, so that a step that is
// replayed has each step's: a warm-up of a coefficient, a temperature that falls.
//
//   levin::StepValue beta{[this] { return std::min(1.0, global_step() / 1000.0); }};  // a member
//   ...
//   return reconstruction + beta() * divergence;                     // in training_step

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "levin/base/export.h"

namespace levin {

class LEVIN_API StepValue {
 public:
  /// value: is asked for once in each step that runs or is replayed, before its operators. It may
  /// ask levin for the step, the epoch or the learning rate without these becoming conditions of
  /// the recording; what it reads beside that must outlive it.
  explicit StepValue(std::function<double()> value, at::ScalarType dtype = at::kFloat);

  /// The number of this step: a tensor [] on the CPU, which operators of each device take. It is
  /// the same tensor in each step, which gets another content.
  const at::Tensor& operator()() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin
