#pragma once
// TrainerOptions: the options of a Trainer, named and ordered as Lightning's. Set them in code, by
// flags or in a TOML file.
//
//   levin::TrainerOptions options{.precision = "bf16-mixed", .max_epochs = 3};
//   levin::parse_into(argc, argv, options);  // --strategy ddp --limit-val-batches 0.1
//   levin::Trainer trainer(options);

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/module/module.h"
#include "levin/module/parameters.h"
#include "levin/observe/logger.h"

// Types of options that can be a fraction or a count, a number or a word.

namespace levin {

/// A part of an epoch: a floating-point number is a fraction of its batches (1.0: all), an integer
/// a count. In text, "1.0" is the fraction and "1" the count.
class LEVIN_API Portion {
 public:
  /// A count of batches.
  template <std::integral T>
  Portion(T count) : count_(count) {}  // NOLINT: reads as the number it is
  /// A fraction of the batches.
  template <std::floating_point T>
  Portion(T fraction) : is_fraction_(true), fraction_(fraction) {}  // NOLINT

  /// Returns the number of batches, given the total: a fraction is rounded down, a count is at most
  /// the total.
  int64_t of(int64_t total) const;
  /// Returns whether it is a fraction.
  bool is_fraction() const { return is_fraction_; }
  /// Returns whether it is the fraction 1.0.
  bool is_whole() const { return is_fraction_ && fraction_ == 1.0; }
  /// Returns whether it is 0 or 0.0.
  bool is_none() const { return is_fraction_ ? fraction_ == 0.0 : count_ == 0; }
  /// Returns false for a negative number or a fraction above 1.
  bool valid() const;

  friend LEVIN_API std::string to_text(const Portion& portion);
  friend LEVIN_API void from_text(std::string_view text, Portion& portion);

 private:
  bool is_fraction_ = false;
  int64_t count_ = 0;
  double fraction_ = 0.0;
};

/// An interval between validations: a part of an epoch, or a time as text, "DD:HH:MM:SS".
class LEVIN_API CheckInterval : public Portion {
 public:
  /// A count or a fraction of an epoch's batches.
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  CheckInterval(T batches) : Portion(batches) {}  // NOLINT: reads as the number it is
  /// A part of an epoch.
  CheckInterval(const Portion& portion) : Portion(portion) {}  // NOLINT
  /// A time, or a count or fraction in text. Throws Error "base.text" and "trainer.options".
  CheckInterval(const char* text) : Portion(1.0) { from_text(text, *this); }  // NOLINT

  /// Returns the seconds of a time; unset: it is a part of an epoch.
  std::optional<double> seconds() const;

  friend LEVIN_API std::string to_text(const CheckInterval& interval);
  friend LEVIN_API void from_text(std::string_view text, CheckInterval& interval);

 private:
  std::string time_;
};

/// Counts by epoch: a count holds from its epoch on, until the next one. In text "0:8,4:1".
class LEVIN_API EpochCounts {
 public:
  EpochCounts() = default;  ///< Makes an empty list.
  /// Counts with the epochs from which they hold, as {{0, 8}, {4, 1}}.
  EpochCounts(std::initializer_list<std::pair<const int64_t, int64_t>> counts) : counts_(counts) {}

  /// Returns the count in an epoch, or `otherwise` before the first one.
  int64_t at(int64_t epoch, int64_t otherwise) const;
  /// Returns the counts by the epochs from which they hold.
  const std::map<int64_t, int64_t>& counts() const { return counts_; }

  friend LEVIN_API std::string to_text(const EpochCounts& counts);
  friend LEVIN_API void from_text(std::string_view text, EpochCounts& counts);

 private:
  std::map<int64_t, int64_t> counts_;
};
/// Returns the text of a flag's value; "none" for an empty list.
LEVIN_API std::string to_text(const EpochCounts& counts);
/// Reads the text of a flag's value. Throws Error "base.text" for invalid text.
LEVIN_API void from_text(std::string_view text, EpochCounts& counts);

/// A number of at least 1, or "auto".
class LEVIN_API CountOrAuto {
 public:
  /// A number.
  template <std::integral T>
  CountOrAuto(T count) : count_(count) {}  // NOLINT: reads as the number it is
  /// A number in text, or "auto".
  CountOrAuto(const char* text) { from_text(text, *this); }  // NOLINT

