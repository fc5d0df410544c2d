#pragma once
// Run: one call of fit, validate, test or predict; what the loops share.
// Set up by run.cpp; the loops are in fit.cpp and evaluate.cpp, saving and resuming in resume.cpp.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/accelerator/compiled/compiled_step.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/module/module_context.h"
#include "levin/trainer/parts/part_sizes.h"
#include "levin/trainer/profile/run_profile.h"
#include "levin/trainer/run/boundary.h"
#include "levin/trainer/run/limits.h"
#include "levin/trainer/run/listeners.h"
#include "levin/trainer/run/progress.h"
#include "levin/trainer/run/run_log.h"
#include "levin/trainer/run/run_place.h"
#include "levin/trainer/run/stopping.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

enum class Stage { kFit, kValidate, kTest, kPredict };
std::string_view stage_name(Stage stage);

/// Batches of an epoch, none when they are not known.
std::optional<int64_t> size_of(const DataLoader& loader);

/// A validation, test or prediction loader with the number of its batches that are evaluated.
struct EvaluationLoader {
  DataLoader loader;
  int64_t batches = 0;
};

class Run : public ModuleContext {
 public:
  /// before: where the last fit of the trainer ended, as evaluation is to see it.
  Run(Trainer& trainer, std::shared_ptr<Module> module, Stage stage, const Progress& before);
  ~Run() override;

  void fit(DataLoader training, std::vector<DataLoader> validation,
           std::shared_ptr<DataModule> data, const std::string& ckpt_path);
  Metrics evaluate(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data);
  /// Returns the outputs of each loader.
  std::vector<std::vector<at::Tensor>> predict(std::vector<DataLoader> loaders,
                                               std::shared_ptr<DataModule> data,
                                               bool keeps_outputs);
  /// Runs training_step on an epoch of the training data without gradients or steps, as
  /// torch.optim.swa_utils.update_bn does for the statistics of batch norm.
  void pass_training_data();
  /// Gives the module, on all ranks, the weights of a checkpoint.
  void load_weights_of(const std::filesystem::path& checkpoint);
  /// Lets reload_dataloaders_every_n_epochs ask the data module or the module again.
  void may_reload_loaders() { loaders_can_be_reloaded_ = true; }
  /// Sets the checkpoint of evaluate and predict; empty: the module's own weights.
  void take_weights_from(std::string ckpt_path) { weights_from_ = std::move(ckpt_path); }

  // Runs of a Tuner.
  using ChangeOptimizers = std::function<void(std::vector<OptimizerConfig>&)>;
  /// Sets what is done to the module's descriptions of optimizers before they are built.
  void change_optimizers(ChangeOptimizers change) { change_optimizers_ = std::move(change); }
  /// An error of memory is thrown as always, but not reported.
  void expect_out_of_memory() { expects_out_of_memory_ = true; }
  /// Trains for so many optimizer steps without an exchange between ranks, so that a rank may run
  /// out of memory alone. Returns whether no rank did. All ranks call it.
  bool fits_alone(DataLoader training, std::shared_ptr<DataModule> data, int64_t steps);
  /// Returns whether there is a checkpoint of that path.
  bool finds_checkpoint(const std::string& ckpt_path);
  /// Forgets what steps have logged, and resets the metric objects among it.
  void forget_logged();

  // ModuleContext
  LoggedValues* logged() override { return log_.open(); }
  OptimizerHandle& optimizer(int64_t index) override;
  void backward(const at::Tensor& loss) override;
  void run_backward(const at::Tensor& loss) override;
  Batch to_device(Batch batch) override;
  void set_loss_weight(double weight) override;
  void set_loss_weight(const at::Tensor& weight) override;
  int64_t dataloader_index() const override { return dataloader_index_; }
  int64_t batch_index() const override;
  int64_t current_epoch() const override;
  int64_t global_step() const override;
  at::Device device() const override { return engine_.device(); }
  Trainer& trainer() override { return trainer_; }
  bool is_global_zero() const override { return engine_.is_main_process(); }
  at::Tensor all_gather(const at::Tensor& tensor) override;
  comm::ProcessGroup data_group() override { return engine_.strategy().data_group(); }

