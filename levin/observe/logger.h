#pragma once
// Loggers: write the metrics and hyperparameters of a run to disk, as CSV and for TensorBoard.
// On rank 0 the Trainer logs to them every log_every_n_steps steps and at the end of each epoch.
//
//   auto logger = levin::csv_logger({.save_dir = "runs", .name = "mnist"});
//   logger->log_hyperparams(levin::options_as_text(options));
//   logger->log_metrics({{"train_loss", 0.31}}, /*epoch=*/2, /*step=*/412);
//   // runs/mnist/version_0/metrics.csv and hparams.toml

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/base/state.h"
#include "levin/observe/metric.h"

// LoggedValues: the values that the steps of one stage (training, validation, test) have logged.
// Module::log fills it during a step. The Trainer reads it for loggers, progress bar and callbacks.
//
//   LoggedValues logged(true, false);                     // training: on_step, not on_epoch
//   logged.begin_step(batch.size());
//   logged.log("train_loss", loss, {.prog_bar = true});   // stays on loss's device
//   logger->log_metrics(logged.step_values(LogTarget::kLogger), epoch, step);  // synchronizes

namespace levin {
namespace detail {
class LogBook;
}

/// Options of a logged value, in the order of the arguments of LightningModule.log.
struct LogOptions {
  bool prog_bar = false;              ///< show the value on the progress bar
  bool logger = true;                 ///< write the value to the loggers
  std::optional<bool> on_step = {};   ///< log the value of each step; unset: true in training
  std::optional<bool> on_epoch = {};  ///< log the value of the epoch; unset: true in evaluation
  std::string reduce = "mean";        ///< reduction over the epoch: mean, sum, min or max
  std::optional<int64_t> batch_size = {};  ///< samples the value stands for; unset: the batch's
  /// With several validation or test loaders, append "/dataloader_idx_N" to the name. If false, the
  /// values of all loaders are reduced into one.
  bool add_dataloader_idx = true;
};

/// A logged value as a number.
struct Scalar {
  std::string name;  ///< name under which it was logged
  double value = 0;  ///< the value
  /// Returns whether name and value are the same.
  bool operator==(const Scalar&) const = default;
};
/// Logged values in the order of their first appearance.
using Scalars = std::vector<Scalar>;

/// Readers of logged values.
enum class LogTarget {
  kLogger,       ///< loggers: values logged with LogOptions::logger
  kProgressBar,  ///< progress bar: values logged with LogOptions::prog_bar
  kCallbacks     ///< callbacks: all values
};

/// Values logged by the steps of one stage. log() does not synchronize with the device, and
/// allocates no memory once a name is known. Names should be logged in the same order in every
/// step; another order costs a search. Not thread-safe.
///
/// A name that is logged with on_step and on_epoch is read as "x_step" and "x_epoch" (callbacks see
/// "x" too); any other name is read as "x". A mean over the epoch is weighted by batch size, and a
/// value with batch size 0 enters no reduction.
///
/// log() throws Error "observe.log.shape" (not one element), "observe.log.dtype" (complex),
/// "observe.log.reduce" (unknown reduction), "observe.log.when" (neither on_step nor on_epoch),
/// "observe.log.options" (the name was logged with other options before), "observe.log.kind" (a
/// value and a metric, or two metrics, of the same name) and "observe.log.batch_size" (negative).
class LEVIN_API LoggedValues {
 public:
  /// Creates an empty collection with the defaults of LogOptions::on_step and on_epoch.
  LoggedValues(bool default_on_step, bool default_on_epoch);
  ~LoggedValues();

  /// Observer of each logged value. The tensor is undefined for a number or a metric. If the
  /// observer returns true, this call of log() does not record the value; the observer logs it
  /// later itself.
  using Observer =
      std::function<bool(std::string_view, const at::Tensor& value, const LogOptions&)>;
  /// Sets the observer; an empty function removes it.
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  /// Begins a step with a batch of this many samples.
  void begin_step(int64_t batch_size);
  /// Sets the index of the loader whose batches are evaluated now; nullopt if there is only one.
  void set_dataloader_index(std::optional<int64_t> index);
  /// Logs a tensor of one element, on any device.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  /// Logs a tensor that is not changed afterwards, without calling the observer.
  void log_own(std::string_view name, const at::Tensor& value, const LogOptions& options);
  /// Logs a number.
  void log(std::string_view name, double value, const LogOptions& options = {});
  /// Logs a metric. It is read on_epoch unless the options say otherwise; with on_step it is read
  /// with the values it has so far. A metric reduces itself and knows its batch sizes, so reduce
  /// must stay "mean" and batch_size is not used.
  void log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options = {});

