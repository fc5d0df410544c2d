#pragma once
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
  std::optional<double> stopping_threshold = {};    ///< end the run on a better value
  std::optional<double> divergence_threshold = {};  ///< end the run on a worse value
  /// Check at the end of each training epoch; false: of each validation. Unset: of the epoch,
  /// unless an epoch can have several validations or none (val_check_interval,
  /// check_val_every_n_epoch). A check at an epoch's end sees the values of the epoch and of its
  /// validation.
  std::optional<bool> check_on_train_epoch_end = {};
};

/// Follows lightning.pytorch.callbacks.EarlyStopping. Throws Error "trainer.monitor" if no value of
/// that name was logged.
class LEVIN_API EarlyStopping : public Callback {
 public:
  /// Throws Error "trainer.early_stopping" for invalid options.
  explicit EarlyStopping(EarlyStoppingOptions options);

  /// Epoch in which it ended the run; -1: it did not.
  int64_t stopped_epoch() const { return stopped_epoch_; }
  double best_score() const { return best_; }                      ///< Best value so far.
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
  /// Returns the reason to end the run at this value; empty if there is none.
  std::string judge(double value);
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
  /// step: with the loggers' rows of steps. epoch: at the start of each epoch. Empty: as the
  /// schedule counts, and for an optimizer without a schedule both.
  std::string logging_interval;
  bool log_momentum = false;      ///< also log "-momentum"; for Adam, the first of the betas
  bool log_weight_decay = false;  ///< also log "-weight_decay"
  std::string log_key_prefix;     ///< prefix of each name
};

/// Follows lightning.pytorch.callbacks.LearningRateMonitor. Names are "lr-" and the optimizer's
/// class in PyTorch ("lr-AdamW"); a second optimizer of that class gets "-1", a third "-2"; several
/// parameter groups get "/pg1", "/pg2". Callbacks see the values too.
class LEVIN_API LearningRateMonitor : public Callback {
 public:
  /// Throws Error "trainer.learning_rate_monitor" for an unknown interval.
  explicit LearningRateMonitor(LearningRateMonitorOptions options = {});

  std::string state_key() const override { return "learning_rate_monitor"; }
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;

 private:
  enum class Which { kAll, kByStep, kByEpoch };
  Scalars values(const Trainer& trainer, Which which) const;

  LearningRateMonitorOptions options_;
  int64_t seen_at_ = -1;  // global step before the last step whose rates were logged
};

/// Returns a LearningRateMonitor callback.
LEVIN_API std::shared_ptr<LearningRateMonitor> learning_rate_monitor(
    LearningRateMonitorOptions options = {});

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
  /// Save when a run of one process ends by an exception. The failed step and its accumulation
  /// window are undone first, and the resumed run repeats them. Large buffers, buffers on a GPU,
  /// and state that a module keeps outside buffers (metric objects, for example) are not undone.
  bool save_on_exception = true;
  std::string mode = "min";  ///< min or max: which value of monitor is best
  // Set one of these three. A save by steps or by time waits for the next validation if only a
  // validation logs its monitor.
  int64_t every_n_train_steps = 0;                               ///< 0: not by steps
  std::optional<std::chrono::seconds> train_time_interval = {};  ///< unset: not by time
  std::optional<int64_t> every_n_epochs = {};  ///< unset: 1, or not by epochs; 0: not by epochs
  /// Save at the end of training epochs; false: of validations. Unset: of epochs, unless an epoch
  /// can have several validations or none (val_check_interval, check_val_every_n_epoch).
  std::optional<bool> save_on_train_epoch_end = {};
  /// Write in the background (AsyncSaves): the run only waits for a copy of each rank's part. Some
  /// steps later the checkpoint exists and the ones that it replaces are removed. There is one such
  /// save at a time: the next one, and the end of the run, wait for it. The files are the same.
  bool async_save = false;
  /// For hosts without a shared disk: each has a folder of that name with the state of its own
  /// ranks (SaveCheckpointOptions), its own `last`, and removes its own older checkpoints.
  bool save_on_each_node = false;
};

