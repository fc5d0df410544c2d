#pragma once
// Module: a network and how it is trained, like LightningModule. Its steps turn a batch into a
// loss, and it describes the optimizer.
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
#include <optional>
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

namespace levin {

class Callback;
class LoggedValues;
class ModuleContext;
class Trainer;

/// A torch::nn::Module with steps and hooks; follows lightning.pytorch.LightningModule. Hooks do
/// nothing unless overridden. docs/architecture.md lists their order in a run.
class LEVIN_API Module : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  // Steps. batch_index counts from 0 in each epoch.

  /// Returns the loss, a scalar (the mean over the batch); an undefined tensor skips this batch.
  /// With compile = "replay", each new batch_index runs eagerly once, because the step may depend
  /// on it. If the step does not need the index, override the form without batch_index. If
  /// that form calls batch_index(), the step is replayed only for the same index. Throws Error
  /// "module.training_step" if neither form is overridden.
  virtual at::Tensor training_step(const Batch& batch, int64_t batch_index);
  /// Same, without the batch index.
  virtual at::Tensor training_step(const Batch& batch);
  /// Evaluates a validation batch, usually by logging metrics.
  virtual void validation_step(const Batch& batch, int64_t batch_index);
  /// Evaluates a test batch, usually by logging metrics.
  virtual void test_step(const Batch& batch, int64_t batch_index);
  /// Returns the prediction for a batch, which trainer.predict collects. Throws Error
  /// "module.predict_step" unless overridden.
  virtual at::Tensor predict_step(const Batch& batch, int64_t batch_index);

  // Set-up.

  /// Returns the description of one optimizer, or of several: {adamw({}).of(a), sgd({}).of(b)}.
  /// Unless overridden, returns what use_optimizer() was given, and throws Error
  /// "module.configure_optimizers" if it was not called.
  virtual OptimizerConfig configure_optimizers();
  /// Sets what configure_optimizers() returns unless it is overridden. levin::cli gives it the
  /// optimizer of its flags.
  void use_optimizer(OptimizerConfig config) { optimizer_ = std::move(config); }
  /// Called once before the parameters are placed on the device; layers may be built here.
  virtual void configure_model() {}
  /// Called in one process of each machine, to download data.
  virtual void prepare_data() {}
  /// Called at the start of a run. stage: "fit", "validate", "test" or "predict".
  virtual void setup(std::string_view stage) {}
  virtual void teardown(std::string_view stage) {}  ///< Called at the end of a run.
  /// Returns the training loader, for a fit call without data.
  virtual std::optional<DataLoader> train_dataloader() { return std::nullopt; }
  /// Returns the validation loader.
  virtual std::optional<DataLoader> val_dataloader() { return std::nullopt; }
  /// Returns several validation loaders; by default the one of val_dataloader().
  virtual std::vector<DataLoader> val_dataloaders();
  /// Returns the test loader.
  virtual std::optional<DataLoader> test_dataloader() { return std::nullopt; }
  /// Returns several test loaders; by default the one of test_dataloader().
  virtual std::vector<DataLoader> test_dataloaders();
  /// Returns the prediction loader.
  virtual std::optional<DataLoader> predict_dataloader() { return std::nullopt; }
  /// Returns callbacks that the module needs; called at the start of a run. They are added to those
  /// of TrainerOptions, and each replaces the ones of its class there (callbacks that write
  /// checkpoints replace none), as in Lightning. The default callbacks of the Trainer stay.
  virtual std::vector<std::shared_ptr<Callback>> configure_callbacks() { return {}; }
  /// Returns several prediction loaders; by default the one of predict_dataloader(). Their outputs
  /// follow each other.
  virtual std::vector<DataLoader> predict_dataloaders();
  /// Returns hyperparameters of the model, for loggers and checkpoints: those of
  /// save_hyperparameters() unless overridden.
  virtual std::map<std::string, std::string> hparams() const { return hparams_; }
  /// Sets the hyperparameters, as save_hyperparameters of Lightning; a constructor may call it with
  /// options_as_text(options). levin::cli calls it for a module without hyperparameters.
  void save_hyperparameters(std::map<std::string, std::string> values) {
    hparams_ = std::move(values);
  }

  // Hooks of the loops.

