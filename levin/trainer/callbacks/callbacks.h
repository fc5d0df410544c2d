#pragma once
// EarlyStopping: ends the run when a value stops getting better; as Lightning's callback.
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

struct EarlyStoppingOptions {
  std::string monitor;       ///< name it was logged under
  double min_delta = 0.0;    ///< a smaller change is none
  int64_t patience = 3;      ///< checks without getting better before the run ends
  bool verbose = false;      ///< say at each check how it stands
  std::string mode = "min";  ///< min or max of monitor is best
  bool check_finite = true;  ///< end the run on NaN or infinity; else a NaN is no improvement
  std::optional<double> stopping_threshold = {};    ///< good enough: end the run
  std::optional<double> divergence_threshold = {};  ///< too bad: end the run
  /// Check at the end of each training epoch, else of each validation. Unset: of the epoch, unless
  /// there are several validations in one or epochs without (val_check_interval,
  /// check_val_every_n_epoch). At an epoch's end its own values are there beside its validation's.
  std::optional<bool> check_on_train_epoch_end = {};
};

/// Throws Error "trainer.monitor" when nothing of that name was logged, and
/// "trainer.early_stopping" for options that make no sense.
class LEVIN_API EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options);

  /// Epoch the run was ended in, -1 when it was not.
  int64_t stopped_epoch() const { return stopped_epoch_; }
  double best_score() const { return best_; }
  const std::string& monitor() const { return options_.monitor; }

  std::string state_key() const override { return "early_stopping-" + options_.monitor; }
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  bool at_train_epoch_end(const Trainer& trainer) const;
  void check(Trainer& trainer);
  /// Why the run should end at this value; empty when it should go on.
  std::string judge(double value);
  bool beats(double value, double other) const;

  EarlyStoppingOptions options_;
  double best_;
  int64_t waited_ = 0;
  int64_t stopped_epoch_ = -1;
};

LEVIN_API std::shared_ptr<EarlyStopping> early_stopping(EarlyStoppingOptions options);

// LearningRateMonitor: logs the learning rate that each optimizer steps with.
//
//   options.callbacks = {levin::learning_rate_monitor()};   // "lr-AdamW"

struct LearningRateMonitorOptions {
  /// step: with the loggers' rows of steps; epoch: at the start of each epoch; empty: with steps,
  /// and of an optimizer without a schedule at the start of each epoch too.
  std::string logging_interval;
  bool log_momentum = false;      ///< and "-momentum", of those with betas the first of them
  bool log_weight_decay = false;  ///< and "-weight_decay"
  std::string log_key_prefix;     ///< before each name
};

/// Names, as in Lightning: "lr-" and the optimizer's class in PyTorch ("lr-AdamW"); a second
/// optimizer of that class gets "-1", a third "-2"; parameter groups, where there are several,
/// "/pg1", "/pg2". Callbacks see the values too. Throws Error "trainer.learning_rate_monitor" for
/// another interval.
class LEVIN_API LearningRateMonitor : public Callback {
 public:
  explicit LearningRateMonitor(LearningRateMonitorOptions options = {});

  std::string state_key() const override { return "learning_rate_monitor"; }
  void on_train_start(Trainer& trainer, Module& module) override;
  void on_train_epoch_start(Trainer& trainer, Module& module) override;
  void on_train_batch_start(Trainer& trainer, Module& module, const Batch& batch,
                            int64_t batch_index) override;

 private:
  enum class Which { kAll, kUnscheduled };
  Scalars values(const Trainer& trainer, Which which) const;

  LearningRateMonitorOptions options_;
  int64_t seen_at_ = -1;  // global step before the last step whose rates were logged
};

LEVIN_API std::shared_ptr<LearningRateMonitor> learning_rate_monitor(
    LearningRateMonitorOptions options = {});

// ModelCheckpoint: saves the run, keeps the best and the newest; as Lightning's callback.
//
//   auto best = levin::model_checkpoint({.monitor = "val_acc", .save_top_k = 3, .mode = "max"});
//   options.callbacks = {best};

