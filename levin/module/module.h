#pragma once
// Module: a network together with how it is trained, as LightningModule.
// It stands after the data: its steps turn a batch into a loss, and describe the optimizer.
//
//   struct Classifier : levin::Module {
//     torch::Tensor training_step(const levin::Batch& batch) override { return loss; }
//     levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw({}); }
//   };

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/random.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/module/optimizer_config.h"
#include "levin/observe/logger.h"
#include "levin/observe/metric.h"

// What a running trainer offers to a module: a place to log to, and its optimizers.
// Implemented by trainer/; a module outside of a run has none.

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

/// Every hook does nothing unless overridden. Their order in a run is in docs/architecture.md.
class LEVIN_API Module : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  // Steps. batch_index counts from 0 in each epoch.

  /// Returns the loss, a scalar (the mean over the batch); an undefined tensor skips this batch.
  /// Under compile = "replay" each new batch_index is run by the code once, since it may decide
  /// what the step does; override the second form where it does not, or ask for batch_index()
  /// there. Throws Error "module.training_step" where neither is overridden.
  virtual at::Tensor training_step(const Batch& batch, int64_t batch_index);
  virtual at::Tensor training_step(const Batch& batch);
  virtual void validation_step(const Batch& batch, int64_t batch_index);
  virtual void test_step(const Batch& batch, int64_t batch_index);
  /// What trainer.predict collects. Throws Error "module.predict_step" unless overridden.
  virtual at::Tensor predict_step(const Batch& batch, int64_t batch_index);

  // Set-up.

  /// One optimizer, or several: return {adamw({}).of(a), sgd({}).of(b)}. The default throws Error
  /// "module.configure_optimizers".
  virtual OptimizerConfig configure_optimizers();
  /// Called once before the parameters are placed: layers may be built here.
  virtual void configure_model() {}
  virtual void prepare_data() {}
  virtual void setup(std::string_view stage) {}
  virtual void teardown(std::string_view stage) {}
  virtual std::optional<DataLoader> train_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> val_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> test_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> predict_dataloader() { return std::nullopt; }
  /// What loggers and checkpoints record of the model.
  virtual std::map<std::string, std::string> hparams() const { return {}; }

  // Hooks of the loops.

  virtual void on_fit_start() {}
  virtual void on_fit_end() {}
  virtual void on_train_start() {}
  virtual void on_train_end() {}
  virtual void on_train_epoch_start() {}
  virtual void on_train_epoch_end() {}
  /// false skips the rest of the epoch.
  virtual bool on_train_batch_start(const Batch& batch, int64_t batch_index) { return true; }
  virtual void on_train_batch_end(const at::Tensor& loss, const Batch& batch, int64_t batch_index) {
  }
  virtual void on_validation_start() {}
  virtual void on_validation_end() {}
  virtual void on_validation_epoch_start() {}
  virtual void on_validation_epoch_end() {}
  virtual void on_validation_batch_start(const Batch& batch, int64_t batch_index) {}
  virtual void on_validation_batch_end(const Batch& batch, int64_t batch_index) {}
  virtual void on_test_start() {}
  virtual void on_test_end() {}
  virtual void on_test_epoch_start() {}
  virtual void on_test_epoch_end() {}
  virtual void on_test_batch_start(const Batch& batch, int64_t batch_index) {}
  virtual void on_test_batch_end(const Batch& batch, int64_t batch_index) {}
  virtual void on_predict_start() {}
  virtual void on_predict_end() {}
  virtual void on_predict_epoch_start() {}
  virtual void on_predict_epoch_end() {}
  virtual void on_predict_batch_start(const Batch& batch, int64_t batch_index) {}
  virtual void on_predict_batch_end(const at::Tensor& output, const Batch& batch,
                                    int64_t batch_index) {}

  // Hooks of the step, of the data's way to the device, and of checkpoints.

  virtual void on_before_zero_grad(OptimizerHandle& optimizer) {}
  virtual void on_before_backward(const at::Tensor& loss) {}
  virtual void on_after_backward() {}
  /// Gradients are complete and not clipped yet.
  virtual void on_before_optimizer_step(OptimizerHandle& optimizer) {}
  virtual Batch on_before_batch_transfer(Batch batch) { return batch; }
  virtual Batch on_after_batch_transfer(Batch batch) { return batch; }
  virtual void on_save_checkpoint(State& state) {}
  virtual void on_load_checkpoint(const State& state) {}

  // For use in the steps. Outside of a run log does nothing but warn once.

  /// value: one element. Defaults as in Lightning: a training step logs the step's value, the other
  /// steps the epoch's mean, weighted by batch size. Throws what LoggedValues::log throws.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  void log(std::string_view name, double value, const LogOptions& options = {});
  void log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options = {});
  void log_dict(std::initializer_list<std::pair<std::string_view, at::Tensor>> values,
                const LogOptions& options = {});

  /// false: training_step itself calls optimizer(i).zero_grad(), manual_backward and
  /// optimizer(i).step(); accumulation and clipping by the trainer are then errors.
  bool automatic_optimization = true;
  OptimizerHandle& optimizer(int64_t index = 0);
  void manual_backward(const at::Tensor& loss);
  /// The returned loss is a mean over `weight` items (tokens, say). Under accumulation the window's
  /// gradient is then the mean over all its items, as of one large batch, and not a mean of means.
  /// A batch of weight 0 adds nothing, whatever its loss is. A tensor of one element is not read by
  /// the host where it is on a device, or where steps are recorded (compile = "replay"), which a
  /// double keeps from being replayed: a loss of weight 0 must then have gradients that are
  /// numbers. Throws Error "trainer.loss_weight" where steps are manual, and where an optimizer has
  /// a frequency.
  void set_loss_weight(double weight);
  void set_loss_weight(const at::Tensor& weight);

  /// Of the training batch, in its epoch. A replayed step (compile = "replay") is one that got the
  /// same numbers from this and the next two; under new ones the code is run, and compared.
  int64_t batch_index() const;
  int64_t current_epoch() const;
  /// Training steps that updated parameters.
  int64_t global_step() const;
  at::Device device() const;
  /// The ranks that train on different data, for a loss over the batches of all of them.
  comm::ProcessGroup data_group() const;

  /// Whether training_step has been given it so far.
  bool takes_batch_index() const { return takes_batch_index_; }
  /// Whether the generators had a seed (is_seeded) when the constructor began to draw.
  bool is_made_with_seed() const { return made_with_seed_; }
  /// Set by the trainer for the time of a run.
  void attach(ModuleContext* context) { context_ = context; }

 private:
  ModuleContext& context(std::string_view caller) const;
  LoggedValues* logged();

  ModuleContext* context_ = nullptr;
  bool warned_ = false;
  bool takes_batch_index_ = true;
  bool made_with_seed_ = is_seeded();
};

// Callback: something that happens beside the training, at the points of a run.
// Told of every point the module is told of, after the module; takes what it needs from the
// trainer.
//
//   struct Printer : levin::Callback {
//     std::string state_key() const override { return "printer"; }
//     void on_train_epoch_end(levin::Trainer& trainer, levin::Module&) override { ... }
//   };

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
