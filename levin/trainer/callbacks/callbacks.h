#pragma once
// Callbacks: EarlyStopping, ModelCheckpoint, Timer, and the callbacks that finetuning,
// lambda_callback, learning_rate_monitor, model_summary, prediction_writer, progress_bar,
// sample_texts, stochastic_weight_averaging and weight_averaging return.
//
// EarlyStopping: stops training when a logged value stops improving, like Lightning's callback.
//
//   options.callbacks = {levin::early_stopping({.monitor = "val_loss", .patience = 5})};

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/error.h"
#include "levin/base/export.h"
#include "levin/models/generate/options.h"
#include "levin/module/module.h"
#include "levin/observe/logger.h"
#include "levin/observe/progress.h"
#include "levin/trainer/options.h"

namespace levin {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  std::string monitor;       ///< name of the logged value
  double min_delta = 0.0;    ///< a smaller change is no improvement
  int64_t patience = 3;      ///< checks without improvement before the run ends
  bool verbose = false;      ///< log the state at each check
  std::string mode = "min";  ///< min or max: which value of monitor is best
  bool strict = true;        ///< throw if monitor was not logged; false: leave that check out
  bool check_finite = true;  ///< end the run on NaN or infinity; false: NaN is no improvement
  std::optional<double> stopping_threshold = {};    ///< end the run at a better value than this
  std::optional<double> divergence_threshold = {};  ///< end the run at a worse value than this
  /// true: check at the end of each training epoch; false: after each validation. Unset: at the end
  /// of each epoch, but after each validation if an epoch can have several validations or none
  /// (val_check_interval, check_val_every_n_epoch). A check at an epoch's end sees the values of
  /// the epoch and of its validation.
  std::optional<bool> check_on_train_epoch_end = {};
  /// Log on rank 0 only. false: on each rank that writes to the log (LEVIN_LOG_ALL_RANKS).
  bool log_rank_zero_only = false;
};

/// Follows lightning.pytorch.callbacks.EarlyStopping. Throws Error "trainer.monitor" if no value of
/// `monitor` was logged and `strict` is on.
class LEVIN_API EarlyStopping : public Callback {
 public:
  virtual int64_t stopped_epoch() const = 0;       ///< Epoch of the stop; -1: no stop.
  virtual double best_score() const = 0;           ///< Best value so far.
  virtual const std::string& monitor() const = 0;  ///< Name of the monitored value.
};

/// Returns an EarlyStopping callback. Throws Error "trainer.early_stopping" for invalid options.
LEVIN_API std::shared_ptr<EarlyStopping> early_stopping(EarlyStoppingOptions options);

// LearningRateMonitor: logs the learning rate of each optimizer, like Lightning's callback.
//
//   options.callbacks = {levin::learning_rate_monitor()};   // "lr-AdamW"

/// Options of LearningRateMonitor.
struct LearningRateMonitorOptions {
  /// step: in each step that the loggers record. epoch: at the start of each epoch. Empty: as the
  /// optimizer's schedule counts; an optimizer without a schedule is logged at both.
  std::string logging_interval;
  bool log_momentum = false;      ///< also log "-momentum"; for Adam, the first of the betas
  bool log_weight_decay = false;  ///< also log "-weight_decay"
  std::string log_key_prefix;     ///< prefix of each name
};
/// Returns a callback that follows lightning.pytorch.callbacks.LearningRateMonitor. Names are "lr-"
/// and the optimizer's class in PyTorch ("lr-AdamW"); a second optimizer of that class gets "-1", a
/// third "-2"; several parameter groups get "/pg1", "/pg2". Callbacks see the values too. Throws
/// Error "trainer.learning_rate_monitor" for an unknown interval.
LEVIN_API std::shared_ptr<Callback> learning_rate_monitor(LearningRateMonitorOptions options = {});

// ModelCheckpoint: saves checkpoints and keeps the best and the newest, like Lightning's callback.
//
//   auto best = levin::model_checkpoint({.monitor = "val_acc", .save_top_k = 3, .mode = "max"});
//   options.callbacks = {best};