  /// Returns the number; 0 for "auto".
  int64_t count() const { return is_auto_ ? 0 : count_; }
  /// Returns whether it is "auto" or at least 1.
  bool valid() const { return is_auto_ || count_ > 0; }

  friend LEVIN_API std::string to_text(const CountOrAuto& count);
  friend LEVIN_API void from_text(std::string_view text, CountOrAuto& count);

 private:
  bool is_auto_ = false;
  int64_t count_ = 0;
};

/// true, false or "warn": whether an operator without a deterministic algorithm is an error, is not
/// looked for, or is a warning.
class LEVIN_API Deterministic {
 public:
  /// true or false.
  Deterministic(bool on) : on_(on) {}  // NOLINT: reads as the value it is
  /// "true", "false" or "warn".
  Deterministic(const char* text) { from_text(text, *this); }  // NOLINT

  bool is_on() const { return on_; }     ///< Returns whether it is true or "warn".
  bool warns() const { return warns_; }  ///< Returns whether it is "warn".

  friend LEVIN_API std::string to_text(const Deterministic& value);
  friend LEVIN_API void from_text(std::string_view text, Deterministic& value);

 private:
  bool on_ = false;
  bool warns_ = false;
};
/// Returns the text of a flag's value.
LEVIN_API std::string to_text(const Deterministic& value);
/// Reads "true", "false" or "warn". Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, Deterministic& value);

using Devices = CountOrAuto;  ///< a number of devices, or "auto"

/// Returns the text of a flag's value.
LEVIN_API std::string to_text(const Portion& portion);
/// Reads the text of a flag's value. Throws Error "base.text" for invalid text.
LEVIN_API void from_text(std::string_view text, Portion& portion);
/// Returns the text of a flag's value.
LEVIN_API std::string to_text(const CheckInterval& interval);
/// Reads the text of a flag's value. Throws Error "base.text" for invalid text, and
/// "trainer.options" for an invalid time.
LEVIN_API void from_text(std::string_view text, CheckInterval& interval);
/// Returns the text of a flag's value.
LEVIN_API std::string to_text(const CountOrAuto& count);
/// Reads the text of a flag's value. Throws Error "base.text" for invalid text.
LEVIN_API void from_text(std::string_view text, CountOrAuto& count);

/// Loggers of a run. true: a CSV and a TensorBoard logger in one folder; false: none; the loggers
/// themselves; or in text the names of loggers, which share a folder: "csv,tensorboard".
class LEVIN_API Loggers {
 public:
  /// The default loggers, or none.
  Loggers(bool on = true) : on_(on) {}  // NOLINT: reads as the value it is
  /// One logger.
  template <class T>
    requires std::derived_from<T, Logger>
  Loggers(std::shared_ptr<T> logger) : loggers_{std::move(logger)} {}  // NOLINT
  /// Several loggers.
  Loggers(std::initializer_list<std::shared_ptr<Logger>> list) : loggers_(list) {}

  bool on() const { return on_; }  ///< Returns whether there are any.
  /// Returns the given loggers.
  const std::vector<std::shared_ptr<Logger>>& list() const { return loggers_; }
  /// Returns the given loggers, or new ones of the given names, or the default loggers. They write
  /// to the folder that the options name, by default in `save_dir`.
  std::vector<std::shared_ptr<Logger>> make(const std::string& save_dir) const;

  /// Lists --logger, --logger.save-dir, --logger.name and --logger.version.
  void fields(FieldVisitor& field);

  friend LEVIN_API std::string to_text(const Loggers& loggers);
  friend LEVIN_API void from_text(std::string_view text, Loggers& loggers);

