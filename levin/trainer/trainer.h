#pragma once
// Trainer: the loops over the engine: fit, validate, test, predict.
// What a program calls last; fit.cpp tells the way of a batch through it.
//
//   levin::Trainer trainer({.max_epochs = 3, .accumulate_grad_batches = 4});
//   trainer.fit(std::make_shared<Classifier>(), train_loader, val_loader);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/base/export.h"
#include "levin/data/loader.h"
#include "levin/data/module.h"
#include "levin/module/module.h"
#include "levin/observe/logger.h"
#include "levin/trainer/options.h"

namespace levin {

using Metrics = std::map<std::string, double>;

struct FitOptions {
  std::string ckpt_path;  ///< as TrainerOptions::ckpt_path, over which it wins
};

struct EvaluateOptions {
  /// Weights to load first: a checkpoint's folder, "last" or "best" (as model_checkpoint ranked
  /// those of this Trainer's fit; where it has made none, of the newest run on disk, whose last
  /// checkpoint says which one that is); empty: the module's as they are.
  std::string ckpt_path;
};

namespace detail {
struct ExportRequest;
class ProcessSettings;
class Run;
struct Progress;
enum class Stage;
}  // namespace detail

/// One run at a time, not thread-safe: fit, validate, test and predict from a callback or hook of a
/// run throw Error "trainer.run"; another Trainer may run there. Throws Error "trainer.options" for
/// values outside their range or that exclude each other, and what the engine throws.
class LEVIN_API Trainer {
 public:
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains. On SIGTERM or SIGINT the step is finished, a checkpoint saved and the program ended
  /// with 143 or 130 (see TrainerOptions::exit_on_signal); a second SIGINT ends it at once.
  /// Throws Error "trainer.dataloader" when a loader that the run needs is missing.
  void fit(std::shared_ptr<Module> module, DataLoader train,
           std::optional<DataLoader> validation = std::nullopt, FitOptions options = {});
  void fit(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
           FitOptions options = {});
  /// With the loaders that the module itself gives.
  void fit(std::shared_ptr<Module> module, FitOptions options = {});

  /// What the steps logged, reduced over the data, under the names that loggers get ("x_epoch" of
  /// what was logged with on_step too). Throws Error "trainer.dataloader", and
  /// "trainer.ckpt_path" when there is no such checkpoint.
  Metrics validate(std::shared_ptr<Module> module, DataLoader loader,
                   const EvaluateOptions& options = {});
  Metrics validate(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                   const EvaluateOptions& options = {});
  /// With the loader that the module itself gives.
  Metrics validate(std::shared_ptr<Module> module, const EvaluateOptions& options = {});
  Metrics test(std::shared_ptr<Module> module, DataLoader loader,
               const EvaluateOptions& options = {});
  Metrics test(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
               const EvaluateOptions& options = {});
  Metrics test(std::shared_ptr<Module> module, const EvaluateOptions& options = {});
  /// The output of predict_step for each batch, in order, on the device it was computed on.
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module, DataLoader loader,
                                  const EvaluateOptions& options = {});
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                                  const EvaluateOptions& options = {});
  std::vector<at::Tensor> predict(std::shared_ptr<Module> module,
                                  const EvaluateOptions& options = {});

  // For callbacks, in a run. Evaluation sees the epoch and step at which the fit before it ended.

  const TrainerOptions& options() const { return options_; }
  Accelerator& accelerator() { return *accelerator_; }
  const Accelerator& accelerator() const { return *accelerator_; }
  int64_t current_epoch() const;
  /// Training steps that updated parameters, however many optimizers there are and however many
  /// batches were accumulated for each.
  int64_t global_step() const;
  /// Batches of a training epoch (-1: a stream's, not known), and those of it done.
  int64_t num_training_batches() const;
  int64_t batches_done() const;
  /// Optimizer steps the whole run will take, -1 without limit or when they are not known.
  int64_t estimated_stepping_batches() const;
  bool has_validation() const;
  /// After this step comes a validation.
  bool validation_due() const;
  bool sanity_checking() const;
  /// True in the steps whose values go to the loggers.
  bool should_log() const;
  /// No step is under way, so that a checkpoint taken now can be resumed from.
  bool at_step_boundary() const;

  /// The newest value of everything logged, by name. Waits for the device.
  Metrics callback_metrics() const;
  /// The value of one name. Throws Error "trainer.monitor", which lists the names there are.
  double monitored(const std::string& name) const;
  /// Values to go with the loggers' next row; callback_metrics() has them at once.
  void log_metrics(const Scalars& scalars);
  /// The same, as a row of their own, now.
  void log_row(const Scalars& scalars);
  Scalars progress_bar_metrics() const;
  const std::vector<PreparedOptimizer>& optimizers() const;
  const std::vector<std::shared_ptr<Callback>>& callbacks() const;

  /// The run ends after this step. The same on every rank.
  void request_stop(std::string reason);
  bool stop_requested() const;
  /// What compile = "replay" has made of the training step so far: how often it was replayed, and
  /// why not.
  const graph::CompiledReport& compile_report() const;
  /// Signal that ended the run, 0 if none did.
  int interrupted() const { return interrupted_; }

  /// Writes all that resuming needs (see Checkpoint) to that folder. All ranks call it, and each
  /// writes its part; where it throws on one, it throws on all. With async_save it is written behind
  /// training, and `then` is told on all ranks, between two later steps, how that ended.
  void save_checkpoint(const std::string& folder, const SaveCheckpointOptions& options = {},
                       SaveThen then = {});
  /// The path that fit has resumed from, `last` where it was found by that link; empty if none.
  std::string resumed_from() const;
  /// It goes on in the folder of logs of the run that wrote that, as its first logger found it; known to the process
  /// that has loggers.
  bool resumed_in_place() const;
  /// The loggers of TrainerOptions; for logger = true a CSV and a TensorBoard logger.
  const std::vector<std::shared_ptr<Logger>>& loggers();
  /// Where logs of this run go, empty with no logger; and its checkpoints.
  std::string log_dir() const;
  std::string checkpoint_dir() const;

 private:
  detail::Run& run() const;
  void set_up(const std::shared_ptr<DataModule>& data, std::string_view stage);
  void check_idle(std::string_view what) const;
  detail::Run& begin(std::shared_ptr<Module> module, detail::Stage stage);
  void fit_with(std::shared_ptr<Module> module, std::optional<DataLoader> train,
                std::optional<DataLoader> validation, std::shared_ptr<DataModule> data,
                const FitOptions& options);
  void export_as(const detail::ExportRequest& request, std::shared_ptr<Module> module,
                 DataLoader loader);
  detail::Run& begin_evaluation(std::shared_ptr<Module> module, detail::Stage stage,
                                const EvaluateOptions& options);
  std::string best_checkpoint() const;

  TrainerOptions options_;
  std::unique_ptr<detail::ProcessSettings> settings_;
  std::unique_ptr<Accelerator> accelerator_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::unique_ptr<detail::Progress> trained_;  ///< where the last fit ended
  std::unique_ptr<detail::Run> run_;
  // Of the last fit, once another run has begun; "" where it has none, nothing before any fit.
  std::optional<std::string> best_;
  int interrupted_ = 0;
};

// The version of levin: of the CMake package (CMakeLists.txt reads it here), of `levin --version`,
// and in each checkpoint.

inline constexpr const char* kVersion = "0.1.0";

}  // namespace levin