/// Options of ModelCheckpoint.
struct ModelCheckpointOptions {
  std::string dirpath;  ///< folder of the checkpoints; empty: in the run's log folder
  /// Name of a checkpoint. {name} becomes name=value of epoch, step or a metric (nan before it is
  /// logged), and {name:.2f} formats the value. A slash in a metric's name becomes "_" in the name,
  /// so that no other folders are made. A malformed name throws at construction.
  std::string filename = "{epoch}-{step}";
  /// Name of the logged value that ranks checkpoints; empty: the newest is best.
  std::string monitor;
  bool verbose = false;    ///< log each save with its monitored value
  bool save_last = true;   ///< also keep the newest checkpoint, whatever its rank
  int64_t save_top_k = 1;  ///< number of best checkpoints to keep; -1: all
  /// Save when an exception ends a run that has only one process. The failed step and its
  /// accumulation window are undone first, and the resumed run repeats them. Large buffers, buffers
  /// on a GPU, and state that a module keeps outside buffers (metric objects, for example) are not
  /// undone.
  bool save_on_exception = true;
  /// Save weights, hyperparameters and counters only. validate, test, predict and
  /// load_from_checkpoint accept such a checkpoint, but no run can resume from it (Error
  /// "accelerator.weights_only").
  bool save_weights_only = false;
  std::string mode = "min";             ///< min or max: which value of monitor is best
  bool auto_insert_metric_name = true;  ///< false: {name} becomes the value alone
  /// Give the module the weights of the best checkpoint when a fit ends, as load_best_model_at_end of
  /// transformers. The last checkpoint keeps the weights of the last step.
  bool load_best_at_end = false;
  // Set at most one of these three. A save by steps or by time waits for the next validation if
  // `monitor` is logged only by validations.
  int64_t every_n_train_steps = 0;                               ///< 0: not by steps
  std::optional<std::chrono::seconds> train_time_interval = {};  ///< unset: not by time
  /// Unset: 1, or 0 if one of the two options above is set; 0: not by epochs.
  std::optional<int64_t> every_n_epochs = {};
  /// true: save at the end of training epochs; false: after validations. Unset: chosen like
  /// EarlyStoppingOptions::check_on_train_epoch_end.
  std::optional<bool> save_on_train_epoch_end = {};
  /// Write in the background (AsyncSaves): the run only waits for a copy of each rank's part. Some
  /// steps later the checkpoint exists and the ones that it replaces are removed. The next save,
  /// and the end of the run, wait for a save that is still being written. The files are the same.
  bool async_save = false;
  /// For hosts without a shared disk: each host writes the state of its own ranks
  /// (SaveCheckpointOptions), has its own `last`, and removes its own older checkpoints.
  bool save_on_each_node = false;
  /// true: if a name is taken, append "-v1", "-v2". false: replace the checkpoint of that name,
  /// whoever wrote it.
  bool enable_version_counter = true;
};

/// Follows lightning.pytorch.callbacks.ModelCheckpoint. Each checkpoint is a folder in dirpath, and
/// `last` is a link to the newest one; the link changes only when that checkpoint is completely
/// written. The callback removes only checkpoints that this run has written into dirpath. A run
/// that resumes from the newest checkpoint in its dirpath counts as the same run: it may also remove
/// the checkpoints that this checkpoint lists. A checkpoint whose own name (not `last`) was passed as ckpt_path is never removed. A run resumed
/// from elsewhere takes over the ranking and removes no checkpoint that it finds. If no value of
/// `monitor` was logged yet, the callback warns, and the checkpoint has no rank. If the value is
/// still missing after a validation, it throws Error "trainer.monitor". Throws "trainer.checkpoint"
/// if a save fails (disk full), naming the checkpoint to resume from.
class LEVIN_API ModelCheckpoint : public Callback {
 public:
  /// Returns the folder of the best checkpoint; empty before any is ranked, and if save_top_k is 0.
  virtual const std::string& best_model_path() const = 0;
  virtual std::optional<double> best_model_score() const = 0;  ///< Its monitored value.
  /// Returns the best path in a state_dict() of a ModelCheckpoint, or "" if it has none.
  static std::string best_model_path_in(const State& state);
  virtual const std::string& last_model_path() const = 0;  ///< Newest checkpoint.
  virtual const std::string& monitor() const = 0;          ///< Name of the monitored value.
  bool writes_checkpoints() const override { return true; }
};