 private:
  bool on_ = true;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::vector<std::string> kinds_;  // names of loggers; empty: the default ones
  std::optional<std::string> save_dir_, name_;
  std::optional<int64_t> version_;
};
/// Returns "true", "false" or names.
LEVIN_API std::string to_text(const Loggers& loggers);
/// Reads "true", "false" or names of loggers. Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, Loggers& loggers);

/// Options of a Trainer; they follow the arguments of lightning.pytorch.Trainer.
struct TrainerOptions {
  // Behaviour
  std::string accelerator = "auto";  ///< kind of device: auto, cpu, gpu, tpu or xla
  /// One of strategy_names(). auto: single for one rank, ddp for several, or zero or fsdp if ddp does not
  /// fit the memory (EngineOptions::max_memory_gb).
  std::string strategy = "auto";
  /// Processes on this machine, one for each device. With tpu and xla, it counts devices of one
  /// process, which share its batches. auto: as many processes as a launcher started; otherwise one
  /// for each GPU, or all TPU cores or GPUs with xla, and one device with a CPU plugin.
  CountOrAuto devices = "auto";
  int64_t num_nodes = 1;  ///< number of machines
  /// 32-true, 64-true, bf16-true, 16-true, bf16-mixed or 16-mixed.
  std::string precision = "32-true";
  Loggers logger = true;                             ///< loggers of the run
  std::vector<std::shared_ptr<Callback>> callbacks;  ///< callbacks of the run
  int64_t fast_dev_run = 0;           ///< run N batches of each loop and write nothing; 0: off
  std::optional<int64_t> max_epochs;  ///< unset: 1000 if no other limit is set; -1: no limit
  /// Minimum number of epochs; 0 becomes 1 if min_steps is set.
  int64_t min_epochs = 0;
  int64_t max_steps = -1;               ///< maximum number of optimizer steps; -1: no limit
  int64_t min_steps = 0;                ///< minimum number of optimizer steps
  std::string max_time;                 ///< DD:HH:MM:SS; empty: no limit
  Portion limit_train_batches = 1.0;    ///< training batches per epoch
  Portion limit_val_batches = 1.0;      ///< batches per validation
  Portion limit_test_batches = 1.0;     ///< batches of a test
  Portion limit_predict_batches = 1.0;  ///< batches of a prediction
  /// Train and validate on this part of the data, in the order of the dataset; 0.0: off.
  Portion overfit_batches = 0.0;
  /// Validate after this part of an epoch, or after this time ("00:00:10:00").
  CheckInterval val_check_interval = 1.0;
  /// Validate every n epochs. nullopt (none): val_check_interval counts batches across epochs.
  std::optional<int64_t> check_val_every_n_epoch = 1;
  int64_t num_sanity_val_steps = 2;  ///< validation batches before training; -1: all
  int64_t log_every_n_steps = 50;    ///< steps between values for loggers and progress bar
  bool enable_checkpointing = true;  ///< write checkpoints
  bool enable_progress_bar = true;   ///< show the progress bar
  bool enable_model_summary = true;  ///< print the table of layers
  /// Batches per optimizer step. auto: each batch is one step; a batch that does not fit into memory
  /// is cut into parts whose gradients are accumulated, alike on all ranks. The gradient is that of
  /// the whole batch, but batch norm sees the parts, and dropout draws for each of them.
  CountOrAuto accumulate_grad_batches = 1;
  /// Batches per optimizer step by epoch, as GradientAccumulationScheduler of Lightning.
  EpochCounts accumulate_grad_batches_by_epoch = {};
  std::optional<double> gradient_clip_val;       ///< clip gradients to this; unset: no clipping
  std::string gradient_clip_algorithm = "norm";  ///< norm or value
  Deterministic deterministic = false;  ///< as torch.use_deterministic_algorithms; or "warn"
  // Performance
  bool benchmark = false;      ///< let cuDNN benchmark its algorithms
  bool inference_mode = true;  ///< evaluate in c10::InferenceMode; false: under no_grad
  // Behaviour
  /// Profiler of the run: simple (the time of each hook and action) or pytorch (a trace of
  /// operators); empty: none. The table is printed at the end and written to the log folder.
  std::string profiler;
  bool detect_anomaly = false;  ///< name the operator whose gradient is NaN; slow
  bool barebones = false;       ///< only the steps, to measure overhead: no logs, checkpoints, bar
  std::string default_root_dir = ".";  ///< logs and checkpoints go to levin_logs in it
  // levin's own
  std::string ckpt_path;  ///< resume from a checkpoint folder, or "last"; empty: begin at step 0
  /// A resumed run continues in its own folder of logs and checkpoints, without rows from after the
  /// checkpoint. If false, or if that folder does not exist or belongs to another run, it starts a
  /// new folder.
  bool resume_in_place = true;
  /// Seed for seed_everything(), which parse_into and the Trainer's constructor call.
  std::optional<int64_t> seed;
  bool exit_on_signal = true;  ///< after SIGTERM or SIGINT and the save, exit with 143 or 130
  /// Ask the data module, or the module, for new loaders every n epochs; 0: never.
  int64_t reload_dataloaders_every_n_epochs = 0;
  bool dispatch_batches = false;  ///< only rank 0 reads the data and sends the batches
  /// All ranks get the same number of training batches: if the number of samples is not a multiple
  /// of the number of ranks, the first samples repeat. false: each sample is read once per epoch. A
  /// rank without a batch for a step takes part in it without gradients, as under torch's Join, and
  /// batches weigh by their samples, so that a step equals that of one rank over all samples of it.
  bool even_batches = true;
  int64_t tpu_cores = 0;  ///< same as accelerator = "tpu" with so many devices; 0: unset