  // The parts of a run that Trainer shows.
  const Limits& limits() const { return limits_; }
  const Progress& progress() const { return progress_; }
  Stage stage() const { return stage_; }
  /// Its fit, evaluate or predict is under way.
  bool is_active() const { return active_; }
  /// Returns the newest logged value of that name. Throws Error "trainer.monitor".
  double monitored(const std::string& name);
  bool has_validation() const { return !val_loaders_.empty() && limits_.val_batches > 0; }
  bool validation_due() const;
  bool sanity_checking() const { return sanity_checking_; }
  bool should_log() const;
  /// Returns whether all ranks log this step; should_log() also says so on one that asks to stop.
  bool logs_by_step() const;
  const std::vector<int64_t>& num_evaluation_batches() const { return evaluation_batches_; }
  std::vector<int64_t> num_val_batches() const;
  std::vector<int64_t> num_sanity_val_batches() const;
  Scalars bar_values() {
    if (!evaluates_batches_) return log_.bar_values();
    return log_.evaluation_values().step_values(LogTarget::kProgressBar);
  }
  bool at_step_boundary() const;
  RunLog& log() { return log_; }
  const std::vector<PreparedOptimizer>& optimizers() const { return optimizers_; }
  const Listeners& listeners() const { return listeners_; }
  Stopping& stopping() { return stopping_; }
  const graph::Compiled& compiled_step() const { return step_.compiled(); }
  Checkpoint checkpoint();
  const std::string& log_dir() const { return log_dir_; }
  std::string checkpoint_dir() const;
  const std::string& profile_folder() const {
    return log_dir_.empty() ? options_.default_root_dir : log_dir_;
  }
  const std::string& resumed_from() const { return resumed_from_; }
  bool resumed_in_place() const { return resumed_in_place_; }

 private:
  // run.cpp
  std::vector<std::shared_ptr<Callback>> given_by(Module& module);
  /// ckpt_path: what is going to be loaded, or empty.
  void set_up(std::shared_ptr<DataModule> data, const std::string& ckpt_path);
  void prepare_fit(DataLoader training, std::vector<DataLoader> validation);
  /// Sets the loaders of the fit and the limits that follow from their sizes.
  void set_loaders(DataLoader training, std::vector<DataLoader> validation);
  /// Takes new loaders from the data module or the module.
  void reload_loaders();
  void agree_on_folders();
  void tear_down();
  int64_t num_updates() const;
  /// An optimizer that does not step after each training step has gradients of some.
  bool gradients_wait() const;
  void say_where() const;
  void call_hook_before_steps();
  void say_what_is_not_trained() const;
  /// Notes objects that were made before the run's seed was set: their random numbers differ in
  /// each run.
  void note_unseeded(const DataLoader& training);
  void say_what_is_unseeded() const;
  void warn_of_few_steps() const;
  void begin_training();
  void end_training();
  void tell_of_monitors();
  void tell_of_no_validation();
  void agree_on_stop(bool between_steps = false);
  bool finished() const;
  bool is_out_of_time() const;
  double seconds_trained() const;
  /// Steps that changed parameters: the module's own, or windows that were stepped with.
  int64_t updates_so_far() const;
  /// Returns the batch as the steps get it.
  Batch transfer(Batch batch);

  // rollback.cpp: nan_policy and spike_policy rollback
  /// Returns whether the step that has just ended, on some rank, makes the run go back.
  bool must_roll_back();
  bool weights_are_finite() const;
  /// Loads the newest checkpoint of this run. The loaders stay where they are.
  void roll_back();
  std::string newest_checkpoint() const;

  // failure.cpp
  void report(const std::exception& error);
  void tell_data_of_exception(const std::exception& error);
  void note_where_it_failed() const;
  void explain(const std::exception& error) const;
  void undo_step();
  void end_saves();
  bool is_expected(const std::exception& error) const;

  // tuner/steps_alone.cpp
  void take_steps_alone(int64_t steps);

