#pragma once
// Module: a network together with how it is trained, as LightningModule.
// It stands after the data: its steps turn a batch into a loss, and describe the optimizer.
//
//   struct Classifier : levin::Module {
//     torch::Tensor training_step(const levin::Batch& batch) override { return loss; }
//     levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw({}); }
//   };

#include <torch/nn/module.h>

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
#include "levin/data/batch.h"
#include "levin/data/loader.h"
#include "levin/module/context.h"
#include "levin/module/optimizer_config.h"
#include "levin/observe/logged.h"
#include "levin/observe/metric.h"

namespace levin {

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

}  // namespace levin
