#pragma once
// Trainer: the loops of a run (fit, validate, test, predict), like Lightning's Trainer. fit.cpp
// shows the path of a batch through it.
//
//   levin::Trainer trainer({.max_epochs = 3, .accumulate_grad_batches = 4});
//   trainer.fit(std::make_shared<Classifier>(), train_loader, val_loader);

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/data/loader.h"
#include "levin/data/module.h"
#include "levin/module/module.h"
#include "levin/module/parameters.h"
#include "levin/observe/logger.h"
#include "levin/trainer/options.h"

namespace levin {

/// Logged values by name.
class LEVIN_API Metrics : public std::map<std::string, double> {
 public:
  using map::map;
  Metrics(map values) : map(std::move(values)) {}  // NOLINT(google-explicit-constructor)

  /// Returns the value of that name. Throws Error "trainer.metric", which lists the names, if there is none.
  double at(const std::string& name) const;
};

namespace detail {
/// A module whose constructor takes its Options, which have fields().
template <class M>
concept HasOptions = requires(typename M::Options options, FieldVisitor& field) {
  options.fields(field);
  M(options);
};

/// of_data: of the data module, and not of the module.
LEVIN_API std::map<std::string, std::string> hparams_of(const std::filesystem::path& checkpoint,
                                                        const LoadFromCheckpointOptions& options,
                                                        bool of_data);
LEVIN_API void load_from(const std::filesystem::path& checkpoint, Module& module,
                         const LoadOptions& options);
LEVIN_API void load_from(const std::filesystem::path& checkpoint, DataModule& data,
                         const LoadOptions& options);
}  // namespace detail

/// Makes a module of class M from a checkpoint of the Trainer: with the hyper-parameters that the
/// run saved, and with the checkpoint's weights; follows LightningModule.load_from_checkpoint.
///
/// The saved hyper-parameters go to M's constructor if M has a nested `Options` with fields(), a
/// constructor that takes it, and an hparams() that returns options_as_text(options). Any other M
/// must have a constructor without arguments. M's on_load_checkpoint is called before the weights
/// are loaded.
///
/// M may also be a data module: it gets the hyper-parameters of its own hparams(), and then
/// load_state_dict() is called with what its state_dict() had saved, if anything
/// (LightningDataModule.load_from_checkpoint).
///
/// Throws Error "trainer.hparams" if the checkpoint has no hyper-parameters, "base.options.unknown"
/// or "base.options.value" if they are not those of M, and the errors of load_weights() and
/// load_module_state().
template <class M>
std::shared_ptr<M> load_from_checkpoint(const std::filesystem::path& checkpoint,
                                        const LoadFromCheckpointOptions& options = {}) {
  std::shared_ptr<M> module;
  if constexpr (detail::HasOptions<M>) {
    typename M::Options own;
    constexpr bool kOfData = std::derived_from<M, DataModule>;
    set_options(own, detail::hparams_of(checkpoint, options, kOfData));
    module = std::make_shared<M>(std::move(own));
  } else {
    module = std::make_shared<M>();
  }
  detail::load_from(checkpoint, *module, options.weights);
  return module;
}

class EarlyStopping;
class ModelCheckpoint;
class Trainer;

namespace detail {
struct ExportRequest;
class ProcessSettings;
class Run;
struct Progress;
enum class Stage;
class Trial;
LEVIN_API void pass_training_data(Trainer& trainer);
void load_weights_of(Trainer& trainer, const std::string& checkpoint);
}  // namespace detail

class Tuner;

/// Trains and evaluates modules; follows lightning.pytorch.Trainer. It is not thread-safe and runs
/// one loop at a time: fit, validate, test and predict throw Error "trainer.run" if a callback or
/// hook of a run calls them; another Trainer may run there.
class LEVIN_API Trainer {
 public:
  /// Starts or joins the processes of the run (Accelerator). Throws Error "trainer.options" for
  /// values out of range or options that exclude each other, and the errors of Accelerator's
  /// constructor.
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains. On SIGTERM or SIGINT it finishes the step, saves a checkpoint and exits the program
  /// with 143 or 130 (see TrainerOptions::exit_on_signal); a second SIGINT exits at once. Throws
  /// Error "trainer.dataloader" if a loader that the run needs is missing.
  void fit(std::shared_ptr<Module> module, DataLoader train,
           std::optional<DataLoader> validation = std::nullopt, FitOptions options = {});
  /// Trains, and validates with several loaders. Names that a validation logs end in
  /// "/dataloader_idx_N" then.
  void fit(std::shared_ptr<Module> module, DataLoader train, std::vector<DataLoader> validation,
           FitOptions options = {});
  void fit(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
           FitOptions options = {});  ///< Trains with the loaders of a data module.
  /// Trains with the module's own loaders.
  void fit(std::shared_ptr<Module> module, FitOptions options = {});