  // fit.cpp: the way of a batch
  void train();
  void train_epoch();
  void begin_epoch();
  /// batch: empty where this rank has none, but others have (has_ended_here).
  void train_batch(Batch batch, int64_t index);
  /// The whole batch at once.
  at::Tensor train_on(const Batch& batch, int64_t index);
  /// take_step, recorded and replayed where the options say so.
  at::Tensor compiled_step(const Batch& batch, int64_t index);
  /// batch: without samples where this rank has none of a part.
  at::Tensor take_step(const Batch& batch, int64_t index);
  /// With automatic optimization and an optimizer that computes losses itself.
  at::Tensor take_closure_step(const Batch& batch, int64_t index);
  at::Tensor training_step(const Batch& batch, int64_t index);
  /// The loader's next(), with its name for the profiler.
  bool next_batch(DataLoader& loader, const char* what, Batch& batch) {
    const ActionScope scope(profile_.get(), [&] { return what; });
    return loader.next(batch);
  }
  /// Gradients of an optimizer with a frequency add up over the steps between its own.
  void begin_window();
  /// Steps with no optimizer where the window weighs nothing.
  void update();
  void end_epoch();
  /// A batch of so many samples begins, or a part of one.
  void begin_samples(int64_t samples);
  /// Sees whether the epoch ends after so many batches, where nobody counted them.
  void look_for_end(int64_t batches);
  WindowPlace window_place(int64_t index) const;

  // uneven.cpp: even_batches = false
  /// Returns whether ranks may have different numbers of training batches.
  bool joins() const { return is_uneven_ && engine_.num_processes() > 1; }
  void check_uneven();
  /// Returns whether this rank has no batch left in this epoch, in which others may have some.
  bool has_ended_here() { return joins() && train_loader_->at_end(); }
  /// Returns the batches of an epoch, of the rank that has most; none when they are not known.
  std::optional<int64_t> training_size();
  /// Returns the batches of the running epoch that are done.
  int64_t training_batches_done();
  /// The loss of the batch counts for its samples, unless the module has set a weight.
  void weigh_by_samples(const Batch& batch);

  // parts/: accumulate_grad_batches = "auto"
  /// Returns the mean of the losses.
  at::Tensor train_in_parts(const Batch& batch, int64_t index);

  // schedules.cpp: learning rates that follow epochs and monitored values
  /// Schedules by epoch, when the last batch of an epoch was trained on.
  void move_schedules_by_epoch();
  void check_plateaus_by_epoch();
  void check_plateaus_by_step();
  std::optional<double> value_for(const PlateauOptions& plateau);

  // module_context.cpp
  void watch_logs();
  bool record_log(std::string_view name, const at::Tensor& value, const LogOptions& options);

  // evaluate.cpp
  std::optional<int64_t> evaluation_size(const DataLoader& loader);
  EvaluationLoader prepare_evaluation(DataLoader loader, std::string_view option,
                                      const Portion& limit);
  /// Sets whether a validation is due by val_check_interval as a time, alike on all ranks.
  void look_at_time();
  void validate_in_fit();
  void sanity_check();
  /// most: limit on the batches of each loader.
  void evaluation_loop(Stage stage, std::vector<EvaluationLoader>& loaders, int64_t most,
                       std::vector<at::Tensor>* outputs);
  void evaluate_loader(Stage stage, EvaluationLoader& loader, int64_t most,
                       std::vector<at::Tensor>* outputs);
  void run_evaluation(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data,
                      std::vector<at::Tensor>* outputs);
  void evaluate_all(std::vector<DataLoader> loaders, std::shared_ptr<DataModule> data,
                    std::vector<at::Tensor>* outputs);
  RunPlace::Loop loop_of(Stage stage) const;
  void evaluate_batch(Stage stage, Batch batch, int64_t index, int64_t samples,
                      std::vector<at::Tensor>* outputs);

  // resume.cpp
  /// Returns whether there was a checkpoint to resume from.
  bool resume();
  void load(const Checkpoint& checkpoint);
  void load_weights();
  void load_values(const State& training, const std::string& name, LoggedValues& values);
  void take_up_place();
  std::map<std::string, std::string> hyper_parameters() const;
  State waiting_gradients();
  void load_waiting_gradients(const State& state);
  /// Loggers go on in the folder of the run that has written checkpoint_.
  void resume_logs();
  /// Sets checkpoint_.
  void find_checkpoint(const std::string& ckpt_path);
  std::optional<std::filesystem::path> search_checkpoint(const std::string& ckpt_path) const;

