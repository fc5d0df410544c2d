#pragma once
// ModuleContext: the services of a running Trainer that a module uses, such as logging and its
// optimizers. The Trainer implements it; a module outside of a run has none.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/module/module.h"

namespace levin {

/// The services of a running Trainer for its module.
class LEVIN_API ModuleContext {
 public:
  virtual ~ModuleContext();

  /// Returns the logged values of the running stage; null if logging is off.
  virtual LoggedValues* logged() = 0;
  virtual OptimizerHandle& optimizer(int64_t index) = 0;  ///< See Module::optimizer.
  virtual void backward(const at::Tensor& loss) = 0;      ///< See Module::manual_backward.
  virtual void run_backward(const at::Tensor& loss) = 0;  ///< See Module::backward.
  virtual Batch to_device(Batch batch) = 0;               ///< See Module::transfer_batch_to_device.
  virtual void set_loss_weight(double weight) = 0;        ///< See Module::set_loss_weight.
  virtual void set_loss_weight(const at::Tensor& weight) = 0;   ///< See Module::set_loss_weight.
  virtual int64_t dataloader_index() const = 0;                 ///< See Module::dataloader_index.
  virtual int64_t batch_index() const = 0;                      ///< See Module::batch_index.
  virtual int64_t current_epoch() const = 0;                    ///< See Module::current_epoch.
  virtual int64_t global_step() const = 0;                      ///< See Module::global_step.
  virtual at::Device device() const = 0;                        ///< See Module::device.
  virtual Trainer& trainer() = 0;                               ///< See Module::trainer.
  virtual bool is_global_zero() const = 0;                      ///< See Module::is_global_zero.
  virtual at::Tensor all_gather(const at::Tensor& tensor) = 0;  ///< See Module::all_gather.
  virtual comm::ProcessGroup data_group() = 0;                  ///< See Module::data_group.
};

/// Gives a module the services of a run; nullptr: the run is over.
LEVIN_API void attach_context(Module& module, ModuleContext* context);

}  // namespace levin