  /// Validates and returns the values that the steps logged, reduced over the data, under the names
  /// that loggers get ("x_epoch" for a value logged with on_step too). Throws Error
  /// "trainer.dataloader" if there is no loader, and "trainer.ckpt_path" if the checkpoint does not
  /// exist.
  Metrics validate(std::shared_ptr<Module> module, DataLoader loader,
                   const EvaluateOptions& options = {});
  /// Validates with several loaders.
  Metrics validate(std::shared_ptr<Module> module, std::vector<DataLoader> loaders,
                   const EvaluateOptions& options = {});
  /// Validates with the loaders of a data module.
  Metrics validate(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                   const EvaluateOptions& options = {});
  /// Validates with the module's own loaders.
  Metrics validate(std::shared_ptr<Module> module, const EvaluateOptions& options = {});
  /// Same as validate(), with test_step.
  Metrics test(std::shared_ptr<Module> module, DataLoader loader,
               const EvaluateOptions& options = {});
  /// Tests with several loaders.
  Metrics test(std::shared_ptr<Module> module, std::vector<DataLoader> loaders,
               const EvaluateOptions& options = {});
  /// Tests with the loaders of a data module.
  Metrics test(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
               const EvaluateOptions& options = {});
  /// Tests with the module's own loaders.
  Metrics test(std::shared_ptr<Module> module, const EvaluateOptions& options = {});
  /// Returns the output of predict_step for each batch, in order, on the device that computed it;
  /// nothing with return_predictions = false.
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module, DataLoader loader,
                                  const EvaluateOptions& options = {});
  /// Predicts with several loaders and returns the outputs of each; Trainer::dataloader_index() and
  /// Module::dataloader_index() say which one is read.
  std::vector<std::vector<at::Tensor>> predict(std::shared_ptr<Module> module,
                                               std::vector<DataLoader> loaders,
                                               const EvaluateOptions& options = {});
  /// Predicts with the loaders of a data module. The outputs of several loaders follow each other.
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                                  const EvaluateOptions& options = {});
  /// Predicts with the module's own loader.
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module,
                                  const EvaluateOptions& options = {});

  // Functions for callbacks, during a run. An evaluation sees the epoch and step at which the fit
  // before it ended.

  const TrainerOptions& options() const { return options_; }  ///< The options of this Trainer.
  Accelerator& accelerator() { return *accelerator_; }        ///< The engine of the run.
  const Accelerator& accelerator() const { return *accelerator_; }  ///< The engine of the run.
  int64_t current_epoch() const;  ///< Current training epoch, from 0.
  /// Number of training steps that updated parameters. Several optimizers and accumulated batches
  /// count as one step.
  int64_t global_step() const;
  /// Batches of a training epoch; -1 for a stream of unknown length.
  int64_t num_training_batches() const;
  /// Returns the batches of each loader of the evaluation that is running or ran last; -1 for a
  /// stream of unknown length.
  std::vector<int64_t> num_evaluation_batches() const;
  /// Returns the batches of each validation loader of a fit; -1 for a stream of unknown length.
  std::vector<int64_t> num_val_batches() const;
  std::vector<int64_t> num_sanity_val_batches() const;  ///< Same for the sanity check.
  /// Batches of an accumulation window in the current epoch.
  int64_t accumulate_grad_batches() const;
  int64_t batches_done() const;  ///< Batches of the current epoch that are done.
  /// Index of the validation, test or prediction loader whose batch is evaluated, from 0.
  int64_t dataloader_index() const;
  /// Optimizer steps of the whole run; -1 if unlimited or unknown.
  int64_t estimated_stepping_batches() const;
  bool has_validation() const;   ///< Returns whether this fit validates.
  bool validation_due() const;   ///< Returns whether a validation follows this step.
  bool sanity_checking() const;  ///< Returns whether the sanity check is running.
  bool should_log() const;       ///< Returns whether this step's values are written to the loggers.
  /// Returns whether no step is in progress, so that a run can resume from a checkpoint saved now.
  bool at_step_boundary() const;

  /// Returns the newest value of everything logged, by name. It waits for the device.
  Metrics callback_metrics() const;
  /// Returns the newest value of one name. Throws Error "trainer.monitor", which lists the known
  /// names.
  double monitored(const std::string& name) const;
  /// Adds values to the loggers' next row; callback_metrics() has them at once.
  void log_metrics(const Scalars& scalars);
  /// Writes values as a row of their own, now.
  void log_row(const Scalars& scalars);
  /// Returns the values on the progress bar; while the batches of an evaluation run, the values that
  /// its last step logged.
  Scalars progress_bar_metrics() const;
  const std::vector<PreparedOptimizer>& optimizers() const;         ///< The module's optimizers.
  const std::vector<std::shared_ptr<Callback>>& callbacks() const;  ///< All callbacks of the run.
  /// Returns the callbacks of a class, in their order: callbacks_of<ModelCheckpoint>().
  template <class T>
  std::vector<std::shared_ptr<T>> callbacks_of() const {
    std::vector<std::shared_ptr<T>> found;
    for (const auto& each : callbacks()) {
      if (auto own = std::dynamic_pointer_cast<T>(each)) found.push_back(std::move(own));
    }
    return found;
  }
  std::shared_ptr<ModelCheckpoint> checkpoint_callback() const;    ///< The first one, or null.
  std::shared_ptr<EarlyStopping> early_stopping_callback() const;  ///< The first one, or null.
  int64_t node_rank() const;  ///< Number of this machine among those of the run, from 0.

  /// Asks the run to end after this step. One rank's request ends the run on all ranks, at the same
  /// step; over a network the ranks ask each other only every 10 steps.
  void request_stop(std::string reason);
  bool stop_requested() const;  ///< Returns whether this rank has called request_stop.
  /// Returns how often compile = "replay" has replayed the training step so far, and the reasons
  /// for steps that were not replayed.
  const graph::CompiledReport& compile_report() const;
  /// Returns the signal that ended the run, or 0.
  int interrupted() const { return interrupted_; }

  /// Saves everything needed to resume (see Checkpoint) in a folder. All ranks call it, and each
  /// writes its part; if it throws on one rank, it throws on all. With async_save it writes in the
  /// background; later, between two steps, `then` is called on all ranks with the outcome.
  void save_checkpoint(const std::string& folder, const SaveCheckpointOptions& options = {},
                       SaveThen then = {});
  /// Returns the checkpoint path from which fit has resumed, or "". If the checkpoint was found
  /// through the link `last` in its folder, the path ends in `last`.
  std::string resumed_from() const;
  /// Returns whether the run continues in the log folder of the run it resumed, according to its
  /// first logger. Only rank 0, which has the loggers, can tell; other ranks return false.
  bool resumed_in_place() const;
  /// Returns the loggers of TrainerOptions; for logger = true, a CSV and a TensorBoard logger.
  const std::vector<std::shared_ptr<Logger>>& loggers();
  std::string log_dir() const;  ///< Returns the folder of this run's logs; empty without a logger.
  std::string checkpoint_dir() const;  ///< Returns the folder of this run's checkpoints.

 private:
  friend class Tuner;
  friend class detail::Trial;  // runs of a Tuner
  friend void detail::pass_training_data(Trainer& trainer);
  friend void detail::load_weights_of(Trainer& trainer, const std::string& checkpoint);
  detail::Run& run() const;
  void note_last_run();
  void end_by_signal();
  void set_up(const std::shared_ptr<DataModule>& data, std::string_view stage);
  void check_idle(std::string_view what) const;
  detail::Run& begin(std::shared_ptr<Module> module, detail::Stage stage);
  void fit_with(std::shared_ptr<Module> module, std::optional<DataLoader> train,
                std::vector<DataLoader> validation, std::shared_ptr<DataModule> data,
                const FitOptions& options, bool can_reload = false);
  void export_as(const detail::ExportRequest& request, std::shared_ptr<Module> module,
                 DataLoader loader);
  detail::Run& begin_evaluation(std::shared_ptr<Module> module, detail::Stage stage,
                                const EvaluateOptions& options);
  std::string best_checkpoint() const;

  TrainerOptions options_;
  std::unique_ptr<detail::ProcessSettings> settings_;
  std::unique_ptr<Accelerator> accelerator_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::unique_ptr<detail::Progress> trained_;  ///< position at which the last fit ended
  std::unique_ptr<detail::Run> run_;
  // Best checkpoint of the last fit, once another run has begun: "" if it ranked none, unset before
  // any fit.
  std::optional<std::string> best_;
  int interrupted_ = 0;
};