  /// Called before the sanity check and training.
  virtual void on_fit_start() {}
  /// Called after training.
  virtual void on_fit_end() {}
  /// Called before the first training epoch.
  virtual void on_train_start() {}
  /// Called after the last training epoch.
  virtual void on_train_end() {}
  /// Called before each training epoch.
  virtual void on_train_epoch_start() {}
  /// Called after each training epoch.
  virtual void on_train_epoch_end() {}
  /// Called before each training batch. Returning false skips the rest of the epoch.
  virtual bool on_train_batch_start(const Batch& batch, int64_t batch_index) { return true; }
  /// Called after each training batch; the loss is training_step's.
  virtual void on_train_batch_end(const at::Tensor& loss, const Batch& batch, int64_t batch_index) {
  }
  /// Called before a validation.
  virtual void on_validation_start() {}
  /// Called after a validation.
  virtual void on_validation_end() {}
  /// Called before the validation's batches.
  virtual void on_validation_epoch_start() {}
  /// Called after the batches, when epoch metrics are complete.
  virtual void on_validation_epoch_end() {}
  /// Called before validation_step.
  virtual void on_validation_batch_start(const Batch& batch, int64_t batch_index) {}
  /// Called after validation_step.
  virtual void on_validation_batch_end(const Batch& batch, int64_t batch_index) {}
  /// Called before a test.
  virtual void on_test_start() {}
  /// Called after a test.
  virtual void on_test_end() {}
  /// Called before the test's batches.
  virtual void on_test_epoch_start() {}
  /// Called after the batches, when epoch metrics are complete.
  virtual void on_test_epoch_end() {}
  /// Called before test_step.
  virtual void on_test_batch_start(const Batch& batch, int64_t batch_index) {}
  /// Called after test_step.
  virtual void on_test_batch_end(const Batch& batch, int64_t batch_index) {}
  /// Called before a prediction.
  virtual void on_predict_start() {}
  /// Called after a prediction.
  virtual void on_predict_end() {}
  /// Called before the prediction's batches.
  virtual void on_predict_epoch_start() {}
  /// Called after the prediction's batches.
  virtual void on_predict_epoch_end() {}
  /// Called before predict_step.
  virtual void on_predict_batch_start(const Batch& batch, int64_t batch_index) {}
  /// Called after predict_step, with its output.
  virtual void on_predict_batch_end(const at::Tensor& output, const Batch& batch,
                                    int64_t batch_index) {}

  // Hooks that do a part of the Trainer's work. An override replaces it, and calls the function of
  // the base class where the work is to be done. Like the step itself, they are not called in a step
  // that is replayed (compile = "replay").

  /// Computes the gradients of a loss, with automatic and with manual optimization. An override
  /// must call Module::backward, with this loss or another one; otherwise the run throws Error
  /// "trainer.backward".
  virtual void backward(const at::Tensor& loss);
  /// Drops the gradients of an optimizer at the start of an accumulation window, with automatic
  /// optimization. Gradients that an override keeps are added to those of the window; with 16-mixed
  /// they must be dropped, because they no longer have the loss scale.
  virtual void optimizer_zero_grad(OptimizerHandle& optimizer);
  /// Clips the gradients of an optimizer before its step, with automatic optimization: by default
  /// with gradient_clip_val (unset: not at all) and gradient_clip_algorithm ("norm" or "value") of
  /// the Trainer. Gradients are reduced and unscaled.
  virtual void configure_gradient_clipping(OptimizerHandle& optimizer,
                                           std::optional<double> gradient_clip_val,
                                           std::string_view gradient_clip_algorithm);
  /// Steps an optimizer, with automatic optimization. If an override does not call step(), the
  /// parameters stay, the step is not counted in global_step, and the schedule does not move. All
  /// ranks must decide alike.
  virtual void optimizer_step(OptimizerHandle& optimizer);
  /// Returns the batch on the device of the run; called between on_before_batch_transfer and
  /// on_after_batch_transfer, on a CPU too. An override that moves the batch itself uses device().
  virtual Batch transfer_batch_to_device(Batch batch);

  // Hooks of the optimizer step, of the transfer of batches to the device, and of checkpoints.

  /// Called before the gradients are dropped.
  virtual void on_before_zero_grad(OptimizerHandle& optimizer) {}
  /// Called before backward.
  virtual void on_before_backward(const at::Tensor& loss) {}
  /// Called after backward.
  virtual void on_after_backward() {}
  /// Called before an optimizer's step; gradients are reduced and unscaled, but not clipped yet.
  virtual void on_before_optimizer_step(OptimizerHandle& optimizer) {}
  /// Called with each batch on the host; returns the batch to use.
  virtual Batch on_before_batch_transfer(Batch batch) { return batch; }
  /// Called with each batch on the device; returns the batch to use.
  virtual Batch on_after_batch_transfer(Batch batch) { return batch; }
  /// Called to add values of the module to a checkpoint.
  virtual void on_save_checkpoint(State& state) {}
  /// Called on resume with what on_save_checkpoint added.
  virtual void on_load_checkpoint(const State& state) {}

