#pragma once
// What a running trainer offers to a module: a place to log to, and its optimizers.
// Implemented by trainer/; a module outside of a run has none.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin {

class LoggedValues;

/// One optimizer as a module with automatic_optimization = false drives it.
class LEVIN_API OptimizerHandle {
 public:
  virtual ~OptimizerHandle();

  /// Clips nothing; updates the parameters and moves the schedule on.
  virtual void step() = 0;
  /// closure: drops the gradients, computes loss and backward anew, and gives the loss. It is called
  /// once, and then as step(); as often as the class asks for it where that is its way (LBFGS).
  /// Returns the loss of the first call.
  virtual at::Tensor step(const std::function<at::Tensor()>& closure) = 0;
  virtual void zero_grad() = 0;
  /// Parameters of the other optimizers need no gradient from toggle() to untoggle().
  virtual void toggle() = 0;
  virtual void untoggle() = 0;
  virtual void clip_grad_norm(double max_norm) = 0;
  virtual double learning_rate() const = 0;
};

class LEVIN_API ModuleContext {
 public:
  virtual ~ModuleContext();

  /// Values of the stage that runs now; nothing where logging is off.
  virtual LoggedValues* logged() = 0;
  virtual OptimizerHandle& optimizer(int64_t index) = 0;
  virtual void backward(const at::Tensor& loss) = 0;
  /// This batch's loss is a mean over so many items; see Module::set_loss_weight.
  virtual void set_loss_weight(double weight) = 0;
  virtual void set_loss_weight(const at::Tensor& weight) = 0;
  virtual int64_t batch_index() const = 0;
  virtual int64_t current_epoch() const = 0;
  virtual int64_t global_step() const = 0;
  virtual at::Device device() const = 0;
  /// The ranks that train on different data.
  virtual comm::ProcessGroup data_group() = 0;
};

}  // namespace levin