// Tuner: finds a learning rate and a batch size for a Trainer's fit, like Lightning's Tuner. A
// search is a short fit. Afterwards the module's weights, the position of loaders and the random
// generators are bit for bit as before. A search writes no logs and no checkpoints, runs no
// validation, and calls none of the callbacks of TrainerOptions.
//
//   levin::Tuner tuner(trainer);
//   const levin::LrFinder found = tuner.lr_find(net, train_loader);
//   found.plot("lr_find.svg");
//   net->lr = found.suggestion().value_or(net->lr);  // configure_optimizers reads it

/// Result of a search for a learning rate; follows Lightning's _LRFinder.
struct LEVIN_API LrFinder {
  std::string mode;           ///< growth of the rate: "exponential" or "linear"
  std::vector<double> rates;  ///< learning rate of each step, ascending
  /// Loss of each step: the exponential moving average with weight 0.98 and Lightning's bias
  /// correction, of the mean over all ranks. NaN for a step without a loss.
  std::vector<double> losses;

  /// Returns the rate at which the loss falls most steeply, as torch.gradient computes it from the
  /// finite losses. It leaves out the first skip_begin and the last skip_end steps. Empty if fewer
  /// than 2 losses are left. Throws Error "trainer.lr_find" for negative numbers.
  std::optional<double> suggestion(int64_t skip_begin = 10, int64_t skip_end = 1) const;
  /// Writes the curve to a file: a picture with the suggestion marked (.svg), or rows with lr and
  /// loss (.csv). An older file of that name is replaced. Throws Error "trainer.lr_find" for
  /// another ending, and "files.write".
  void plot(const std::filesystem::path& file, bool suggest = true) const;
};

