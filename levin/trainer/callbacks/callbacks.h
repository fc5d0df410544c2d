#pragma once
// Callbacks: EarlyStopping, ModelCheckpoint, and the callbacks that learning_rate_monitor,
// model_summary, progress_bar, sample_texts and weight_averaging return.
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
#include <vector>

#include "levin/base/error.h"
#include "levin/base/export.h"
#include "levin/models/generate/options.h"
#include "levin/module/module.h"
#include "levin/observe/logger.h"
#include "levin/observe/progress.h"

namespace levin {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  std::string monitor;       ///< name of the logged value
  double min_delta = 0.0;    ///< a smaller change is no improvement
  int64_t patience = 3;      ///< checks without improvement before the run ends
  bool verbose = false;      ///< log the state at each check
  std::string mode = "min";  ///< min or max: which value of monitor is best
  bool check_finite = true;  ///< end the run on NaN or infinity; false: NaN is no improvement
  std::optional<double> stopping_threshold = {};    ///< end the run at a better value than this
  std::optional<double> divergence_threshold = {};  ///< end the run at a worse value than this
  /// true: check at the end of each training epoch; false: after each validation. Unset: at the end
  /// of each epoch, but after each validation if an epoch can have several validations or none
  /// (val_check_interval, check_val_every_n_epoch). A check at an epoch's end sees the values of
  /// the epoch and of its validation.
  std::optional<bool> check_on_train_epoch_end = {};
};

/// Follows lightning.pytorch.callbacks.EarlyStopping. Throws Error "trainer.monitor" if no value of
/// `monitor` was logged.
class LEVIN_API EarlyStopping : public Callback {
 public:
  /// Throws Error "trainer.early_stopping" for invalid options.
  explicit EarlyStopping(EarlyStoppingOptions options);

  int64_t stopped_epoch() const { return stopped_epoch_; }  ///< Epoch of the stop; -1: no stop.
  double best_score() const { return best_; }               ///< Best value so far.
  const std::string& monitor() const { return options_.monitor; }  ///< Name of the monitored value.

  std::string state_key() const override { return "early_stopping-" + options_.monitor; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  bool at_train_epoch_end(const Trainer& trainer) const;
  void check(Trainer& trainer);
  std::string judge(double value);  ///< Reason to end the run at this value; empty: none.
  bool beats(double value, double other) const;

  EarlyStoppingOptions options_;
  double best_;
  int64_t waited_ = 0;
  int64_t stopped_epoch_ = -1;
};

/// Returns an EarlyStopping callback.
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
  /// logged), and {name:.2f} formats the value. A malformed name throws at construction.
  std::string filename = "{epoch}-{step}";
  /// Name of the logged value that ranks checkpoints; empty: the newest is best.
  std::string monitor;
  bool save_last = true;   ///< also keep the newest checkpoint, whatever its rank
  int64_t save_top_k = 1;  ///< number of best checkpoints to keep; -1: all
  /// Save when an exception ends a run that has only one process. The failed step and its
  /// accumulation window are undone first, and the resumed run repeats them. Large buffers, buffers
  /// on a GPU, and state that a module keeps outside buffers (metric objects, for example) are not
  /// undone.
  bool save_on_exception = true;
  std::string mode = "min";  ///< min or max: which value of monitor is best
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
};

/// Follows lightning.pytorch.callbacks.ModelCheckpoint. Each checkpoint is a folder in dirpath, and
/// `last` is a link to the newest one; the link changes only when that checkpoint is completely
/// written. If a name is taken, "-v1", "-v2" is appended. The callback removes only checkpoints
/// that this run has written into dirpath. A run that resumes from the newest checkpoint in its
/// dirpath counts as the same run: it may also remove the checkpoints that this checkpoint lists.
/// A checkpoint whose own name (not `last`) was passed as ckpt_path is never removed. A run resumed
/// from elsewhere takes over the ranking and removes no checkpoint that it finds. If no value of
/// `monitor` was logged yet, the callback warns, and the checkpoint has no rank. If the value is
/// still missing after a validation, it throws Error "trainer.monitor". Throws "trainer.checkpoint"
/// if a save fails (disk full), naming the checkpoint to resume from.
class LEVIN_API ModelCheckpoint : public Callback {
 public:
  /// Throws Error "trainer.checkpoint.options" for options out of range.
  explicit ModelCheckpoint(ModelCheckpointOptions options);