/// Follows lightning.pytorch.callbacks.ModelCheckpoint. Each checkpoint is a folder in dirpath, and
/// `last` is a link to the newest one, which changes when that one is completely written. If a name
/// is taken, "-v1", "-v2" is appended.
/// It removes only checkpoints that this run has written into dirpath. A run resumed from the
/// newest checkpoint of its own folder counts as the same run: checkpoints that this one lists may
/// be removed too, except one that was resumed from by its name. A run resumed from elsewhere takes
/// over the ranking and removes no checkpoint that it finds.
/// A checkpoint has no rank, with a warning, if no value of the monitor's name was logged yet;
/// after a validation, this throws Error "trainer.monitor". Throws "trainer.checkpoint" if a save
/// fails (disk full), naming the checkpoint to resume from.
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
    std::optional<double> score;  // none where nothing is monitored
    int64_t step = -1;
    bool by_rule = true;  // and not because a run ended
    bool own = false;     // this run has written it
  };

  struct Place {
    std::string folder;
    bool is_own = false;  // it holds a checkpoint of this run
  };

  /// State that a save changes, as it was before.
  struct Lists {
    std::vector<Saved> kept;
    Saved best;
    std::string last;
  };

  static State state_of(const std::vector<Saved>& list);
  static std::vector<Saved> list_in(const State& state);
  /// Resets the state to that before any run.
  void forget();
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
  /// File in the run's log folder to which texts are appended; empty: none.
  std::string file_name(const Trainer& trainer, int64_t epoch) const;
  bool is_ranked(const Saved& saved) const;
  bool ranks_before(const Saved& a, const Saved& b) const;
  /// Ranks kept_ and removes from it the checkpoints that are neither among the best nor the newest
  /// to be kept. The newest is the one that has no folder yet.
  std::vector<Saved> take_surplus();
  void choose_best();
  bool keeps(const std::string& folder) const;
  /// Returns the folder of that name in this one's, if there is one.
  std::optional<std::string> place_of(const std::string& path) const;
  bool may_replace(const std::string& folder, int64_t step) const;
  /// Returns whether this process keeps dirpath in order.
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
  int64_t ranked_step_ = 0;  // and of the newest that was ranked
  bool due_ = false;         // a save that waits for the end of the step's window
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

/// Prints the table to stderr on rank 0 when a fit begins.
class LEVIN_API ModelSummary : public Callback {
 public:
  /// Throws Error "trainer.options" for a depth below -1.
  explicit ModelSummary(ModelSummaryOptions options);
  std::string state_key() const override { return "model_summary"; }
  void on_fit_start(Trainer& trainer, Module& module) override;

 private:
  ModelSummaryOptions options_;
};

/// Returns a ModelSummary callback.
LEVIN_API std::shared_ptr<ModelSummary> model_summary(ModelSummaryOptions options = {});

// ProgressBar: the progress line on the terminal, and one plain line per epoch. If stderr is not a
// terminal, also one line per minute with step, rate and values. The trainer adds it unless
// enable_progress_bar = false.

/// Prints on rank 0 only.
class LEVIN_API ProgressBar : public Callback {
 public:
  /// Makes a progress bar.
  explicit ProgressBar(const ProgressOptions& options) : line_(options), evaluation_(options) {}

  std::string state_key() const override { return "progress_bar"; }
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_end(Trainer& trainer, Module& module) override { end(); }
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override {
    end();
  }

 private:
  /// Clears the lines of a fit; the same callback may be used in an evaluation.
  void end() {
    line_.clear();
    evaluation_.clear();
    started_ = false;
  }

  ProgressLine line_;
  ProgressLine evaluation_;  // while one runs
  bool started_ = false;
};

/// Returns a ProgressBar callback.
LEVIN_API std::shared_ptr<ProgressBar> progress_bar(ProgressOptions options = {});

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

/// Generates with the models::Pretrained in the module. Training is not affected: weights are
/// bit-identical with and without this callback.
class LEVIN_API SampleTexts : public Callback {
 public:
  /// Throws Error "trainer.sample_texts" without a prompt or a tokenizer, and for options that
  /// never sample. on_fit_start throws it if the module has no models::Pretrained, if the file
  /// cannot be written, and on XLA devices; it also throws the errors of generate() for its
  /// options.
  explicit SampleTexts(SampleTextsOptions options);

  std::string state_key() const override { return "sample_texts"; }
  /// The file's length, so that a run resumed in its folder drops texts from after the checkpoint.
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;
  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  void sample(Trainer& trainer, Module& module);
  void tell(const Trainer& trainer, const std::vector<std::string>& texts);
  /// Appends to the file; throws Error "files.replace" and "files.write".
  void append(const Trainer& trainer, const std::string& texts);

  SampleTextsOptions options_;
  int64_t sampled_at_ = -1;  // global step
  std::string path_;         // path of the file; empty: none
  int64_t bytes_ = -1;       // bytes of the file at the checkpoint; -1: not known
  bool told_ = false;        // whether it said that the file cannot be written
};

/// Returns a SampleTexts callback.
LEVIN_API std::shared_ptr<SampleTexts> sample_texts(SampleTextsOptions options);

}  // namespace levin