/// Finds a learning rate and a batch size for a Trainer's fit; follows lightning.pytorch's Tuner.
/// All ranks call its functions. They throw Error "trainer.run" during a run of the Trainer, and
/// the errors of fit. With fast_dev_run they search nothing, as in Lightning.
class LEVIN_API Tuner {
 public:
  /// The Trainer must outlive the object.
  explicit Tuner(Trainer& trainer) : trainer_(trainer) {}

  /// Trains with a learning rate that rises from step to step, and returns the losses. All
  /// parameter groups have the same rate, and a schedule has no effect. Throws Error
  /// "trainer.lr_find" for options out of range; for manual optimization, several optimizers, an
  /// optimizer with a frequency above 1 or without a learning rate (adafactor with relative_step);
  /// and if the Trainer has a learning_rate_finder.
  LrFinder lr_find(std::shared_ptr<Module> module, DataLoader train,
                   const LrFindOptions& options = {});
  /// Same with the training loader of a data module.
  LrFinder lr_find(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                   const LrFindOptions& options = {});
  /// Same with the module's own training loader.
  LrFinder lr_find(const std::shared_ptr<Module>& module, const LrFindOptions& options = {});

  /// Returns the largest batch size that fits into memory, at most that of the training data; with
  /// ddp, of one rank. Before it tries a larger size on a CPU, it forecasts the memory from the
  /// sizes before, so that the kernel does not kill the process. Throws Error
  /// "trainer.scale_batch_size" for options out of range; for a stream; if not even one sample
  /// fits; on XLA devices; for strategies of several ranks other than ddp, whose ranks would wait
  /// for one that ran out of memory; and if the Trainer has a batch_size_finder.
  int64_t scale_batch_size(std::shared_ptr<Module> module, DataLoader train,
                           const ScaleBatchSizeOptions& options = {});
  /// Same with the training loader of a data module.
  int64_t scale_batch_size(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                           const ScaleBatchSizeOptions& options = {});
  /// Same with the module's own training loader.
  int64_t scale_batch_size(const std::shared_ptr<Module>& module,
                           const ScaleBatchSizeOptions& options = {});

