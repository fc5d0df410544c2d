#pragma once
// Loggers: write the metrics and hyperparameters of a run to disk, as CSV, JSON lines and for
// TensorBoard, or send them to an MLflow server.
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

namespace torch::nn {
class Module;
}

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
  /// Reduce the values of a step over all ranks too, when they are written to the loggers and shown
  /// on the progress bar; every rank must then log the name. Epoch values are always over all ranks.
  bool sync_dist = false;
  std::optional<int64_t> batch_size = {};  ///< samples the value stands for; unset: the batch's
  /// With several validation or test loaders, append "/dataloader_idx_N" to the name. If false, the
  /// values of all loaders are reduced into one.
  bool add_dataloader_idx = true;
  bool rank_zero_only = false;  ///< only rank 0 logs; the other ranks' calls do nothing
  /// Names of the values of a metric that has several, as ClasswiseWrapper's in torchmetrics: the
  /// first is "x/cat" with labels {"cat", "dog"}; without labels it is "x/0".
  std::vector<std::string> labels = {};
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
/// A metric with average = "none" has a value per class. Each is read as if it had been logged by
/// itself, as "x/0", "x/1", ..., or with LogOptions::labels.
///
/// log() throws Error "observe.log.shape" (not one element; a metric whose value is a matrix),
/// "observe.log.dtype" (complex), "observe.log.reduce" (unknown reduction), "observe.log.when"
/// (neither on_step nor on_epoch), "observe.log.options" (the name was logged with other options
/// before), "observe.log.kind" (a value and a metric, or two metrics, of the same name),
/// "observe.log.batch_size" (negative), "observe.log.sync_dist" (with rank_zero_only, or with a
/// metric that is read on_step) and "observe.log.labels" (their number is not that of the values).
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
  /// Sets whether this process is rank 0 (the default), which alone logs values with
  /// LogOptions::rank_zero_only.
  void set_rank_zero(bool is_rank_zero) { is_rank_zero_ = is_rank_zero; }
  /// Logs a tensor of one element, on any device.
  void log(std::string_view name, const at::Tensor& value, const LogOptions& options = {});
  /// Logs a tensor that is not changed afterwards, without calling the observer.
  void log_own(std::string_view name, const at::Tensor& value, const LogOptions& options);
  /// Logs a number.
  void log(std::string_view name, double value, const LogOptions& options = {});
  /// Logs a metric. It is read on_epoch unless the options say otherwise; with on_step it is read
  /// with the values that it has so far on this rank. A metric reduces itself and knows its batch sizes, so reduce
  /// must stay "mean" and batch_size is not used.
  void log(std::string_view name, std::shared_ptr<Metric> metric, const LogOptions& options = {});

  /// Gathers a state of each rank: the argument is this rank's.
  using Gather = std::function<std::vector<State>(const State&)>;
  /// Reduces the values that the latest step logged with LogOptions::sync_dist over all ranks, in
  /// one exchange, as LightningModule.log does: each rank's value counts once in a mean. The other
  /// functions return the reduced values afterwards. Does nothing if no name has sync_dist.
  void sync_step(const Gather& gather);

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
  bool is_rank_zero_ = true;
};

/// Writes metrics and hyperparameters of a run, like Lightning's Logger. If it cannot write (the
/// disk is full, a server does not answer), it warns once and drops the values, and training goes
/// on; only log_dir() throws for that. The CSV file continues as soon as there is space again; the
/// event file of TensorBoard does not. Arguments that no logger can take throw.
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

  /// Logs an image: uint8 from 0 to 255 or floating-point from 0 to 1, of 1 (gray), 3 (RGB) or 4
  /// (RGBA) channels C. The format is "CHW", "HWC" or "HW", as the dataformats of SummaryWriter's
  /// add_image. Loggers without images write images/NAME_STEP.png in their folder. Throws Error
  /// "observe.logger.image".
  virtual void log_image(const std::string& name, const at::Tensor& image, int64_t step,
                         std::string_view format = "CHW");
  /// Logs the distribution of the finite elements of a tensor. Loggers without histograms warn once
  /// and drop it. Throws Error "observe.logger.histogram" if the tensor is empty or complex.
  virtual void log_histogram(const std::string& name, const at::Tensor& values, int64_t step);
  /// Logs a text. Loggers without texts write texts/NAME_STEP.txt in their folder.
  virtual void log_text(const std::string& name, const std::string& text, int64_t step);
  /// Logs the structure of a module. The Trainer calls it at the beginning of a fit.
  virtual void log_graph(const torch::nn::Module& module) {}
  /// The Trainer calls it when the callback ModelCheckpoint has saved this folder.
  virtual void after_save_checkpoint(const std::string& folder) {}
  /// The Trainer calls it at the end of a run. The status is "success", "failed" (an exception) or
  /// "killed" (a signal).
  virtual void finalize(std::string_view status) { flush(); }

  /// Name of the experiment.
  virtual std::string name() const { return ""; }
  /// Version of the run: "version_3", or the id that a server gave it.
  virtual std::string version() const { return ""; }
  /// Folder of all runs.
  virtual std::string save_dir() const { return ""; }

  /// State for a checkpoint: the folder, and how far it is written.
  virtual State state_dict() const { return {}; }
  /// Continues the log of a run that resumes from a checkpoint with this state, at this step. It is
  /// called before anything is logged. The log continues in the folder of the state, without the
  /// values that were logged there after the checkpoint. Returns false and changes nothing if the
  /// folder does not exist, belongs to another run, or is being written by another process.
  virtual bool resume(const State& state, int64_t step) { return false; }
  /// Folders to which runs with this logger have logged.
  virtual std::vector<std::string> known_dirs() const { return {log_dir()}; }

 private:
  bool warned_of_images_ = false;
  bool warned_of_histograms_ = false;
  bool warned_of_texts_ = false;
};