/// Returns a ModelCheckpoint callback. Throws Error "trainer.checkpoint.options" for options out of
/// range, and for a filename that is malformed.
LEVIN_API std::shared_ptr<ModelCheckpoint> model_checkpoint(ModelCheckpointOptions options = {});

}  // namespace levin

namespace levin {

// Timer: measures the parts of a run, and ends it after a time of training.
//
//   auto timer = levin::timer({.duration = "00:12:00:00"});

/// Options of Timer.
struct TimerOptions {
  std::string duration;           ///< most time of training, DD:HH:MM:SS; empty: only measure
  std::string interval = "step";  ///< step or epoch: the run ends after one of these
  bool verbose = true;            ///< log that the run ends
};

/// Follows lightning.pytorch.callbacks.Timer. A stage is "train", "validate", "test" or "predict"
/// ("validate": the newest validation, also inside a fit). Training time is saved in checkpoints,
/// and a resumed run counts on from there. Rank 0's clock decides for all ranks. Functions with a
/// stage throw Error "trainer.timer" for another stage.
class LEVIN_API Timer : public Callback {
 public:
  /// Returns the seconds from the stage's start to its end, or to now; 0 before its start.
  virtual double time_elapsed(std::string_view stage = "train") const = 0;
  /// Returns the seconds of `duration` that the stage has left; unset without a duration.
  virtual std::optional<double> time_remaining(std::string_view stage = "train") const = 0;
  /// Returns when the stage began, in seconds of a monotonic clock; unset before.
  virtual std::optional<double> start_time(std::string_view stage = "train") const = 0;
  /// Returns when the stage ended, in seconds of the same clock; unset before.
  virtual std::optional<double> end_time(std::string_view stage = "train") const = 0;
};

/// Returns a Timer callback. Throws Error "trainer.timer" for an unknown interval, and
/// "trainer.options" for a malformed duration.
LEVIN_API std::shared_ptr<Timer> timer(TimerOptions options = {});

// LambdaCallback: a callback made of functions.
//
//   options.callbacks = {levin::lambda_callback({.on_train_start = [](levin::Trainer&,
//       levin::Module&) { std::puts("it begins"); }})};

/// Options of lambda_callback: a function for each hook of Callback, with the hook's name and
/// arguments. An empty one does nothing.
struct LambdaCallbackOptions {
  template <class... Args>
  using Hook = std::function<void(Trainer&, Module&, Args...)>;  ///< type of the functions

  std::string key = "lambda_callback";  ///< state_key(): unique among the callbacks of a run
  /// @{ Called at the hook of Callback that has its name; empty: nothing is called.
  Hook<std::string_view> setup = {}, teardown = {};
  Hook<const std::exception&> on_exception = {};
  Hook<> on_fit_start = {}, on_fit_end = {}, on_sanity_check_start = {}, on_sanity_check_end = {};
  Hook<> on_train_start = {}, on_train_end = {}, on_train_epoch_start = {}, on_train_epoch_end = {};
  Hook<const Batch&, int64_t> on_train_batch_start = {};
  Hook<const at::Tensor&, const Batch&, int64_t> on_train_batch_end = {};
  Hook<> on_before_zero_grad = {};
  Hook<const at::Tensor&> on_before_backward = {};
  Hook<> on_after_backward = {}, on_before_optimizer_step = {};
  Hook<std::string_view> on_evaluation_start = {}, on_evaluation_end = {};
  Hook<std::string_view, const Batch&, int64_t> on_evaluation_batch_start = {},
                                                on_evaluation_batch_end = {};
  Hook<const at::Tensor&, const Batch&, int64_t> on_predict_batch_end = {};
  Hook<State&> on_save_weights = {}, on_save_checkpoint = {};
  Hook<const State&> on_load_checkpoint = {};
  /// @}
};
/// Returns a callback that follows lightning.pytorch.callbacks.LambdaCallback.
LEVIN_API std::shared_ptr<Callback> lambda_callback(LambdaCallbackOptions options);

}  // namespace levin

// ModelSummary: prints the table of layers and parameters at the start of a run. The trainer adds
// it unless enable_model_summary = false.

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

/// Options of ModelSummary.
struct ModelSummaryOptions {
  int64_t max_depth = 1;  ///< depth of nested modules to list; -1: all
};