 private:
  Trainer& trainer_;
};

/// Searches a learning rate at the start of each fit, and trains with it: the optimizer and all its
/// parameter groups get the suggestion, and the schedule continues from there. A resumed fit
/// searches nothing and keeps the rate of its checkpoint. Follows
/// lightning.pytorch.callbacks.LearningRateFinder.
class LEVIN_API LearningRateFinder : public Callback {
 public:
  /// Throws Error "trainer.lr_find" for options out of range.
  explicit LearningRateFinder(LrFindOptions options);
  const LrFindOptions& options() const { return options_; }  ///< Options of the search.
  /// Returns the result of the last search.
  const std::optional<LrFinder>& optimal_lr() const { return optimal_lr_; }
  std::string state_key() const override { return "learning_rate_finder"; }

 private:
  friend class detail::Trial;
  LrFindOptions options_;
  std::optional<LrFinder> optimal_lr_;
};
/// Returns a LearningRateFinder callback.
LEVIN_API std::shared_ptr<LearningRateFinder> learning_rate_finder(LrFindOptions options = {});

/// Searches a batch size at the start of each fit, and trains with it. Unlike in Lightning the
/// loader may be given to fit. Follows lightning.pytorch.callbacks.BatchSizeFinder.
class LEVIN_API BatchSizeFinder : public Callback {
 public:
  /// Throws Error "trainer.scale_batch_size" for options out of range.
  explicit BatchSizeFinder(ScaleBatchSizeOptions options);
  const ScaleBatchSizeOptions& options() const { return options_; }  ///< Options of the search.
  /// Returns the result of the last search.
  std::optional<int64_t> optimal_batch_size() const { return optimal_batch_size_; }
  std::string state_key() const override { return "batch_size_finder"; }

 private:
  friend class detail::Trial;
  ScaleBatchSizeOptions options_;
  std::optional<int64_t> optimal_batch_size_;
};
/// Returns a BatchSizeFinder callback.
LEVIN_API std::shared_ptr<BatchSizeFinder> batch_size_finder(ScaleBatchSizeOptions options = {});

// The version of levin. CMakeLists.txt reads it here for the CMake package; `levin --version`
// prints it, and each checkpoint stores it.

inline constexpr const char* kVersion = "0.1.0";  ///< version of levin

}  // namespace levin
