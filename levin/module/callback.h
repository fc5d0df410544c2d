#pragma once
// Callback: something that happens beside the training, at the points of a run.
// Told of every point the module is told of, after the module; takes what it needs from the
// trainer.
//
//   struct Printer : levin::Callback {
//     std::string state_key() const override { return "printer"; }
//     void on_train_epoch_end(levin::Trainer& trainer, levin::Module&) override { ... }
//   };

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/batch.h"

namespace levin {

class Module;
class Trainer;

/// Every hook does nothing unless overridden. Callbacks run on every rank; what one decides must
/// not depend on the rank.
class LEVIN_API Callback {
 public:
  virtual ~Callback();

  /// Under this name the state is found in a checkpoint; unique among the callbacks of a run.
  virtual std::string state_key() const = 0;
  virtual State state_dict() const { return {}; }
  virtual void load_state_dict(const State& state) {}
  /// A callback that writes checkpoints is called after all others and after the loggers, so that
  /// what it saves holds their part of the same moment.
  virtual bool writes_checkpoints() const { return false; }
  /// Where it writes them; empty before a run when the trainer is to choose.
  virtual std::string checkpoint_folder() const { return ""; }

  virtual void setup(Trainer& trainer, Module& module, std::string_view stage) {}
  virtual void teardown(Trainer& trainer, Module& module, std::string_view stage) {}
  virtual void on_exception(Trainer& trainer, Module& module, const std::exception& error) {}

  virtual void on_fit_start(Trainer& trainer, Module& module) {}
  virtual void on_fit_end(Trainer& trainer, Module& module) {}
  virtual void on_sanity_check_start(Trainer& trainer, Module& module) {}
  virtual void on_sanity_check_end(Trainer& trainer, Module& module) {}
  virtual void on_train_start(Trainer& trainer, Module& module) {}
  virtual void on_train_end(Trainer& trainer, Module& module) {}
  virtual void on_train_epoch_start(Trainer& trainer, Module& module) {}
  virtual void on_train_epoch_end(Trainer& trainer, Module& module) {}
  virtual void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                                    int64_t batch_index) {}
  virtual void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                                  const Batch& batch, int64_t batch_index) {}
  virtual void on_before_zero_grad(Trainer& trainer, Module& module) {}
  virtual void on_before_backward(Trainer& trainer, Module& module, const at::Tensor& loss) {}
  virtual void on_after_backward(Trainer& trainer, Module& module) {}
  virtual void on_before_optimizer_step(Trainer& trainer, Module& module) {}

  // Of validation, test and prediction alike: stage is "validate", "test" or "predict".
  virtual void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) {}
  virtual void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) {}
  virtual void on_evaluation_batch_start(Trainer& trainer, Module& module, std::string_view stage,
                                         const Batch& batch, int64_t batch_index) {}
  virtual void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                                       const Batch& batch, int64_t batch_index) {}

  virtual void on_save_checkpoint(Trainer& trainer, Module& module, State& checkpoint) {}
  virtual void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) {}
};

}  // namespace levin