/// Returns the table as text: name, type and parameters of each module, and the totals.
LEVIN_API std::string summarize(const torch::nn::Module& module, ModelSummaryOptions options = {});
/// Returns a callback that prints the table to stderr on rank 0 when a fit begins. Throws Error
/// "trainer.options" for a depth below -1.
LEVIN_API std::shared_ptr<Callback> model_summary(ModelSummaryOptions options = {});

// ProgressBar: the progress line on the terminal, and one plain line per epoch. If stderr is not a
// terminal, it also prints one line per minute with step, rate and values. The trainer adds it
// unless enable_progress_bar = false.
/// Returns a progress bar, which prints on rank 0 only.
LEVIN_API std::shared_ptr<Callback> progress_bar(ProgressOptions options = {});

// SampleTexts: generates texts from some prompts while a model trains.
//
//   options.callbacks = {levin::sample_texts(
//       {.prompts = {"class "}, .tokenizer = tokenizer, .every_n_steps = 100})};

/// Options of SampleTexts.
struct SampleTextsOptions {
  std::vector<std::string> prompts;  ///< prompts to continue
  bool chat = false;  ///< prompts are user messages, formatted by the tokenizer's chat template
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< tokenizer of the model
  int64_t every_n_steps = 0;                         ///< optimizer steps; 0: not by steps
  int64_t every_n_epochs = 1;                        ///< at an epoch's end; 0: not by epochs
  /// Sampling without a given seed uses another seed at each step.
  models::GenerateOptions generate = {.max_new_tokens = 64};
  /// File in the run's log folder to which texts are appended; empty: none.
  std::string file = "samples.txt";
  bool print = true;  ///< also print to the program's log
  /// Called with each text, on the main process.
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> on_sample;
};
/// Returns a callback that generates with the models::Pretrained in the module. Training is not
/// affected: weights are bit-identical with and without it. Throws Error "trainer.sample_texts"
/// without a prompt or a tokenizer, for options out of range, and if every_n_steps and
/// every_n_epochs are both 0. The start of a fit throws it if the module has no models::Pretrained,
/// if the file cannot be written, and on XLA devices; it also throws the errors of generate() for
/// its options.
LEVIN_API std::shared_ptr<Callback> sample_texts(SampleTextsOptions options);

// weight_averaging: trains with an average of the weights, as Lightning's WeightAveraging and
// EMAWeightAveraging and torch.optim.swa_utils.AveragedModel.
//
//   options.callbacks = {levin::weight_averaging({.decay = 0.999})};

/// Returns the new average of a tensor, elementwise, from its average, its value now, and the
/// number of values that the average has; avg_fn of torch.optim.swa_utils.AveragedModel. Under fsdp
/// and zero the tensors are shards.
using AverageFunction = std::function<at::Tensor(const at::Tensor& average, const at::Tensor& value,
                                                 int64_t num_averaged)>;

/// Options of weight_averaging.
struct WeightAveragingOptions {
  /// Decay of the exponential moving average (EMA); unset: the mean of all updates, as for
  /// stochastic weight averaging (SWA).
  std::optional<double> decay = 0.999;
  int64_t update_every_n_steps = 1;     ///< optimizer steps between updates; 0: not by steps
  int64_t update_starting_at_step = 0;  ///< index of the first optimizer step that updates
  /// Also update after each epoch from this one on; unset: not by epochs.
  std::optional<int64_t> update_starting_at_epoch = {};
  bool use_buffers = true;  ///< average floating-point buffers too; false: they stay the model's
  AverageFunction avg_fn = {};  ///< computes the averages, if decay is unset; empty: their mean
};

/// Returns a callback that keeps an average of the trained parameters, in their dtype; under fsdp
/// and zero, each rank averages its shards. Validation in a fit evaluates the average, checkpoints
/// have it as their weights (and the trained weights in their training state, from which a run
/// resumes bit for bit), and at the end of a fit the module gets it. Throws Error
/// "trainer.weight_averaging" for a decay outside of [0, 1), a negative number, both decay and
/// avg_fn, or options that never update.
LEVIN_API std::shared_ptr<Callback> weight_averaging(WeightAveragingOptions options = {});