  // Functions for use in the steps. Outside of a run, log warns once and drops the values; the
  // others throw Error "module.context".

  /// Logs a tensor of one element. The defaults are Lightning's: a training step logs the step's
  /// value, the other steps log the epoch's mean, weighted by batch size. Throws the errors of
  /// LoggedValues::log.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  /// Same for a number.
  void log(std::string_view name, double value, const LogOptions& options = {});
  /// Same for a metric object.
  void log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options = {});
  void log_dict(std::initializer_list<std::pair<std::string_view, at::Tensor>> values,
                const LogOptions& options = {});  ///< Logs several tensors with the same options.

  /// false selects manual optimization: training_step itself calls optimizer(i).zero_grad(),
  /// manual_backward and optimizer(i).step(). Gradient accumulation and clipping by the trainer are
  /// then errors.
  bool automatic_optimization = true;
  /// Returns the index-th optimizer of configure_optimizers. Throws Error "trainer.optimizer" if
  /// there is none.
  OptimizerHandle& optimizer(int64_t index = 0);
  /// Computes the gradients of a loss, with the hooks of backward.
  void manual_backward(const at::Tensor& loss);
  /// Declares that the returned loss is a mean over `weight` items (tokens, for example). With
  /// gradient accumulation, the gradient is then the mean over all items of the window, as for one
  /// large batch, and not a mean of means. A batch of weight 0 contributes nothing, whatever its
  /// loss is. Throws Error "trainer.loss_weight" for manual optimization, for an optimizer with a
  /// frequency above 1 (OptimizerConfig), and for a tensor of several elements. With compile =
  /// "replay", a call with a number disables replay; use a tensor.
  void set_loss_weight(double weight);
  /// Same for a tensor of one element. The host does not read it if it is on a device, or if steps
  /// are recorded (compile = "replay"); in these cases a loss of weight 0 must have finite
  /// gradients.
  void set_loss_weight(const at::Tensor& weight);

  /// Returns the index of the training batch in its epoch. With compile = "replay", a recorded step
  /// that calls this function, current_epoch() or global_step() is replayed only for the same
  /// values; for new values it runs eagerly and is compared with the recording.
  int64_t batch_index() const;
  /// Returns the index of the validation, test or prediction loader whose batch is evaluated, from
  /// 0. With several loaders, log() appends it to names: "val_loss/dataloader_idx_1".
  int64_t dataloader_index() const;
  int64_t current_epoch() const;  ///< Returns the epoch, from 0.
  int64_t global_step() const;    ///< Returns the number of training steps that updated parameters.
  at::Device device() const;      ///< Returns the device of the run.
  /// Returns the dtype of the first floating-point parameter; without one, LibTorch's default.
  at::ScalarType dtype() const;
  /// Returns the ranks that train on different data, for a loss over the batches of all these
  /// ranks.
  comm::ProcessGroup data_group() const;
  /// Returns the Trainer of the run (levin/trainer/trainer.h), as LightningModule.trainer.
  Trainer& trainer() const;
  /// Returns whether this is rank 0, which may write files: LightningModule.global_rank == 0.
  /// Code in a step that depends on it does not run when the step is replayed (compile = "replay").
  bool is_global_zero() const;
  /// Prints a line to stdout on rank 0 only.
  void print(std::string_view line) const;
  /// Returns the tensors of all ranks as [ranks, ...], without gradients; all ranks call it with
  /// the same shape. Unlike in Lightning the first dim is there with one rank too. A step that
  /// calls it is not replayed (compile = "replay").
  at::Tensor all_gather(const at::Tensor& tensor) const;

  /// Returns false once the training_step without batch_index has been called, and true before:
  /// only that call shows which form is overridden.
  bool takes_batch_index() const { return takes_batch_index_; }
  /// Returns whether the random generators had been seeded (is_seeded) before the constructor.
  bool is_made_with_seed() const { return made_with_seed_; }

 private:
  friend LEVIN_API void attach_context(Module& module, ModuleContext* context);
  ModuleContext& context(std::string_view caller) const;
  LoggedValues* logged();

  ModuleContext* context_ = nullptr;
  std::optional<OptimizerConfig> optimizer_;  // what use_optimizer() was given
  std::map<std::string, std::string> hparams_;
  bool warned_ = false;
  bool takes_batch_index_ = true;
  bool made_with_seed_ = is_seeded();
};

