#pragma once
// Trainer: the loops of a run (fit, validate, test, predict), like Lightning's Trainer. fit.cpp
// shows the path of a batch through it.
//
//   levin::Trainer trainer({.max_epochs = 3, .accumulate_grad_batches = 4});
//   trainer.fit(std::make_shared<Classifier>(), train_loader, val_loader);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
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

using Metrics = std::map<std::string, double>;  ///< logged values by name

/// Options of Trainer::fit.
struct FitOptions {
  std::string ckpt_path;  ///< checkpoint to resume from; overrides TrainerOptions::ckpt_path
};

/// Options of Trainer::validate, test and predict.
struct EvaluateOptions {
  /// Checkpoint whose weights are loaded first: a folder, "last" or "best"; empty: the module's
  /// weights as they are. "best" is the best checkpoint of this Trainer's fit, as model_checkpoint
  /// ranked it. If this Trainer has run no fit, it is the best checkpoint of the newest run on
  /// disk, as recorded in that run's last checkpoint.
  std::string ckpt_path;
};

/// Options of load_from_checkpoint.
struct LoadFromCheckpointOptions {
  LoadOptions weights = {};  ///< strict, and names that may be missing or unexpected
  /// Hyper-parameters that replace those of the checkpoint, by name.
  std::map<std::string, std::string> hparams = {};
};

namespace detail {
/// A module whose constructor takes its Options, which have fields().
template <class M>
concept HasOptions = requires(typename M::Options options, FieldVisitor& field) {
  options.fields(field);
  M(options);
};

LEVIN_API std::map<std::string, std::string> hparams_of(const std::filesystem::path& checkpoint,
                                                        const LoadFromCheckpointOptions& options);
LEVIN_API void load_from(const std::filesystem::path& checkpoint, Module& module,
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
/// Throws Error "trainer.hparams" if the checkpoint has no hyper-parameters, "base.options.unknown"
/// or "base.options.value" if they are not those of M, and the errors of load_weights() and
/// load_module_state().
template <class M>
std::shared_ptr<M> load_from_checkpoint(const std::filesystem::path& checkpoint,
                                        const LoadFromCheckpointOptions& options = {}) {
  std::shared_ptr<M> module;
  if constexpr (detail::HasOptions<M>) {
    typename M::Options own;
    set_options(own, detail::hparams_of(checkpoint, options));
    module = std::make_shared<M>(std::move(own));
  } else {
    module = std::make_shared<M>();
  }
  detail::load_from(checkpoint, *module, options.weights);
  return module;
}

namespace detail {
struct ExportRequest;
class ProcessSettings;
class Run;
struct Progress;
enum class Stage;
}  // namespace detail

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
  /// Returns the output of predict_step for each batch, in order, on the device that computed it.
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module, DataLoader loader,
                                  const EvaluateOptions& options = {});
  /// Predicts with the loader of a data module.
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
  int64_t batches_done() const;  ///< Batches of the current epoch that are done.
  /// Index of the validation or test loader whose batch is evaluated, from 0.
  int64_t dataloader_index() const;
  /// Optimizer steps of the whole run; -1 if unlimited or unknown.
  int64_t estimated_stepping_batches() const;
  bool has_validation() const;  ///< Returns whether this fit validates.
  /// Returns whether a validation follows this step.
  bool validation_due() const;
  bool sanity_checking() const;  ///< Returns whether the sanity check is running.
  /// Returns whether this step's values are written to the loggers.
  bool should_log() const;
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

  /// Asks the run to end after this step. One rank's request ends the run on all ranks, at the same
  /// step; over a network the ranks ask each other only every 10 steps.
  void request_stop(std::string reason);
  /// Returns whether this rank has called request_stop.
  bool stop_requested() const;
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
  /// Returns the folder of this run's logs; empty without a logger.
  std::string log_dir() const;
  std::string checkpoint_dir() const;  ///< Returns the folder of this run's checkpoints.

 private:
  detail::Run& run() const;
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

// The version of levin. CMakeLists.txt reads it here for the CMake package; `levin --version`
// prints it, and each checkpoint stores it.

inline constexpr const char* kVersion = "0.1.0";  ///< version of levin

}  // namespace levin