struct ModelCheckpointOptions {
  std::string dirpath;  ///< folder of the checkpoints; empty: below the run's logs
  /// {name} stands for name=value: epoch, step or a metric; {name:.2f} for it in that format. A
  /// metric that was not logged yet is nan. What is no such name is an error when this is made.
  std::string filename = "{epoch}-{step}";
  std::string monitor;     ///< what was logged under this name ranks; empty: the newest
  bool save_last = true;   ///< keep the newest too, whatever its rank
  int64_t save_top_k = 1;  ///< keep so many of the best; -1: all
  /// Save when a run of one process ends by an exception. The step that threw, and its window of
  /// batches, are undone first, and the resumed run takes them again. Not undone are large buffers,
  /// buffers on a GPU, and what a module keeps beside buffers (metric objects, say).
  bool save_on_exception = true;
  std::string mode = "min";  ///< min or max of monitor is best
  // One of these three. A save by steps or by time whose monitor only a validation logs waits for
  // the next validation.
  int64_t every_n_train_steps = 0;                               ///< 0: not by steps
  std::optional<std::chrono::seconds> train_time_interval = {};  ///< unset: not by time
  std::optional<int64_t> every_n_epochs = {};  ///< unset: 1, or not by epochs; 0: not by epochs
  /// Save at the end of training epochs, else of validations. Unset: of epochs, unless there are
  /// several validations in one or epochs without (val_check_interval, check_val_every_n_epoch).
  std::optional<bool> save_on_train_epoch_end = {};
  /// Written behind training (AsyncSaves): a save costs the run a copy of each rank's part; the
  /// checkpoint is there, and those that it replaces are removed, some steps later. One at a time:
  /// the next one, and the run's end, wait for it. The same files as without.
  bool async_save = false;
  /// Where hosts share no disk: each has a folder of that name with what its own ranks hold
  /// (SaveCheckpointOptions), and its own `last` and removal of older ones.
  bool save_on_each_node = false;
};

/// In dirpath each checkpoint is a folder, and `last` a link to the newest, which moves when that
/// is whole on the disk. A name that is taken gets "-v1", "-v2".
///
/// It removes only what this run has written into dirpath. A run that is resumed from the newest
/// checkpoint of its own folder is the same run: what that checkpoint lists as its own may be
/// removed too, except one that was resumed from by its name. A run that is resumed from elsewhere
/// takes over the ranking and removes nothing that it finds.
///
/// Where nothing of the monitor's name was logged yet a checkpoint has no rank, with a warning.
/// Throws Error "trainer.monitor" where that is so after a validation, "trainer.checkpoint" when a
/// save fails (disk full), which names the checkpoint to go on from, and
/// "trainer.checkpoint.options" for options out of range.
class LEVIN_API ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(ModelCheckpointOptions options);

  /// Empty before anything was ranked, and with save_top_k = 0.
  const std::string& best_model_path() const { return best_.folder; }
  std::optional<double> best_model_score() const { return best_.score; }
  /// That path in a state_dict() of such a callback, empty where it has none.
  static std::string best_model_path_in(const State& state);
  const std::string& last_model_path() const { return last_folder_; }

  std::string state_key() const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  bool writes_checkpoints() const override { return true; }
  std::string checkpoint_folder() const override { return folder_; }
  const std::string& monitor() const { return options_.monitor; }

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
    bool is_own = false;  // this run's stands there
  };

  /// What a save changes, as it was before.
  struct Lists {
    std::vector<Saved> kept;
    Saved best;
    std::string last;
  };

  static State state_of(const std::vector<Saved>& list);
  static std::vector<Saved> list_in(const State& state);
  /// As it was before any run.
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
  std::string file_name(const Trainer& trainer, int64_t epoch) const;
  bool is_ranked(const Saved& saved) const;
  bool ranks_before(const Saved& a, const Saved& b) const;
  /// Ranks kept_ and takes out of it what is neither among the best nor the newest to be kept: the
  /// newest is the one that has no folder yet.
  std::vector<Saved> take_surplus();
  void choose_best();
  bool keeps(const std::string& folder) const;
  /// The folder of that name in this one's; nothing where there is none.
  std::optional<std::string> place_of(const std::string& path) const;
  bool may_replace(const std::string& folder, int64_t step) const;
  /// Whether this process keeps dirpath in order.
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