  /// Folder of the best checkpoint; empty before any is ranked, and if save_top_k is 0.
  const std::string& best_model_path() const { return best_.folder; }
  std::optional<double> best_model_score() const { return best_.score; }  ///< Its monitored value.
  /// Returns the best path in a state_dict() of a ModelCheckpoint, or "" if it has none.
  static std::string best_model_path_in(const State& state);
  const std::string& last_model_path() const { return last_folder_; }  ///< Newest checkpoint.

  std::string state_key() const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  bool writes_checkpoints() const override { return true; }
  std::string checkpoint_folder() const override { return folder_; }
  const std::string& monitor() const { return options_.monitor; }  ///< Name of the monitored value.

  void setup(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_train_end(Trainer& trainer, Module& module) override;
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;

 private:
  struct Saved {
    std::string folder;
    std::optional<double> score;  // none if nothing is monitored
    int64_t step = -1;
    bool by_rule = true;  // saved by every_n_..., not because a run ended
    bool own = false;     // this run has written it
  };

  struct Place {
    std::string folder;
    bool is_own = false;  // it holds a checkpoint of this run
  };

  /// State that a save changes, before the save.
  struct Lists {
    std::vector<Saved> kept;
    Saved best;
    std::string last;
  };

  static State state_of(const std::vector<Saved>& list);
  static std::vector<Saved> list_in(const State& state);
  void forget();  ///< Resets the state to that before any run.
  bool epoch_due(int64_t epoch) const;
  bool at_train_epoch_end(const Trainer& trainer) const;
  bool waits_for_validation(const Trainer& trainer) const;
  bool lacks_monitor(const Trainer& trainer) const;
  void warn_of_no_save(const Trainer& trainer) const;
  bool can_rank(Trainer& trainer, bool validation_may_tell);
  void warn_of_monitor(const Trainer& trainer, std::string_view so);
  std::optional<double> score(Trainer& trainer);
  void save_ranked(Trainer& trainer, int64_t epoch);
  void save(Trainer& trainer, int64_t epoch, std::optional<double> score, bool by_rule);
  /// Returns the folder name of a checkpoint, from `filename`.
  std::string file_name(const Trainer& trainer, int64_t epoch) const;
  bool is_ranked(const Saved& saved) const;
  bool ranks_before(const Saved& a, const Saved& b) const;
  /// Sorts kept_ by rank. Removes and returns the checkpoints that are neither among the best nor,
  /// with save_last, the newest. The newest has no folder yet: it has not been written.
  std::vector<Saved> take_surplus();
  void choose_best();
  bool keeps(const std::string& folder) const;
  /// Returns the folder in folder_ that has the last name of `path`, if it exists.
  std::optional<std::string> place_of(const std::string& path) const;
  bool may_replace(const std::string& folder, int64_t step) const;
  /// Returns whether this process (rank 0, or one per host) removes checkpoints and sets `last`.
  bool keeps_folder(const Trainer& trainer) const;
  Place choose_place(Trainer& trainer, int64_t epoch) const;
  bool write(Trainer& trainer, const Place& place, bool is_last_try) const;
  void write_behind(Trainer& trainer, const Place& place, const Lists& before);
  void link_newest(Trainer& trainer, const std::string& folder) const;
  void go_back_to(const Lists& before);
  void remove_surplus();
  [[noreturn]] void fail(int64_t step, const std::exception& error) const;

  ModelCheckpointOptions options_;
  std::string folder_;
  std::string run_;             // a name that no other run has
  std::vector<Saved> kept_;     // best first
  std::vector<Saved> surplus_;  // to be removed once the newest is on the disk
  Saved best_;
  std::string last_folder_;
  int64_t last_step_ = -1;   // global step of the newest checkpoint
  int64_t ranked_step_ = 0;  // global step of the newest ranked checkpoint
  bool due_ = false;         // true while a save waits for a window's end or a validation
  bool training_ = false;
  bool failed_ = false;
  bool told_of_monitor_ = false;
  bool validated_ = false;  // in this fit
  std::chrono::steady_clock::time_point saved_at_;
};

/// Returns a ModelCheckpoint callback.
LEVIN_API std::shared_ptr<ModelCheckpoint> model_checkpoint(ModelCheckpointOptions options = {});

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
};