  /// Returns the values that the latest step logged with on_step. This function and epoch_values()
  /// synchronize with the device, once for all values.
  Scalars step_values(LogTarget target);
  /// For callbacks: returns the values logged with on_step since the last call of this function,
  /// the newest one of each name.
  Scalars take_step_values();
  /// Returns the values logged with on_epoch since reset_epoch(), reduced.
  Scalars epoch_values(LogTarget target);
  /// Returns the values that step_values() and epoch_values() returned last, without synchronizing.
  Scalars latest(LogTarget target) const;

  /// Begins an epoch: running sums begin at 0 and metrics are reset. Names and their options are
  /// kept.
  void reset_epoch();

  /// Remembers the running sums, for rewind(), without synchronizing or copying.
  void mark();
  /// Restores the running sums of mark(). Metrics, which their owner updates, are not restored.
  void rewind();

  /// Returns the running sums, from which an epoch continues as if it had not been interrupted. The
  /// function does not synchronize.
  State state_dict() const;
  /// Replaces the running sums by those of a state. A metric's part of the state is merged into the
  /// metric when it is next logged under its name.
  void load_state_dict(const State& state);
  /// Adds the state of another rank. To get the same bits on every rank, call reset_epoch(), then
  /// merge the states of all ranks in the order of ranks, this rank's own among them.
  void merge(const State& other);

 private:
  template <class Choice>
  Scalars read_steps(LogTarget target, const Choice& is_chosen);

  std::unique_ptr<detail::LogBook> book_;
  Observer observer_;
};

/// Writes metrics and hyperparameters of a run, like Lightning's Logger. If it cannot write (the
/// disk is full), it warns once and drops the values, and training goes on; only log_dir() throws.
/// The CSV file continues as soon as there is space again; the event file of TensorBoard does not.
class LEVIN_API Logger {
 public:
  virtual ~Logger();

  /// Logs values; `step` counts optimizer steps.
  virtual void log_metrics(const Scalars& values, int64_t epoch, int64_t step) = 0;
  /// Logs hyperparameters, as text by name.
  virtual void log_hyperparams(const std::map<std::string, std::string>& hyperparams) = 0;
  /// Writes buffered values to disk.
  virtual void flush() = 0;
  /// Folder of the run, which is created when it is first requested or written to. Throws Error
  /// "observe.logger.dir" if it cannot be created.
  virtual std::string log_dir() const = 0;

  /// State for a checkpoint: the folder, and how far it is written.
  virtual State state_dict() const { return {}; }
  /// Continues the log of a run that resumes from a checkpoint with this state, at this step. It is
  /// called before anything is logged. The log continues in the folder of the state, without the
  /// values that were logged there after the checkpoint. Returns false and changes nothing if the
  /// folder does not exist, belongs to another run, or is being written by another process.
  virtual bool resume(const State& state, int64_t step) { return false; }
  /// Folders to which runs with this logger have logged.
  virtual std::vector<std::string> known_dirs() const { return {log_dir()}; }
};

/// Options of the loggers. The folder of a run is save_dir/name/version_N. Two loggers with the
/// same version share a folder. A version that exists already is continued. The file run_id in the
/// folder distinguishes it from folders of the same name that other runs have made.
struct LoggerOptions {
  std::string save_dir = "levin_logs";  ///< folder of all runs
  std::string name;                     ///< name of the experiment; empty: no folder for it
  std::optional<int64_t> version = {};  ///< unset: one more than the highest existing version

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Creates dir/version_N, where N is one more than the highest existing version, and returns N.
/// Processes that call it at the same time get different versions. Throws Error
/// "observe.logger.dir".
LEVIN_API int64_t claim_version(const std::string& dir);

/// Returns a logger that writes metrics.csv, like Lightning's CSVLogger. Each log_metrics() appends
/// a row. The columns are step, epoch, and then the names in the order of their first appearance.
/// Numbers are written with the fewest digits that give the same number when read back. When
/// log_metrics() returns, the row has been passed to the operating system, so killing the process
/// loses none. A new name rewrites the file with one more column. Hyperparameters are written to
/// hparams.toml beside it. If an existing metrics.csv does not begin with the columns step and
/// epoch, the logger warns, leaves the file as it is, and drops the values.
LEVIN_API std::shared_ptr<Logger> csv_logger(LoggerOptions options = {});

/// Returns a logger that writes a TensorBoard event file, like Lightning's TensorBoardLogger. Each
/// value is a scalar of its name, and so is "epoch". Hyperparameters are written as a text named
/// "hparams" and to hparams.toml. As with csv_logger(), values are passed to the operating system
/// at once. A resumed run writes a new event file that begins with TensorFlow's SessionLog START;
/// TensorBoard then drops the later steps of the earlier files.
LEVIN_API std::shared_ptr<Logger> tensorboard_logger(LoggerOptions options = {});

/// Returns both loggers with one folder, whose version is determined when it is first needed.
LEVIN_API std::vector<std::shared_ptr<Logger>> csv_and_tensorboard(LoggerOptions options = {});

}  // namespace levin