  /// Calls a hook of the module; the hook of callbacks names it for the profiler.
  template <class Hook, class Call>
  void call_module(Hook hook, const Call& call) {
    const ActionScope scope(profile_.get(), [&] {
      return "[LightningModule]" + module_->name() + "." + hook_name(hook);
    });
    call();
  }
  /// The module's hook, then that of every callback.
  template <class... Params, class... Args>
  void call(void (Module::*module_hook)(Params...),
            void (Callback::*callback_hook)(Trainer&, Module&, Params...), Args&&... args) {
    call_module(callback_hook, [&] { ((*module_).*module_hook)(args...); });
    listeners_.tell(callback_hook, args...);
  }

  /// Returns "[Strategy]ddp.backward", the profiler's name of what the strategy does.
  std::string action(std::string_view what) const {
    return "[Strategy]" + std::string(engine_.strategy().name()) + "." + std::string(what);
  }

  Trainer& trainer_;
  const TrainerOptions& options_;
  Engine& engine_;
  std::unique_ptr<RunProfile> profile_;  ///< nullptr: off
  CompiledStep step_;
  std::shared_ptr<Module> module_;
  Stage stage_;
  std::string weights_from_;
  ChangeOptimizers change_optimizers_;
  bool expects_out_of_memory_ = false;
  std::optional<std::filesystem::path> checkpoint_;  // the checkpoint to load
  std::string resumed_from_;
  std::string loading_;  ///< "resuming from 'runs/last'", while that is loaded
  bool resumed_in_place_ = false;
  RunPlace place_;

  std::optional<DataLoader> train_loader_;
  std::vector<EvaluationLoader> val_loaders_;
  std::vector<int64_t> predicted_;           ///< number of outputs after each prediction loader
  std::vector<int64_t> evaluation_batches_;  ///< by loader; -1: unknown
  bool evaluates_batches_ = false;
  int64_t dataloader_index_ = 0;  ///< the loader whose batch is evaluated
  bool loaders_can_be_reloaded_ = false;
  std::chrono::steady_clock::time_point validated_at_;  ///< for limits_.val_seconds
  bool validation_time_is_up_ = false;
  std::shared_ptr<DataModule> data_module_;
  std::vector<PreparedOptimizer> optimizers_;
  Limits limits_;
  std::optional<PartSizes> part_sizes_;  ///< if batches are cut
  Progress progress_;
  std::optional<Boundary> boundary_;  // place from which a step that throws can be saved without it
  std::chrono::steady_clock::time_point started_;
  std::string unseeded_;  ///< objects that note_unseeded() has found

  std::vector<std::shared_ptr<Callback>> given_callbacks_;  ///< by the options and the module
  Listeners listeners_;
  Stopping stopping_;
  RunLog log_;

  bool is_uneven_ = false;   ///< no training sample is repeated, and batches weigh by their samples
  int64_t samples_ = 0;      ///< of the batch that is trained on, or of its part
  bool is_weighed_ = false;  ///< the module has set the weight of this batch
  std::optional<bool> sets_weights_;  ///< whether it did so for the batches before
  bool steps_by_closure_ = false;     ///< the one optimizer computes losses itself (LBFGS)
  bool skip_epoch_ = false;
  bool told_of_monitors_ = false;
  bool told_of_no_validation_ = false;
  bool sanity_checking_ = false;
  /// Sets a flag for the time of a scope.
  class Active {
   public:
    explicit Active(bool& active) : active_(active) { active_ = true; }
    ~Active() { active_ = false; }
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;

   private:
    bool& active_;
  };

  bool active_ = false;
  bool in_step_ = false;  // from the start of a batch to the end of its update
  bool updated_ = false;  // the step that was taken last has updated parameters
  std::string log_dir_;
};

}  // namespace levin::detail