  EngineOptions engine = {};  ///< options shared with the Accelerator
  /// More values to record with the run (hparams.toml), by name. levin::cli records its other
  /// options here. They are no flags.
  std::map<std::string, std::string> hparams = {};

  /// Lists the options for flags, TOML and checkpoints.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Options of Tuner::lr_find and learning_rate_finder, with the names and defaults of Lightning's
/// Tuner.lr_find.
struct LrFindOptions {
  double min_lr = 1e-8;              ///< first learning rate
  double max_lr = 1.0;               ///< last learning rate
  int64_t num_training = 100;        ///< number of optimizer steps, each with a rate of its own
  std::string mode = "exponential";  ///< growth of the rate: "exponential" or "linear"
  /// Stop at a smoothed loss above this many times the best one; unset: never.
  std::optional<double> early_stop_threshold = 4.0;
  /// Called on all ranks with the suggestion, if there is one.
  std::function<void(double lr)> update_attr;

  /// Lists the options for flags of `./program lr-find`.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Options of Tuner::scale_batch_size and batch_size_finder, with the names and defaults of
/// Lightning's Tuner.scale_batch_size.
struct ScaleBatchSizeOptions {
  /// "power": doubles the size until a step runs out of memory. "binsearch": then also searches
  /// between the largest size that fits and the smallest that does not.
  std::string mode = "power";
  int64_t steps_per_trial = 3;  ///< optimizer steps with each size
  int64_t init_val = 2;         ///< first batch size
  int64_t max_trials = 25;      ///< number of sizes tried; for binsearch, of sizes that fit
  double margin = 0.05;         ///< part by which binsearch lowers the size it has found
  int64_t max_val = 8192;       ///< largest batch size
  /// Called on all ranks with the size found.
  std::function<void(int64_t batch_size)> update_attr;
};

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
  /// For predict: return the outputs. false: return nothing, so that they take no memory; a
  /// callback (prediction_writer) or on_predict_batch_end uses them.
  bool return_predictions = true;
};

/// Options of load_from_checkpoint.
struct LoadFromCheckpointOptions {
  LoadOptions weights = {};  ///< strict, and names that may be missing or unexpected
  /// Hyper-parameters that replace those of the checkpoint, by name.
  std::map<std::string, std::string> hparams = {};
};

namespace detail {
/// Calls seed_everything if a seed was given.
LEVIN_API void seed_as_told(const TrainerOptions& options);
template <class Options>
void seed_as_told(const Options&) {}
}  // namespace detail

/// Reads options from flags and a TOML file, like parse_into for any options. A seed from a flag,
/// the file or the program is set here (seed_everything), so it also applies to objects made before
/// the Trainer.
template <class... Options>
  requires(std::same_as<Options, TrainerOptions> || ...)
void parse_into(int argc, const char* const* argv, Options&... options) {
  detail::read_options_or_exit(argc, argv,
                               [&](FieldVisitor& field) { (options.fields(field), ...); });
  (detail::seed_as_told(options), ...);
}

}  // namespace levin