/// Options of the loggers. The folder of a run is save_dir/name/version_N. Two loggers with the
/// same version share a folder. A version that exists already is continued. The file run_id in the
/// folder distinguishes it from folders of the same name that other runs have made.
struct LoggerOptions {
  std::string save_dir = "levin_logs";  ///< folder of all runs
  std::string name;                     ///< name of the experiment; empty: no folder for it
  std::optional<int64_t> version = {};  ///< unset: one more than the highest existing version
  std::string prefix = {};              ///< put before each name, joined by "-"

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

/// Returns a logger that writes metrics.jsonl: each log_metrics() appends a JSON object with step,
/// epoch and the values by name, which pandas.read_json(lines=True) and jq read. JSON has no NaN
/// and no infinity, so they are the texts "NaN", "Infinity" and "-Infinity", which Python's float()
/// reads. A value named step or epoch is written as "value/step" or "value/epoch". The rest is as
/// with csv_logger().
LEVIN_API std::shared_ptr<Logger> jsonl_logger(LoggerOptions options = {});

/// Options of tensorboard_logger(), with the names of the arguments of Lightning's
/// TensorBoardLogger.
struct TensorBoardOptions {
  std::string save_dir = "levin_logs";  ///< folder of all runs
  std::string name;                     ///< name of the experiment; empty: no folder for it
  std::optional<int64_t> version = {};  ///< unset: one more than the highest existing version
  bool log_graph = false;               ///< log the module's structure, for the tab "Graphs"
  /// Log hp_metric = -1 at the beginning. A run that later logs a value of this name shows it in
  /// the tab "HParams" as the result of its hyperparameters.
  bool default_hp_metric = true;
  std::string prefix = {};                   ///< put before each name of a value, joined by "-"
  std::string sub_dir = {};                  ///< folder for the event files below the run's
  std::vector<std::string> hp_metrics = {};  ///< more values to show in the tab "HParams"

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Returns a logger that writes a TensorBoard event file, like Lightning's TensorBoardLogger. Each
/// value is a scalar of its name, and so is "epoch". Images, histograms, texts and the module's
/// structure are written as torch.utils.tensorboard's SummaryWriter writes them; the structure has
/// modules, parameters and the order of a Sequential, and no operators. Hyperparameters are written
/// as a text named "hparams", for the tab "HParams", and to hparams.toml. As with csv_logger(),
/// values are passed to the operating system at once. A resumed run writes a new event file that
/// begins with TensorFlow's SessionLog START; TensorBoard then drops the later steps of the earlier
/// files.
LEVIN_API std::shared_ptr<Logger> tensorboard_logger(TensorBoardOptions options = {});

/// Returns a CSV and a TensorBoard logger with one folder, whose version is determined when it is
/// first needed.
LEVIN_API std::vector<std::shared_ptr<Logger>> csv_and_tensorboard(LoggerOptions options = {});

/// Options of mlflow_logger(), with the names of the arguments of Lightning's MLFlowLogger.
struct MlflowOptions {
  std::string experiment_name = "levin_logs";    ///< experiment, which is created if it is new
  std::string run_name = {};                     ///< name of a new run; empty: the server's choice
  std::string tracking_uri = {};                 ///< "http://host:port"; empty: MLFLOW_TRACKING_URI
  std::map<std::string, std::string> tags = {};  ///< tags of the run
  std::string save_dir = "levin_logs";           ///< folder of the local copies
  std::string log_model = "false";               ///< upload checkpoints: "false", "true" or "all"
  std::string prefix = {};                       ///< put before each name, joined by "-"
  std::string artifact_location = {};            ///< of a new experiment; empty: the server's
  std::string run_id = {};                       ///< continue this run; empty: a new one
  bool synchronous = false;                      ///< wait for the server in each call
};

/// Returns a logger that sends metrics, parameters and tags to an MLflow server by its REST API,
/// like Lightning's MLFlowLogger. A thread sends them, so training does not wait for the server. The
/// folder save_dir/experiment_name/version_N keeps a copy of every row, as with jsonl_logger(). If
/// the server does not answer, the logger warns once, retries, keeps the newest 10,000 rows in
/// memory, and gives up 10 s after the end of the run. The run's status becomes FINISHED, FAILED or
/// KILLED. A resumed run continues the run of its checkpoint; rows that it logged after the
/// checkpoint stay on the server. Characters that MLflow refuses in a name become "_". With
/// log_model = "true" the checkpoints that exist at the end of the run are uploaded as artifacts,
/// with "all" each one that is saved; the server must serve artifacts. MLFLOW_TRACKING_USERNAME,
/// MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_TOKEN are read. It needs the library libcurl.so.4.
/// Throws Error "observe.logger.mlflow" for options that it cannot use or if libcurl is missing.
LEVIN_API std::shared_ptr<Logger> mlflow_logger(MlflowOptions options = {});

/// Returns a matrix [R, C] as an image, uint8 [H, W, 3]: a cell is darker the higher its value is
/// and has its value written in it. The labels name rows and columns; without them they are
/// numbered. Throws Error "observe.logger.image" (not a real matrix, more than 64 rows or columns, a
/// wrong number of labels).
///
///     logger->log_image("confusion", picture_of_matrix(confusion.compute()), step, "HWC");
LEVIN_API at::Tensor picture_of_matrix(const at::Tensor& matrix,
                                       const std::vector<std::string>& labels = {});

}  // namespace levin