// Callback: code that runs at the hooks of a run, besides the module's own; like Lightning's
// Callback. The Trainer calls each hook of every callback on all ranks.
//
//   struct Printer : levin::Callback {
//     std::string state_key() const override { return "printer"; }
//     void on_train_epoch_end(levin::Trainer& trainer, levin::Module&) override { ... }
//   };

class Module;

/// Base class of callbacks; follows lightning.pytorch.Callback. Hooks do nothing unless overridden.
/// Callbacks run on every rank; their decisions must not depend on the rank.
class LEVIN_API Callback {
 public:
  virtual ~Callback();

  /// Returns the key of this callback's state in a checkpoint; unique among the callbacks of a run.
  virtual std::string state_key() const = 0;
  virtual State state_dict() const { return {}; }  ///< Returns the state to save in checkpoints.
  virtual void load_state_dict(const State& state) {}  ///< Loads what state_dict() returned.
  /// Returns whether this callback writes checkpoints. Such a callback is called after all others
  /// and after the loggers, so that its checkpoint contains their state at the same moment.
  virtual bool writes_checkpoints() const { return false; }
  /// Returns the folder of this callback's checkpoints; empty before a run if the trainer chooses
  /// it.
  virtual std::string checkpoint_folder() const { return ""; }

  /// Called at the start of a run.
  virtual void setup(Trainer& trainer, Module& module, std::string_view stage) {}
  /// Called at the end of a run.
  virtual void teardown(Trainer& trainer, Module& module, std::string_view stage) {}
  /// Called when a run ends by an exception.
  virtual void on_exception(Trainer& trainer, Module& module, const std::exception& error) {}

  /// Called before the sanity check and training.
  virtual void on_fit_start(Trainer& trainer, Module& module) {}
  /// Called after training.
  virtual void on_fit_end(Trainer& trainer, Module& module) {}
  /// Called before the sanity check.
  virtual void on_sanity_check_start(Trainer& trainer, Module& module) {}
  /// Called after the sanity check.
  virtual void on_sanity_check_end(Trainer& trainer, Module& module) {}
  /// Called before the first epoch.
  virtual void on_train_start(Trainer& trainer, Module& module) {}
  /// Called after the last epoch.
  virtual void on_train_end(Trainer& trainer, Module& module) {}
  /// Called before each epoch.
  virtual void on_train_epoch_start(Trainer& trainer, Module& module) {}
  /// Called after each epoch.
  virtual void on_train_epoch_end(Trainer& trainer, Module& module) {}
  /// Called before each training batch; it is empty on a rank without one (even_batches = false).
  virtual void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                                    int64_t batch_index) {}
  /// Called after each training batch, also on a rank without one; the loss may be undefined.
  virtual void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                                  const Batch& batch, int64_t batch_index) {}
  /// Called before gradients are dropped.
  virtual void on_before_zero_grad(Trainer& trainer, Module& module) {}
  /// Called before backward.
  virtual void on_before_backward(Trainer& trainer, Module& module, const at::Tensor& loss) {}
  /// Called after backward.
  virtual void on_after_backward(Trainer& trainer, Module& module) {}
  /// Called before a step.
  virtual void on_before_optimizer_step(Trainer& trainer, Module& module) {}

  // Evaluation hooks for validation, test and prediction; stage is "validate", "test" or "predict".
  /// Called before an evaluation.
  virtual void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) {}
  /// Called after an evaluation.
  virtual void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) {}
  /// Called before each batch.
  virtual void on_evaluation_batch_start(Trainer& trainer, Module& module, std::string_view stage,
                                         const Batch& batch, int64_t batch_index) {}
  /// Called after each batch.
  virtual void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                                       const Batch& batch, int64_t batch_index) {}

  /// Called after each predict_step with its output, before on_evaluation_batch_end.
  virtual void on_predict_batch_end(Trainer& trainer, Module& module, const at::Tensor& output,
                                    const Batch& batch, int64_t batch_index) {}

  /// Called with a checkpoint's weights, by name, before it is written; may replace values.
  virtual void on_save_weights(Trainer& trainer, Module& module, State& weights) {}
  /// Called with the training state of a checkpoint before it is written; may change it.
  virtual void on_save_checkpoint(Trainer& trainer, Module& module, State& checkpoint) {}
  /// Called on resume with the checkpoint that was read.
  virtual void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) {}
};

}  // namespace levin