/// Returns a callback that keeps an average of the trained parameters, in their dtype; under fsdp
/// and zero, each rank averages its shards. Validation in a fit evaluates the average, checkpoints
/// have it as their weights (and the trained weights in their training state, from which a run
/// resumes bit for bit), and at the end of a fit the module gets it. Throws Error
/// "trainer.weight_averaging" for a decay outside of [0, 1), a negative number, or options that
/// never update.
LEVIN_API std::shared_ptr<Callback> weight_averaging(WeightAveragingOptions options = {});

// Callbacks that measure the run: throughput and MFU, device statistics, gradient norms.
//
//   options.callbacks = {levin::throughput_monitor({.length_fn = tokens}),
//                        levin::device_stats_monitor(), levin::gradient_norm_monitor()};

/// Options of throughput_monitor.
struct ThroughputMonitorOptions {
  std::function<int64_t(const Batch&)> batch_size_fn = {};  ///< samples; empty: Batch::size()
  /// Items (tokens) of all samples of a batch; empty: they are not counted.
  std::function<int64_t(const Batch&)> length_fn = {};
  int64_t window_size = 100;                   ///< batches of the sliding window
  std::string separator = "/";                 ///< text between the parts of a name
  std::optional<double> available_flops = {};  ///< peak FLOP/s of a device; unset: by its name
  std::optional<double> flops_per_batch = {};  ///< of each batch; unset: they are counted
  bool synchronize = true;                     ///< wait for the device after each batch
  std::function<double()> clock = {};          ///< seconds; empty: a steady clock
};
/// Returns a callback that logs what lightning.pytorch.callbacks.ThroughputMonitor logs, under its
/// names: "train/time", "train/device/batches_per_sec", "train/device/flops_per_sec",
/// "train/device/mfu" and so on; with several devices also the rates of all ("train/mfu" is not
/// one of them). Rates need a full window. Training logs every log_every_n_steps; an evaluation at
/// its end. FLOPs are those of matrix products, convolutions and attention in forward and backward,
/// counted in the first batch of each shape while it runs. Throws Error "trainer.throughput" for
/// options out of range, and for functions that return less than 1.
LEVIN_API std::shared_ptr<Callback> throughput_monitor(ThroughputMonitorOptions options = {});

/// Options of device_stats_monitor.
struct DeviceStatsMonitorOptions {
  std::optional<bool> cpu_stats = {};  ///< log the CPU's statistics; unset: if it is the device
};
/// Returns a callback that follows lightning.pytorch.callbacks.DeviceStatsMonitor. Names begin with
/// the hook: "DeviceStatsMonitor.on_train_batch_start/cpu_percent". CPU: utilization, memory and
/// swap of the machine in percent, bytes available, and resident (RSS) and proportional (PSS) bytes
/// of the process. GPU: the caching allocator's statistics, as torch.cuda.memory_stats. Throws
/// Error "trainer.device_stats_monitor" if a fit has no logger.
LEVIN_API std::shared_ptr<Callback> device_stats_monitor(DeviceStatsMonitorOptions options = {});

/// Options of gradient_norm_monitor.
struct GradientNormMonitorOptions {
  double norm_type = 2.0;        ///< p of the p-norm, above 0; may be infinity
  std::string by = "parameter";  ///< parameter, layer or total, as optim::GradNormOptions::by
  int64_t every_n_steps = 0;     ///< optimizer steps; 0: log_every_n_steps
};
/// Returns a callback that logs optim::grad_norm before the optimizer's step: gradients of the
/// whole accumulation window, reduced over ranks and unscaled, but not clipped yet. Under fsdp and
/// zero the norms are those of full gradients. Throws Error "optim.grad_norm" for options out of
/// range.
LEVIN_API std::shared_ptr<Callback> gradient_norm_monitor(GradientNormMonitorOptions options = {});

}  // namespace levin