LEVIN_API std::shared_ptr<ModelCheckpoint> model_checkpoint(ModelCheckpointOptions options = {});

}  // namespace levin

// ModelSummary: the table of layers and parameters that a run begins with.
// The trainer adds it by itself unless enable_model_summary = false.

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

struct ModelSummaryOptions {
  int64_t max_depth = 1;  ///< how deep into the module; -1: all the way
};

/// The table as text: name, type and parameters of each part, and the totals.
LEVIN_API std::string summarize(const torch::nn::Module& module, ModelSummaryOptions options = {});

/// Prints it to stderr on rank 0 when a fit begins.
class LEVIN_API ModelSummary : public Callback {
 public:
  /// Throws Error "trainer.options" for a depth below -1.
  explicit ModelSummary(ModelSummaryOptions options);
  std::string state_key() const override { return "model_summary"; }
  void on_fit_start(Trainer& trainer, Module& module) override;

 private:
  ModelSummaryOptions options_;
};

LEVIN_API std::shared_ptr<ModelSummary> model_summary(ModelSummaryOptions options = {});

// ProgressBar: the line on the terminal, and one plain line for each epoch. Where stderr is no
// terminal also a line a minute, with step, rate and values. The trainer adds it by itself unless
// enable_progress_bar = false.

/// On rank 0 only.
class LEVIN_API ProgressBar : public Callback {
 public:
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
  /// Of a fit: the same callback may be given to an evaluation.
  void end() {
    line_.clear();
    evaluation_.clear();
    started_ = false;
  }

  ProgressLine line_;
  ProgressLine evaluation_;  // while one runs
  bool started_ = false;
};

LEVIN_API std::shared_ptr<ProgressBar> progress_bar(ProgressOptions options = {});

// SampleTexts: writes down, while a model trains, what it makes of some prompts.
//
//   options.callbacks = {levin::sample_texts(
//       {.prompts = {"class "}, .tokenizer = tokenizer, .every_n_steps = 100})};

struct SampleTextsOptions {
  std::vector<std::string> prompts;
  bool chat = false;  ///< prompts are what a user says, put into the tokenizer's chat template
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int64_t every_n_steps = 0;   ///< optimizer steps; 0: not by steps
  int64_t every_n_epochs = 1;  ///< at an epoch's end; 0: not by epochs
  /// What draws has a seed of its own in each sample, where none is given.
  models::GenerateOptions generate = {.max_new_tokens = 64};
  /// Within the run's folder of logs, to which samples are added; empty: nowhere.
  std::string file = "samples.txt";
  bool print = true;  ///< to the log of the program too
  /// Is told of each, on the main process.
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> on_sample;
};

/// Of the models::Pretrained in the module. Training does not notice: it has the same weights, bit for
/// bit, with this and without it. Throws Error "trainer.sample_texts" where there is none, no prompt or
/// no tokenizer, where the options never sample, where the file cannot be written, and on XLA devices; and before the
/// first batch what generate() throws for its options.
class LEVIN_API SampleTexts : public Callback {
 public:
  explicit SampleTexts(SampleTextsOptions options);

  std::string state_key() const override { return "sample_texts"; }
  /// How long the file is, so that a run which goes on in its folder drops samples from after the checkpoint.
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
  /// To the file; throws Error "files.replace" and "files.write".
  void append(const Trainer& trainer, const std::string& texts);

  SampleTextsOptions options_;
  int64_t sampled_at_ = -1;  // global step
  std::string path_;         // of the file; empty: none
  int64_t bytes_ = -1;       // of the file at the checkpoint; -1: not known
  bool told_ = false;        // that the file cannot be written
};

LEVIN_API std::shared_ptr<SampleTexts> sample_texts(SampleTextsOptions options);

}  // namespace levin