/// Options of stochastic_weight_averaging.
struct StochasticWeightAveragingOptions {
  std::vector<double> swa_lrs;    ///< final learning rates: one for all parameter groups, or each
  Portion swa_epoch_start = 0.8;  ///< epoch of the start, from 1, or its fraction of max_epochs
  int64_t annealing_epochs = 10;  ///< epochs from the rates at the start to swa_lrs
  std::string annealing_strategy = "cos";  ///< cos or linear
  AverageFunction avg_fn = {};             ///< computes the averages; empty: their mean
};
/// Returns a callback that follows lightning.pytorch.callbacks.StochasticWeightAveraging (SWA):
/// from the start on it replaces the learning rates, and adds the parameters to their mean at the
/// start of each epoch. Validations and checkpoints have the trained weights; the module gets the
/// average when max_epochs are trained. If it has batch norm layers that are trained, the training
/// data then passes through training_step once more, without gradients, for their statistics
/// (update_bn; with automatic optimization only). Throws Error "trainer.weight_averaging" for
/// options out of range and, at the start of a fit, for several optimizers, another number of rates
/// than parameter groups, and a fraction without max_epochs.
LEVIN_API std::shared_ptr<Callback> stochastic_weight_averaging(
    StochasticWeightAveragingOptions options);

// finetuning: freezes a part of the model and unfreezes it at an epoch, as Lightning's
// BackboneFinetuning. Use several of them to unfreeze one part after another.
//
//   options.callbacks = {levin::finetuning({.pattern = "backbone.*", .unfreeze_at_epoch = 3})};
//   return levin::optim::adamw({.lr = 1e-3}).group("backbone.*", {});   // configure_optimizers

/// Options of finetuning.
struct FinetuningOptions {
  std::string pattern = "backbone.*";  ///< pattern of the names of the parameters to freeze
  int64_t unfreeze_at_epoch = 10;      ///< first epoch that trains them, from 0
  /// Factor of their learning rate in each later epoch: called with that epoch + 1. Empty: 2.
  std::function<double(int64_t)> lambda_func = {};
  double backbone_initial_ratio_lr = 0.1;  ///< their first rate, relative to the first group's
  std::optional<double> backbone_initial_lr = {};  ///< their first rate itself
  bool should_align = true;  ///< their rate stays at the first group's once it is larger
  bool train_bn = true;      ///< false: parameters of batch norm layers stay frozen
  bool verbose = false;      ///< log both rates in each epoch
};
/// Returns a callback that follows lightning.pytorch.callbacks.BackboneFinetuning. The parameters
/// need a parameter group of their own, whose rate this callback sets, not the schedule; one of the
/// other groups has to come before theirs, or be the rest. Throws Error "trainer.finetuning" for
/// options out of range and, at the start of a fit, if the pattern matches no parameter or a group
/// has other parameters too.
LEVIN_API std::shared_ptr<Callback> finetuning(FinetuningOptions options = {});

// prediction_writer: writes predictions to files while they are made, as a BasePredictionWriter.
//
//   options.callbacks = {levin::prediction_writer({.output_dir = "out", .format = "csv"})};

/// Options of prediction_writer.
struct PredictionWriterOptions {
  std::string output_dir;  ///< folder of the files; it is made
  /// batch: predictions_000000.npy and so on, one for each batch. epoch: predictions.npy. Or
  /// batch_and_epoch.
  std::string write_interval = "batch";
  std::string format = "npy";  ///< npy, csv, or safetensors with the tensor "predictions"
};
/// Returns a callback that writes the outputs of predict_step. A file has the rows of all ranks,
/// once and in the order of the data (of streams, the ranks' samples in turns). Rank 0 writes it, in
/// the dtype of the rows, and it appears when it is complete; with several ranks, that is at the
/// end, and until then each rank writes its rows to a temporary file in output_dir. Rows do not
/// stay in memory if predict runs with EvaluateOptions::return_predictions = false. A csv file
/// has a line of names and a column for each element of a row. Throws Error
/// "trainer.prediction_writer" for options out of range, "files.replace" at the start if there is a
/// file of such a name that this callback has not written, "trainer.predictions" for an output
/// without rows, or whose rows have other sizes or another dtype than those before (or, with
/// several ranks, not one row for each sample), "trainer.prediction_writer" for a dtype that the
/// format lacks, and "files.write" (disk full).
LEVIN_API std::shared_ptr<Callback> prediction_writer(PredictionWriterOptions options);

}  // namespace levin
